"""JSON Schema patterns (ECMA-262) as Python patterns that match the same strings."""

from __future__ import annotations

import re

# ECMA-262 WhiteSpace and LineTerminator; Python's \s differs on U+FEFF, U+001C..1F and U+0085.
_SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACE}
_NOT_LINE_END = r"[^\n\r\u2028\u2029]"
_UNSUPPORTED = re.compile(r"\\[pPkcBb]|\(\?<(?![=!])|\\u\{")


def python_pattern(pattern: str) -> str | None:
    """Return a pattern for `re.search`, or None if there is none that matches the same strings."""
    if _UNSUPPORTED.search(pattern):
        return None
    if pattern.startswith(".*") and pattern.endswith(".*") and "|" not in pattern:
        pattern = pattern[2:-2]  # unanchored anyway
    out: list[str] = []
    inside = False
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\" and position + 1 < len(pattern):
            token = _escape(pattern[position + 1], inside)
            if token is None:
                return None
            out.append(token)
            position += 2
            continue
        if char == "[" and not inside:
            if pattern.startswith(("[]", "[^]"), position):
                return None  # nothing and anything, to ECMA-262 alone
            inside = True
        elif char == "]":
            inside = False
        elif char == "[":
            char = r"\["
        elif char == "$" and not inside:
            char = r"\Z"
        elif char == "." and not inside:
            char = _NOT_LINE_END
        out.append(char)
        position += 1
    text = "".join(out)
    try:
        re.compile(text)
    except re.error:
        return None
    return text


def _escape(letter: str, inside: bool) -> str | None:
    """Translate one escape; None where a negated class stands inside a class."""
    if letter in _CLASSES:
        return _CLASSES[letter] if inside else f"[{_CLASSES[letter]}]"
    if letter.lower() in _CLASSES:
        return None if inside else f"[^{_CLASSES[letter.lower()]}]"
    return f"\\{letter}"
