"""The text of a document: what is visible of a PDF, HTML or DOCX file, or the plain text that it is."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable

LARGEST_TEXT = 4_000_000
"""Characters of text that one document may unfold to."""

LARGEST_PART = 64 * 1024 * 1024
"""Bytes that the files in a DOCX archive may unfold to."""


class Unreadable(ValueError):
    """The document cannot be turned into text."""


def read(data: bytes, form: str | None, most_pages: int | None = None) -> str:
    """Text of a document. ``form`` is ``pdf``, ``html``, ``docx``, ``txt`` or ``md``, or their media type; when absent
    the bytes tell. ``most_pages`` is a limit for PDF files.

    Raises:
        Unreadable: another form, bytes that are not what they claim to be, more pages or text than allowed.
        MemoryError: the document needs more memory than this process may use.
    """
    name = _FORMS.get(form.strip().lower().removeprefix(".").partition(";")[0].strip()) if form else _guessed(data)
    if name is None:
        raise Unreadable(f"documents of format {form!r} cannot be read; known are {', '.join(_READERS)}")
    try:
        text = _pdf(data, most_pages) if name == "pdf" else _READERS[name](data)
    except (Unreadable, MemoryError):
        raise
    except ImportError as error:
        raise Unreadable(
            f"documents of format {name!r} need the package {error.name!r}, which is not installed"
        ) from None
    except Exception as error:
        # the libraries have no common class for the many ways in which a file can be broken
        raise Unreadable(f"the document is no readable {name}: {type(error).__name__}: {error}") from None
    _check_size(len(text))
    return text


def _check_size(characters: int) -> None:
    if characters > LARGEST_TEXT:
        raise Unreadable(f"the document has {characters} characters or more; at most {LARGEST_TEXT} are read")


def _pdf(data: bytes, most_pages: int | None = None) -> str:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    reader = PdfReader(io.BytesIO(data))
    try:
        locked = reader.is_encrypted and not reader.decrypt("")
    except DependencyError:  # a cipher that needs another library
        locked = True
    if locked:
        raise Unreadable("the PDF is encrypted")
    if most_pages is not None and len(reader.pages) > most_pages:
        raise Unreadable(f"the PDF has {len(reader.pages)} pages; at most {most_pages} are read")
    pages: list[str] = []
    characters = 0
    for page in reader.pages:
        pages.append(page.extract_text())
        characters += len(pages[-1]) + 2
        _check_size(characters)
    return "\n\n".join(pages)


def _html(data: bytes) -> str:
    from lxml import etree

    parser = etree.HTMLParser(encoding=_encoding(data), no_network=True, huge_tree=True)
    root = etree.fromstring(data, parser)
    if root is None:
        return ""
    parts: list[str] = []
    preformatted = 0
    walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
    for event, element in walk:
        tag = element.tag
        if event == "start":
            if tag in _UNSEEN:
                walk.skip_subtree()
                continue
            # a block begins and ends a line; what stands within a line stays together
            if tag in _BLOCKS:
                parts.append("\n")
            preformatted += tag == "pre"
            parts.append(_shown(element.text, preformatted))
            continue
        if event == "end" and tag not in _UNSEEN:
            preformatted -= tag == "pre"
            if tag in _BLOCKS:
                parts.append("\n")
        parts.append(_shown(element.tail, preformatted))
    lines = (" ".join(line.split()) for line in "".join(parts).splitlines())
    return "\n".join(line for line in lines if line)


def _encoding(data: bytes) -> str | None:
    """UTF-8 where the bytes are, otherwise what they declare (``None``), otherwise what browsers assume."""
    try:
        data.decode()
    except UnicodeDecodeError:
        declared = data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"charset" in data[:1024].lower()
        return None if declared else "windows-1252"
    return "utf-8"


def _shown(text: str | None, preformatted: int) -> str:
    """A line's end in the source is a space, but where the author shaped the text."""
    if not text or preformatted:
        return text or ""
    return re.sub(r"\s+", " ", text)


def _docx(data: bytes) -> str:
    from docx import Document
    from docx.table import Table

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > LARGEST_PART:
            raise Unreadable("the document unfolds to too many bytes")
    lines: list[str] = []
    for block in Document(io.BytesIO(data)).iter_inner_content():
        if isinstance(block, Table):
            lines += ["\t".join(cell.text for cell in row.cells) for row in block.rows]
        else:
            lines.append(block.text)
    return "\n".join(lines)


def _plain(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("the document is no UTF-8 text") from None


def _guessed(data: bytes) -> str:
    start = data[:1024].lstrip().lower()
    if start.startswith(b"%pdf-"):
        return "pdf"
    if data.startswith(b"PK\x03\x04"):
        return "docx"
    if start.startswith((b"<!doctype html", b"<html")):
        return "html"
    return "txt"


_READERS: dict[str, Callable[[bytes], str]] = {
    "pdf": _pdf,
    "html": _html,
    "docx": _docx,
    "txt": _plain,
    "md": _plain,
}
_FORMS = {
    **{name: name for name in _READERS},
    "htm": "html",
    "text": "txt",
    "markdown": "md",
    "application/pdf": "pdf",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "text/plain": "txt",
    "text/markdown": "md",
}
_UNSEEN = frozenset(("script", "style", "noscript", "template", "head"))
# fmt: off
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption", "figure", "footer",
    "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section",
    "table", "td", "th", "tr", "ul",
))
# fmt: on
