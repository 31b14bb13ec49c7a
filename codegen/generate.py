"""One document -> one package: load and overlay, check, lower, render, verify."""

from __future__ import annotations

from codegen import checks, lower, render
from codegen.config import Source
from codegen.document import Document, overlaid, read
from codegen.lowering import Lowering
from codegen.verify import verify


def generate(source: Source) -> dict[str, str]:
    """Return {file name: text} of the package.

    Raises:
        DocumentError: the document or an overlay has faults; all of them are named.
    """
    effective = overlaid(read(source.document), list(source.overlays))
    document = Document(overlaid(effective, list(source.generator_overlays)))
    checks.check(document)
    lowering = Lowering(document)
    service = lower.service(document, lowering)
    files = render.files(service, lowering, effective, source.package)
    verify(files["models.py"], service)
    return files


def drift(source: Source) -> list[str]:
    """Names of files that differ from what the document generates, missing and superfluous ones too."""
    wanted = generate(source)
    found = {
        path.name: path.read_text(encoding="utf-8")
        for path in source.output.glob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def write(source: Source) -> list[str]:
    """Bring the package up to date; return the names of the files that changed."""
    wanted = generate(source)
    source.output.mkdir(parents=True, exist_ok=True)
    changed = []
    for path in source.output.glob("*"):
        if path.is_file() and path.name not in wanted:
            path.unlink()
            changed.append(path.name)
    for name, text in wanted.items():
        path = source.output / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(name)
    return sorted(changed)
