"""The text of an item, taken out of its document where it has one: PDF, HTML, DOCX or plain text."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

from ...protocol.events import ItemError
from ...protocol.work import Item

LARGEST_TEXT = 4_000_000
"""Characters of text that one document may unfold to."""

LARGEST_PART = 64 * 1024 * 1024
"""Bytes that the XML of a DOCX file may unfold to."""


class Unreadable(ValueError):
    """The document cannot be turned into text."""


def text_of(item: Item) -> str | ItemError:
    """The text that an item stands for. Blocks while a document is read."""
    if item.document is None:
        if item.text is None:
            return ItemError("INVALID_INPUT", "the item has no text")
        return item.text
    if item.text is not None:
        return ItemError("INVALID_INPUT", "the item has a text and a document; give one of them")
    try:
        text = read(item.document, item.document_format)
    except Unreadable as error:
        return ItemError("INVALID_INPUT", str(error))
    if len(text) > LARGEST_TEXT:
        return ItemError("INVALID_INPUT", f"the document has {len(text)} characters, more than {LARGEST_TEXT}")
    return text


def read(data: bytes, form: str | None) -> str:
    """Text of a document. ``form`` is ``pdf``, ``html``, ``docx``, ``txt`` or ``md``, or their media type; when absent
    the bytes tell.

    Raises:
        Unreadable: another form, or bytes that are not what they claim to be.
    """
    name = _FORMS.get(form.strip().lower().removeprefix(".").partition(";")[0]) if form else _guessed(data)
    if name is None:
        raise Unreadable(f"documents of format {form!r} cannot be read; known are {', '.join(_READERS)}")
    try:
        return _READERS[name](data)
    except (Unreadable, MemoryError):
        raise
    except ImportError as error:
        raise Unreadable(
            f"documents of format {name!r} need the package {error.name!r}, which is not installed"
        ) from None
    except Exception as error:
        # the libraries have no common class for the many ways in which a file can be broken
        raise Unreadable(f"the document is no readable {name}: {type(error).__name__}: {error}") from None


def _pdf(data: bytes) -> str:
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("the PDF is encrypted")
    return "\n\n".join(page.extract_text() for page in reader.pages)


def _html(data: bytes) -> str:
    from bs4 import BeautifulSoup, NavigableString

    soup = BeautifulSoup(data, "html.parser")
    for element in soup(["script", "style", "noscript", "template", "head"]):
        element.decompose()
    for string in soup.find_all(string=True):
        # a line's end in the source is a space, but where the author shaped the text
        if type(string) is NavigableString and string.find_parent("pre") is None:
            string.replace_with(" ".join(f"-{string}-".split())[1:-1])
    for element in soup.find_all(_BLOCKS):
        # a block begins and ends a line; what stands within a line stays together
        element.insert_before("\n")
        element.insert_after("\n")
    lines = (" ".join(line.split()) for line in soup.get_text().splitlines())
    return "\n".join(line for line in lines if line)


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
# fmt: off
_BLOCKS = (
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption", "figure", "footer",
    "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section",
    "table", "td", "th", "tr", "ul",
)
# fmt: on
