"""Hot reload: what a change of the files does to a catalog, and what a bad change does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.bus.settings import BusSettings
from engines.catalog import Catalog, Reloader
from engines.protocol.catalog import UnknownModel
from tests.bus.conftest import scripted, until

FILE = """\
sie_id: {name}
hf_id: {name}
tasks: {{encode: {{dense: {{dim: {dim}}}}}}}
profiles:
  default: {{adapter_path: "sie_server.adapters.bert_flash:BertFlashAdapter", max_batch_tokens: 100}}
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    for name in ("models", "bundles"):
        (tmp_path / name).mkdir()
    return {"SIE_MODELS_DIR": str(tmp_path / "models"), "SIE_BUNDLES_DIR": str(tmp_path / "bundles")}


def write(environ: dict[str, str], name: str, dim: int | str) -> Path:
    path = Path(environ["SIE_MODELS_DIR"]) / f"{name.replace('/', '__')}.yaml"
    path.write_text(FILE.format(name=name, dim=dim))
    return path


async def test_a_change_is_taken_over_with_a_new_epoch_and_hash(environ: dict[str, str]) -> None:
    write(environ, "org/one", 8)
    catalog = Catalog.from_env(environ)
    reloader = Reloader(catalog, environ)
    assert not await reloader.look()
    assert catalog.epoch == 0
    before = catalog.bundle_config_hash("default")
    write(environ, "org/two", 8)
    assert await reloader.look()
    assert catalog.epoch == 1
    assert catalog.resolve("org/two").model.dims == {"dense": 8}
    assert catalog.bundle_config_hash("default") != before
    write(environ, "org/two", 1000)
    assert await reloader.look()
    assert catalog.resolve("org/two").model.dims == {"dense": 1000}
    (Path(environ["SIE_MODELS_DIR"]) / "org__two.yaml").unlink()
    assert await reloader.look()
    with pytest.raises(UnknownModel):
        catalog.resolve("org/two")
    assert catalog.bundle_config_hash("default") == before


