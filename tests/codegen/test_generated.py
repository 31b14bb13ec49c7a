"""The committed packages, and how they route."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import openapi_spec_validator
import pytest

from codegen import config
from codegen.__main__ import main
from codegen.config import Source
from codegen.document import read
from tests.codegen.world import ROOT, Echo, Package, real_document, small

SOURCES = config.load(ROOT / "pyproject.toml")


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_committed_packages_are_byte_for_byte_what_their_documents_generate(seed: str, tmp_path: Path) -> None:
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "codegen", "--check"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_effective_document_is_valid_openapi(source: Source) -> None:
    openapi_spec_validator.validate(read(source.output / "openapi.json"))


def test_check_names_each_file_that_differs_and_generation_repairs_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "pyproject.toml"
    (tmp_path / "small.json").write_text(json.dumps(small()), encoding="utf-8")
    project.write_text(
        "[tool.oasgate.documents.small]\ndocument = 'small.json'\npackage = 'out.small'\n", encoding="utf-8"
    )

    def run(*arguments: str) -> tuple[int, list[str]]:
        status = main(["--pyproject", str(project), *arguments])
        return status, capsys.readouterr().out.splitlines()

    everything = ["__init__.py", "interfaces.py", "models.py", "openapi.json", "operations.py", "routes.py"]
    assert run("--check") == (1, [f"differs: small/{name}" for name in everything])
    assert run() == (0, [f"wrote: small/{name}" for name in everything])
    assert run("--check") == (0, [])
    models = tmp_path / "out/small/models.py"
    models.write_text(models.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    (tmp_path / "out/small/routes.py").unlink()
    (tmp_path / "out/small/extra.py").touch()
    changed = ["extra.py", "models.py", "routes.py"]
    assert run("--check") == (1, [f"differs: small/{name}" for name in changed])
    assert run() == (0, [f"wrote: small/{name}" for name in changed])
    assert not (tmp_path / "out/small/extra.py").exists()
    assert run("--check") == (0, [])


def test_check_names_a_package_that_no_document_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "pyproject.toml"
    (tmp_path / "small.json").write_text(json.dumps(small()), encoding="utf-8")
    project.write_text("[tool.oasgate.documents.a]\ndocument = 'small.json'\npackage = 'out.a'\n", encoding="utf-8")
    assert main(["--pyproject", str(project)]) == 0
    for name in ("out/old/models.py", "out/empty/__pycache__/models.cpython-311.pyc", "src/models.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    capsys.readouterr()
    assert main(["--pyproject", str(project), "--check"]) == 1
    assert capsys.readouterr().out == "left over: old is no document's package\n"


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Package:
    overlays = next(source.generator_overlays for source in SOURCES if source.name == "sie")
    return Package(tmp_path_factory.mktemp("echo"), real_document(), overlays=overlays)


@pytest.mark.parametrize(
    ("path", "operation", "arguments"),
    [
        ("/v1/models", "get_models", []),
        ("/v1/models/m", "get_model", ["m"]),
        ("/v1/models/org/m", "get_model", ["org/m"]),
        ("/v1/models/org%2Fm", "get_model", ["org/m"]),
        ("/v1/configs/models/org/m", "get_model_config_or_status", ["org/m"]),
        ("/v1/configs/models/org/m/status", "get_model_config_status", ["org/m"]),
        ("/v1/configs/models/org%2Fm/status", "get_model_config_status", ["org/m"]),
        ("/v1/configs/models/status", "get_model_config_or_status", ["status"]),
        ("/v1/configs/models/status/status", "get_model_config_status", ["status"]),
        ("/v1/pools/p", "get_pool", ["p"]),
    ],
)
def test_paths_reach_their_operation_with_their_parameters(
    echo: Package, path: str, operation: str, arguments: list[str]
) -> None:
    with echo.client(lambda tag: Echo()) as client:
        answer = client.get(path)
    assert answer.json() == {"operation": operation, "arguments": arguments}


async def test_a_path_is_decoded_once(echo: Package) -> None:
    with echo.client(lambda tag: Echo()) as client:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(client.app), base_url="http://test") as direct:
            answer = await direct.get("/v1/models/org%252Fm")
    assert answer.json()["arguments"] == ["org%2Fm"]


def test_options_lists_every_method_of_a_path(echo: Package) -> None:
    with echo.client() as client:
        assert client.options("/v1/pools").headers["allow"] == "GET, POST, OPTIONS"
        assert client.options("/v1/pools/p").headers["allow"] == "DELETE, GET, OPTIONS"
        assert client.options("/v1/encode/org/m").headers["allow"] == "POST, OPTIONS"


def test_a_plain_request_to_a_websocket_is_told_to_upgrade(echo: Package) -> None:
    with echo.client() as client:
        answer = client.get("/ws/cluster-status")
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")


def test_an_operation_without_a_handler_answers_501_in_its_envelope(echo: Package) -> None:
    with echo.client() as client:
        assert client.post("/v1/chat/completions", json={}).json()["error"]["code"] == "not_implemented"
        assert set(client.post("/v1/rerank", json={}).json()) == {"message"}
        answer = client.get("/v1/pools")
    assert answer.status_code == 501
    assert set(answer.json()) == {"detail"}
