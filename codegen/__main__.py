"""`python -m codegen`: generate every document's package, check for drift, or compare two documents."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from codegen import config, diff, generate
from codegen.document import Document, overlaid, read
from codegen.faults import DocumentError

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status: 0 done, 1 drift or a document with faults."""
    parser = argparse.ArgumentParser(prog="python -m codegen", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 naming what differs or is left over"
    )
    parser.add_argument("--diff", nargs=2, type=Path, metavar=("OLD", "NEW"), help="what NEW changes for handlers")
    parser.add_argument("--overlaid", metavar="NAME", help="with --diff: apply the overlays of this document to both")
    parser.add_argument("--pyproject", type=Path, default=PYPROJECT, help="file with the table of documents")
    options = parser.parse_args(arguments)
    sources = config.load(options.pyproject)
    if options.diff:
        overlays = [path for source in sources if source.name == options.overlaid for path in source.all_overlays]
        print(_compare(options.diff[0], options.diff[1], overlays), end="")
        return 0
    status = 0
    for source in sources:
        try:
            changed = generate.drift(source) if options.check else generate.write(source)
        except DocumentError as error:
            status = 1
            print(f"{source.name}: {len(error.faults)} fault(s) in {source.document.name}\n{error}", file=sys.stderr)
            continue
        for name in changed:
            print(f"{'differs' if options.check else 'wrote'}: {source.output.name}/{name}")
        if options.check and changed:
            status = 1
    for folder in generate.left_over(sources, options.pyproject.parent) if options.check else ():
        print(f"left over: {folder.name} is no document's package")
        status = 1
    return status


def _compare(old: Path, new: Path, overlays: list[Path]) -> str:
    """Text of a comparison; overlays that do not fit the new document any more are named first."""
    stale: list[str] = []
    before = Document(overlaid(read(old), overlays, on_stale=lambda text: None))
    after = Document(overlaid(read(new), overlays, on_stale=stale.append))
    unfit = "".join(f"overlay does not fit {new.name}: {text}: selects nothing\n" for text in stale)
    return unfit + diff.report(diff.compare(before, after))


if __name__ == "__main__":
    sys.exit(main())
