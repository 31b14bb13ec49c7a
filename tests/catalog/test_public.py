"""Model files as the public catalog has them: each is served, or refused by name with its reason."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.catalog import Catalog, load
from engines.catalog.catalog import EMBEDDED
from tests.catalog import public

FIELDS = [line.split() for line in Path(__file__).with_name("fields.txt").read_text().splitlines()]
"""Every field of the 157 public files (dotted path, with ``<profile>`` for a profile's name) and its type."""
BELOW = "profiles.<profile>.adapter_options."
FILES = public.files([(path.removeprefix(BELOW), kind) for path, kind in FIELDS if path.startswith(BELOW)])


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("public")
    for name, (text, _) in FILES.items():
        (folder / f"{name.replace('/', '__')}.yaml").write_text(text)
    return load([folder], [EMBEDDED / "bundles"], strict=True)


def test_the_files_use_every_field_of_the_list() -> None:
    used: set[str] = set()
    for text, _ in FILES.values():
        used |= set(paths(yaml.safe_load(text)))
    used = {path.replace("profiles.grammar.", "profiles.default.") for path in used}
    missing = [path for path, _ in FIELDS if path.replace("<profile>", "default") not in used]
    assert len(FILES) >= 100
    assert missing == []


def test_every_model_is_served_or_refused_by_name(catalog: Catalog) -> None:
    served = {entry.name for entry in catalog.models()}
    refused = {one.name: one for one in catalog.refused}
    assert served.isdisjoint(refused)
    assert served | set(refused) == set(FILES)
    assert not any(one.malformed for one in refused.values()), [str(one) for one in refused.values() if one.malformed]


@pytest.mark.parametrize(("name", "expected"), [(name, expected) for name, (_, expected) in FILES.items()])
def test_model(catalog: Catalog, name: str, expected: str) -> None:
    path = yaml.safe_load(FILES[name][0])["profiles"]["default"]["adapter_path"]
    refused = next((one for one in catalog.refused if one.name == name), None)
    if expected == "refused":
        assert refused is not None, f"{path} is served now: say so in the table"
        assert refused.reason
        assert path in refused.reason
        with pytest.raises(LookupError, match="cannot be served"):
            catalog.resolve(name)
        return
    found = catalog.resolve(name)
    assert found.bundle == "default"
    assert found.profile.engine == expected
    assert found.model.profiles["grammar"].max_batch_tokens == 8192
    assert found.model.profiles["grammar"].loadtime == found.profile.loadtime


def test_a_bundle_file_may_use_every_field(tmp_path: Path) -> None:
    text = """\
    name: sglang
    engine: sglang
    platform: linux/amd64
    default: true
    priority: 20
    adapters: [sie_server.adapters.sglang.generation, sie_server.adapters.sglang.embedding]
    deps: {torch: ">=2.8", sglang: {version: 0.5.2, extras: [all]}}
    """
    (tmp_path / "sglang.yaml").write_text(textwrap.dedent(text))
    (bundle,) = load([], [tmp_path], strict=True).bundles()
    assert (bundle.name, bundle.engine, bundle.priority, len(bundle.adapters)) == ("sglang", "sglang", 20, 2)


def paths(value: Any, path: str = "") -> Iterator[str]:
    """The dotted paths of all leaves, and of the tasks, which are leaves where they are empty."""
    if isinstance(value, dict):
        if path.count(".") < 3:
            yield path
        for key, item in value.items():
            yield from paths(item, f"{path}.{key}" if path else str(key))
    else:
        yield path
