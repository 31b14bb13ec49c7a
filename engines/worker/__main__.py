"""``python -m engines.worker``."""

from __future__ import annotations

import sys

from .main import options, serve

if __name__ == "__main__":
    sys.exit(serve(options()))
