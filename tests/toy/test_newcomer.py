"""``docs/your-own-spec.md``, followed word by word in an empty folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.live import free_port

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "your-own-spec.md").read_text(encoding="utf-8")
START_S = 60.0


def blocks(language: str) -> list[str]:
    """The page's blocks in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the reader has after step 4."""
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / "openapi").mkdir()
    (document,), (entry,), (application,) = blocks("yaml"), blocks("toml"), blocks("python")
    (folder / "openapi" / "shelf.yaml").write_text(document)
    (folder / "pyproject.toml").write_text(entry)
    (folder / "shelf_app.py").write_text(application)
    assert "python -m codegen\n" in blocks("sh")
    for arguments in ([], ["--check"]):
        command = [sys.executable, "-m", "codegen", "--pyproject", str(folder / "pyproject.toml"), *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    names = {path.name for path in (folder / "shelf_api").iterdir()}
    assert {"models.py", "operations.py", "interfaces.py", "routes.py", "openapi.json"} <= names
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """Where the server of step 5 listens."""
    (serve,) = [block for block in blocks("sh") if block.startswith("litestar")]
    program, *arguments = shlex.split(serve)
    port = free_port()
    command = [str(Path(sys.executable).parent / program), *arguments, "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            until = time.monotonic() + START_S
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/")
                    break
                except httpx.TransportError:
                    assert process.poll() is None and time.monotonic() < until
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_the_pages_request_gets_the_pages_answer(url: str) -> None:
    (request,) = [block for block in blocks("sh") if block.startswith("curl")]
    words = shlex.split(request)
    target, body = words[words.index("PUT") + 1], words[words.index("-d") + 1]
    answer = httpx.put(
        url + target.removeprefix("localhost:8000"), content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.json() == json.loads(blocks("json")[0])


def test_what_is_right_is_answered_and_the_own_rule_is_kept(url: str) -> None:
    book = {"title": "Emma", "pages": 474}
    kept = httpx.put(f"{url}/books/9780141439518", json=book)
    assert (kept.status_code, kept.json()) == (200, {"isbn": "9780141439518", "book": book})
    refused = httpx.put(f"{url}/books/9780141439518", json={"title": "9780141439518"})
    assert (refused.status_code, refused.json()["field"]) == (422, "title")
    assert httpx.put(f"{url}/books/short", json=book).status_code == 422
