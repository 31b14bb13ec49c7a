"""A chat template from a caller: rendered in a sandbox, by a process of its own that ends in time.

Jinja's sandbox keeps a template from Python's insides, not from loops without end: the process has limits on time and
memory, and is killed when it does not keep them. It imports nothing of vLLM.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_SECONDS = 5.0
CPU_SECONDS = 2
MAX_MEMORY = 512 * 1024 * 1024
MAX_CHARACTERS = 1024 * 1024
AT_ONCE = 4
_slots = asyncio.Semaphore(AT_ONCE)


class TemplateRefused(ValueError):
    """The template cannot be used. The message says why."""


async def render(template: str, variables: dict[str, Any]) -> str:
    """The text that ``template`` makes of ``variables`` (values of JSON), at most ``MAX_CHARACTERS`` of it.

    Raises:
        TemplateRefused: it does not compile, fails, reaches for what it may not, or costs too much.
    """
    request = json.dumps({"template": template, "variables": variables}).encode()
    async with _slots:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH")},
        )
        try:
            async with asyncio.timeout(MAX_SECONDS):
                out, _ = await child.communicate(request)
        except TimeoutError:
            raise TemplateRefused(f"the template takes longer than {MAX_SECONDS:.0f} seconds") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
    if child.returncode != 0:
        raise TemplateRefused("the template needs more time or memory than it may have")
    answer = json.loads(out)
    if "error" in answer:
        raise TemplateRefused(answer["error"])
    text = str(answer["text"])
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise TemplateRefused("the template writes half a character")
    return text


def rendered(template: str, variables: dict[str, Any]) -> str:
    """Render here and now; the filters and functions are those of ``transformers``."""

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
        return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    pieces, length = [], 0
    for piece in environment.from_string(template).generate(**variables):
        length += len(piece)
        if length > MAX_CHARACTERS:
            raise TemplateRefused(f"the template writes more than {MAX_CHARACTERS} characters")
        pieces.append(piece)
    return "".join(pieces)


def _serve() -> None:
    """The process: one request on standard input, one answer on standard output."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    request = json.load(sys.stdin)
    try:
        answer = {"text": rendered(request["template"], request["variables"])}
    except MemoryError:
        answer = {"error": "the template needs more memory than it may have"}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:500]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _serve()