async def test_a_bad_change_is_told_by_file_line_and_field_and_changes_nothing(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    path = write(environ, "org/one", 8)
    catalog = Catalog.from_env(environ)
    reloader = Reloader(catalog, environ)
    write(environ, "org/good", 8)
    path.write_text(path.read_text() + "no_such_field: 1\n")
    assert not await reloader.look()
    assert f"{path}:6: no_such_field: is not a field of the catalog" in caplog.text
    assert "epoch 0 stays" in caplog.text
    assert catalog.epoch == 0
    assert catalog.resolve("org/one")
    with pytest.raises(UnknownModel):
        catalog.resolve("org/good")
    write(environ, "org/one", 8)
    assert await reloader.look()
    assert catalog.resolve("org/good")


UNREADABLE = {
    "a number that is none": "max_sequence_length: !!int abc\n",
    "a number without digits": "max_sequence_length: 0b_\n",
    "a number without end": f"max_sequence_length: {'9' * 5000}\n",
    "a nest": f"inputs: {'{a: ' * 400}1{'}' * 400}\n",
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_what_python_cannot_make_a_value_of_is_told_by_file(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture, case: str
) -> None:
    path = write(environ, "org/one", 8)
    catalog = Catalog.from_env(environ)
    reloader = Reloader(catalog, environ)
    whole = path.read_text()
    path.write_text(whole + UNREADABLE[case])
    assert not await reloader.look()
    assert f"{path}:" in caplog.text
    assert catalog.resolve("org/one")
    bad = Catalog.from_env(environ)
    assert [one.name for one in bad.refused if one.malformed and str(path) in one.reason] == ["org/one"]
    path.write_text(whole.replace("8", "9"))
    assert await reloader.look()


async def test_looking_goes_on_after_a_fault_of_any_kind(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(environ, "org/one", 8)
    catalog = Catalog.from_env(environ)
    reloader = Reloader(catalog, environ)
    sound = Catalog.from_env
    faults = [RuntimeError("the disk is on fire")]

    def once(environ: dict[str, str]) -> Catalog:
        if faults:
            raise faults.pop()
        return sound(environ)

    monkeypatch.setattr(Catalog, "from_env", once)
    running = asyncio.create_task(reloader.run(0.01))
    write(environ, "org/two", 8)
    await until(lambda: "on fire" in caplog.text)
    write(environ, "org/two", 16)
    await until(lambda: catalog.epoch == 1)
    running.cancel()
    assert catalog.resolve("org/two").model.dims == {"dense": 16}


async def test_a_directory_that_cannot_be_read_changes_nothing(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(environ, "org/one", 8)
    catalog = Catalog.from_env(environ)
    reloader = Reloader(catalog, environ)
    models = Path(environ["SIE_MODELS_DIR"])
    iterdir = Path.iterdir

    def denied(path: Path) -> object:
        if path == models:
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", denied)
    assert not await reloader.look()
    assert "Permission denied" in caplog.text
    assert catalog.resolve("org/one")


async def test_a_bad_bundle_changes_nothing(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog.from_env(environ)
    reloader = Reloader(catalog, environ)
    path = Path(environ["SIE_BUNDLES_DIR"]) / "mine.yaml"
    path.write_text("name: mine\npriority: high\n")
    assert not await reloader.look()
    assert f"{path}:2: priority" in caplog.text
    path.write_text('name: mine\npriority: 1\nadapters: ["*"]\n')
    assert await reloader.look()
    assert [bundle.name for bundle in catalog.bundles()] == ["default", "mine"]


async def test_a_file_that_was_bad_at_the_start_does_not_stand_in_the_way(environ: dict[str, str]) -> None:
    write(environ, "org/bad", "none")
    catalog = Catalog.from_env(environ)
    reloader = Reloader(catalog, environ)
    write(environ, "org/good", 8)
    assert await reloader.look()
    assert catalog.resolve("org/good")


async def test_gateway_and_worker_take_a_change_up_and_the_worker_acknowledges_it(environ: dict[str, str]) -> None:
    write(environ, "org/one", 8)
    cluster = scripted(BusSettings(), environ)
    cluster.catalog.take(Catalog.from_env(environ))
    await cluster.start()
    try:
        await until(lambda: acknowledged(cluster.catalog, cluster.dispatcher.workers), 60)
        write(environ, "org/two", 8)
        await until(lambda: cluster.catalog.epoch == 2, 60)
        await until(lambda: acknowledged(cluster.catalog, cluster.dispatcher.workers), 60)
        assert cluster.catalog.resolve("org/two")
    finally:
        await cluster.stop()


def acknowledged(catalog: Catalog, workers: Callable[[], object]) -> bool:
    expected = catalog.bundle_config_hash("default")
    return [worker.bundle_config_hash for worker in workers()] == [expected]  # type: ignore[attr-defined]


async def test_a_changed_model_is_loaded_anew_when_its_last_user_has_left() -> None:
    from engines.adapters.base import EngineStatus
    from engines.worker.models import Models
    from tests.catalog.test_names import entry

    loaded: list[str] = []
    closed: list[str] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        async def load(self) -> None:
            loaded.append(self.name)

        async def close(self) -> None:
            closed.append(self.name)

        def status(self) -> EngineStatus:
            return EngineStatus()

    old, new = entry("a"), entry("a", "other.module")
    models = Models(lambda model, profile: Fake(profile.adapter_path), lambda: None)  # type: ignore[arg-type,return-value]
    async with models.use(old, old.profiles["default"]):
        models.renew(lambda name: (new, new.profiles["default"]))
        waiting = asyncio.create_task(models.load(new, new.profiles["default"]))
        await asyncio.sleep(0.05)
        assert (len(loaded), closed) == (1, []), "the old engine works on, the new one waits"
    await waiting
    assert closed == [old.profiles["default"].adapter_path]
    assert loaded == [old.profiles["default"].adapter_path, new.profiles["default"].adapter_path]
    models.renew(lambda name: (new, new.profiles["default"]))
    assert len(closed) == 1, "what has not changed stays"
    models.renew(lambda name: None)
    await models.close()
    assert len(closed) == 2, "what the catalog no longer has goes"
