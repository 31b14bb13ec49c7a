"""One document -> one package: load and overlay, check, lower, render, verify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from codegen import checks, lower, render
from codegen.config import Source
from codegen.document import SCHEMAS, Document, overlaid, pointer, read
from codegen.faults import DocumentError, Fault
from codegen.ir import Service
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
    if faults := list(_relaxed(Document(effective), document, service)):
        raise DocumentError(faults)
    files = render.files(service, lowering, effective, source.package)
    verify(files["models.py"], service)
    return files


def _relaxed(served: Document, generator: Document, service: Service) -> Iterator[Fault]:
    """A second pass goes by the served document, so a relaxation for the generator alone would have no effect."""
    for operation in service.operations:
        if operation.body is None or operation.body.schema is None:
            continue
        for name in sorted(generator.reached({"$ref": SCHEMAS + operation.body.schema})):
            if served.schemas.get(name) != generator.schemas[name]:
                reason = f"differs for the generator, but {operation.id} is validated against the served document"
                yield Fault(pointer("", "components", "schemas", name), reason)


def drift(source: Source) -> list[str]:
    """Names of files that differ from what the document generates, missing and superfluous ones too."""
    wanted = generate(source)
    found = {path.name: path.read_text(encoding="utf-8") for path in source.output.glob("*") if _kept(path)}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def left_over(sources: list[Source], root: Path) -> list[Path]:
    """Folders beside the packages that are no document's: of an entry that the table lost, or renamed."""
    outputs = [source.output for source in sources]
    used = {folder for output in outputs for folder in (output, *output.parents)}
    beside = {path for output in outputs if output.parent != root for path in output.parent.glob("*/")}
    return sorted(folder for folder in beside - used if any(_kept(path) for path in folder.rglob("*")))


def _kept(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc"


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
