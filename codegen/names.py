"""Python names for the names of a document."""

from __future__ import annotations

import keyword
import re


def class_name(name: str) -> str:
    """`chat.completion` -> `ChatCompletion`; a name that already is an identifier in capitals stays as it is."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    return "".join(word[0].upper() + word[1:] for word in words)


def is_class_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and name[:1].isupper()


def argument(name: str) -> str:
    """Name of a path parameter as a Python argument."""
    name = re.sub(r"\W", "_", name)
    return f"{name}_" if keyword.iskeyword(name) or name in ("context", "body", "self", "request", "socket") else name


def identifier(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)
