"""Documents become texts: HTML, DOCX, PDF and plain ones, and what is none of them."""

from __future__ import annotations

import io
from typing import Any

import pytest

from engines.adapters.extraction import documents
from engines.protocol.work import ExtractWork, Item
from tests.engines.extraction.helpers import SPACY, OpenEngine, exact

HTML = b"""<!DOCTYPE html><html><head><title>Title</title><style>p {}</style></head><body>
<h1>Caf&eacute; &amp; Bar</h1><p>Barack   Obama was <b>bo</b>rn in
Hawaii.</p><script>var x = "Paris";</script><ul><li>one</li><li>two</li></ul><pre>x = 1
y = 2</pre></body></html>"""


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
    document: Any = pytest.importorskip("docx").Document()
    document.add_paragraph("Barack Obama was born in Hawaii.")
    table = document.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    document.add_paragraph("The end.")
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["html", "HTML", "text/html; charset=utf-8", ".htm", None])
def test_html_gives_its_visible_text_in_lines(form: str | None) -> None:
    pytest.importorskip("bs4")
    assert documents.read(HTML, form).splitlines() == [
        "Café & Bar",
        "Barack Obama was born in Hawaii.",
        "one",
        "two",
        "x = 1",
        "y = 2",
    ]


@pytest.mark.parametrize("form", ["docx", None])
def test_docx_gives_paragraphs_and_tables_in_order(form: str | None) -> None:
    assert documents.read(docx(), form) == "Barack Obama was born in Hawaii.\nleft\tright\nThe end."


@pytest.mark.parametrize("form", ["pdf", "application/pdf", None])
def test_pdf_gives_its_text(form: str | None) -> None:
    pytest.importorskip("pypdf")
    lines = documents.read(pdf("Barack Obama was born in Hawaii.", "He lives in Chicago."), form).splitlines()
    assert [line.strip() for line in lines] == ["Barack Obama was born in Hawaii.", "He lives in Chicago."]


@pytest.mark.parametrize("form", ["txt", "text/plain", "md", None])
def test_plain_text_is_itself(form: str | None) -> None:
    assert documents.read("Gr\u00fc\u00dfe \U0001f469".encode(), form) == "Gr\u00fc\u00dfe \U0001f469"


UNREADABLE: dict[str, tuple[bytes, str | None, str]] = {
    "another format": (b"x", "xlsx", "format 'xlsx' cannot be read"),
    "no UTF-8": (b"\xff\xfe\x00", "txt", "no UTF-8"),
    "no DOCX": (b"PK\x03\x04 and nothing", "docx", "docx"),
    "no PDF": (b"%PDF-1.4 and nothing", "pdf", "pdf"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_an_error_of_its_item(case: str) -> None:
    data, form, message = UNREADABLE[case]
    found = documents.text_of(Item(document=data, document_format=form))
    assert not isinstance(found, str)
    assert found.code == "INVALID_INPUT"
    assert message in found.message


def test_an_item_has_one_text() -> None:
    assert documents.text_of(Item(text="a")) == "a"
    for item in (Item(), Item(text="a", document=b"b")):
        assert not isinstance(documents.text_of(item), str)


def test_a_document_that_unfolds_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LARGEST_TEXT", 10)
    found = documents.text_of(Item(document=b"a" * 11))
    assert not isinstance(found, str)
    assert "11 characters" in found.message


async def test_the_text_of_a_document_comes_back_with_its_entities(open_engine: OpenEngine) -> None:
    text = "\U0001f469\u200d\U0001f467 Barack Obama was born in Hawaii."
    items = [Item(document=text.encode()), Item(document=b"\xff", document_format="txt"), Item(text=text)]
    async with open_engine("spacy", SPACY) as run:
        results = (await run(ExtractWork(request_id="r", model="tested", items=items))).output.items
    assert results[0]["data"] == {"text": text}
    assert exact(text, results[0])
    assert results[0]["entities"] == results[2]["entities"] != []
    assert results[1]["error"]["code"] == "INVALID_INPUT"
    assert "data" not in results[2]
