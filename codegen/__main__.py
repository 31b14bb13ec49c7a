"""`python -m codegen`: generate every document's package, check for drift, or compare two documents."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from codegen import config, generate
from codegen.faults import DocumentError

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status: 0 done, 1 drift or a document with faults."""
    parser = argparse.ArgumentParser(prog="python -m codegen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 naming the files that differ")
    parser.add_argument("--pyproject", type=Path, default=PYPROJECT, help="file with the table of documents")
    options = parser.parse_args(arguments)
    status = 0
    for source in config.load(options.pyproject):
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
    return status


if __name__ == "__main__":
    sys.exit(main())
