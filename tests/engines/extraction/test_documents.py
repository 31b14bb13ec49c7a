"""Documents become texts: HTML, DOCX, PDF and plain ones, and what is none of them or harms whoever reads it."""

from __future__ import annotations

import asyncio
import io
import os
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import psutil
import pytest

from engines.adapters.documents import child, formats
from engines.adapters.documents import reader as reading
from engines.adapters.documents.reader import Reader
from engines.protocol.catalog import Profile
from engines.protocol.events import ItemError
from engines.protocol.work import ExtractWork, Item
from tests.engines.extraction.helpers import SPACY, OpenEngine, docx, exact, pages, pdf, zip_bomb

HTML = b"""<!DOCTYPE html><html><head><title>Title</title><style>p {}</style></head><body>
<h1>Caf&eacute; &amp; Bar</h1><p>Barack   Obama was <b>bo</b>rn in
Hawaii.</p><script>var x = "Paris";</script><ul><li>one</li><li>two</li></ul><pre>x = 1
y = 2</pre></body></html>"""


@pytest.mark.parametrize("form", ["html", "HTML", "text/html; charset=utf-8", ".htm", None])
def test_html_gives_its_visible_text_in_lines(form: str | None) -> None:
    assert formats.read(HTML, form).splitlines() == [
        "Café & Bar",
        "Barack Obama was born in Hawaii.",
        "one",
        "two",
        "x = 1",
        "y = 2",
    ]


@pytest.mark.parametrize("form", ["docx", None])
def test_docx_gives_paragraphs_and_tables_in_order(form: str | None) -> None:
    assert formats.read(docx(), form) == "Barack Obama was born in Hawaii.\nleft\tright\nThe end."


@pytest.mark.parametrize("form", ["pdf", "application/pdf", None])
def test_pdf_gives_its_text(form: str | None) -> None:
    lines = formats.read(pdf("Barack Obama was born in Hawaii.", "He lives in Chicago."), form).splitlines()
    assert [line.strip() for line in lines] == ["Barack Obama was born in Hawaii.", "He lives in Chicago."]


@pytest.mark.parametrize("form", ["txt", "text/plain", "md", None])
def test_plain_text_is_itself(form: str | None) -> None:
    assert formats.read("Gr\u00fc\u00dfe \U0001f469".encode(), form) == "Gr\u00fc\u00dfe \U0001f469"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("<p>Gr\u00fc\u00dfe \U0001f469</p>".encode(), "Gr\u00fc\u00dfe \U0001f469"),
        ("<p>Gr\u00fc\u00dfe</p>".encode("utf-16"), "Gr\u00fc\u00dfe"),
        ("<meta charset=windows-1251><p>\u041f\u0440\u0438</p>".encode("cp1251"), "\u041f\u0440\u0438"),
        (b"<p>\x93Gr\xfc\xdfe\x94</p>", "\u201cGr\u00fc\u00dfe\u201d"),
    ],
    ids=["UTF-8", "UTF-16", "declared", "neither"],
)
def test_html_is_decoded_as_browsers_do(data: bytes, text: str) -> None:
    assert formats.read(data, "html") == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("a<!-- b -->c", "ac"),
        ("a<script>b</script>c", "ac"),
        ("<p>a<span hidden>b</span>c<br>d", "abc\nd"),
        ("<ul><li>a<li>b</ul>c", "a\nb\nc"),
        ("<script>alert(1)</script>", ""),
        ("<svg onload=alert(1)><style>x</style>a</svg>", "a"),
        ("", ""),
    ],
)
def test_html_without_what_nobody_sees(markup: str, text: str) -> None:
    assert formats.read(markup.encode(), "html") == text


def test_a_large_html_page_costs_what_its_size_says() -> None:
    row = "<div><p>Barack <b>Obama</b> was born in Hawaii.</p></div>\n"  # quadratic work would not end here
    assert formats.read((row * 60_000).encode(), "html") == "\n".join(["Barack Obama was born in Hawaii."] * 60_000)


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    made = Reader(profile())
    yield made
    await made.close()


def profile(**loadtime: Any) -> Profile:
    return Profile(name="default", engine="spacy", adapter_path="tests", source=SPACY, loadtime=loadtime)


async def message(reader: Reader, data: bytes, form: str | None = None) -> str:
    """Why a document cannot be read."""
    found = await reader.text_of(Item(document=data, document_format=form))
    assert isinstance(found, ItemError)
    assert found.code == "INVALID_INPUT"
    return found.message


def lying_bomb() -> bytes:
    """The same, and the archive's directory says that it is small."""
    bomb = zip_bomb()
    return bomb.replace((200_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little"))


def entities_without_end() -> bytes:
    """A DOCX file whose XML declares entities of entities of entities."""
    levels = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 20}">' for i in range(1, 12))
    xml = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY e0 "ha">{levels}]><d>&e11;</d>'
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(docx())) as whole, zipfile.ZipFile(buffer, "w") as bomb:
        for name in whole.namelist():
            bomb.writestr(name, xml.encode() if name == "word/document.xml" else whole.read(name))
    return buffer.getvalue()


def bomb_in_a_pdf() -> bytes:
    """A PDF of some hundred kilobytes whose page unfolds to 300 MB."""
    stream = zlib.compress(b" " * 300_000_000)
    whole = pdf("x").decode("latin-1")
    start, end = whole.index("<< /Length"), whole.index("endstream")
    head = f"<< /Length {len(stream)} /Filter /FlateDecode >>\nstream\n".encode()
    return whole[:start].encode("latin-1") + head + stream + b"\n" + whole[end:].encode("latin-1")


def zip_of_text() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "a")
    return buffer.getvalue()


HOSTILE: dict[str, tuple[Callable[[], bytes], str | None, str]] = {
    "another format": (lambda: b"x", "xlsx", "format 'xlsx' cannot be read"),
    "no UTF-8": (lambda: b"\xff\xfe\x00", "txt", "no UTF-8"),
    "a picture": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(64), None, "no UTF-8"),
    "no DOCX": (lambda: b"PK\x03\x04 and nothing", "docx", "no readable docx"),
    "a PDF that is said to be DOCX": (lambda: pages(1), "docx", "no readable docx"),
    "a DOCX that is said to be PDF": (docx, "pdf", "no readable pdf"),
    "another archive": (zip_of_text, None, "no readable docx"),
    "no PDF": (lambda: b"%PDF-1.4 and nothing", "pdf", "no readable pdf"),
    "half a PDF": (lambda: pages(3)[:300], "pdf", "no readable pdf"),
    "an encrypted PDF": (lambda: pages(1, "secret", "RC4-128"), None, "the PDF is encrypted"),
    "a bomb in a PDF": (bomb_in_a_pdf, None, "no readable pdf"),
    "a zip bomb": (zip_bomb, None, "unfolds to too many bytes"),
    "a zip bomb that lies": (lying_bomb, None, "no readable docx"),
    "entities without end": (entities_without_end, None, "no readable docx"),
    "more text than is read": (lambda: b"a" * (formats.LARGEST_TEXT + 1), "txt", "at most 4000000 are read"),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_what_cannot_be_read_is_an_error_of_its_item(reader: Reader, case: str) -> None:
    make, form, wanted = HOSTILE[case]
    assert wanted in await message(reader, make(), form)
    assert await reader.text_of(Item(document=b"still here")) == "still here"


async def test_a_pdf_that_only_its_owner_may_change_is_read(reader: Reader) -> None:
    assert await reader.text_of(Item(document=pages(1, "", "RC4-128"))) == "Barack Obama was born in Hawaii."


async def test_a_pdf_of_a_thousand_pages_is_read_or_refused_by_the_profile(reader: Reader) -> None:
    many = pages(1000)
    text = await reader.text_of(Item(document=many))
    assert text == "\n\n".join(["Barack Obama was born in Hawaii."] * 1000)
    short = Reader(profile(max_num_pages=100, max_file_size_bytes=len(many)))
    assert await message(short, many) == "the PDF has 1000 pages; at most 100 are read"
    assert "bytes; at most" in await message(short, many + b"\n")
    await short.close()


async def test_a_document_that_takes_too_long_ends_with_its_process() -> None:
    hasty = Reader(profile(document_timeout_s=0.3))
    assert await message(hasty, pages(1000)) == "reading the document takes longer than 0.3 s"
    assert await hasty.text_of(Item(document=b"still here")) == "still here"
    await hasty.close()


def test_a_document_that_needs_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_arguments: object) -> str:
        return " " * (1 << 60)

    monkeypatch.setattr(child, "read", read)
    reply = child.answer(child.Request(b"", None, 1.0, None))
    assert (reply.text, reply.error) == (None, "reading the document needs too much memory")
    assert reply.memory > 0


def processes() -> list[psutil.Process]:
    """The processes that read documents for this one."""
    return [process for process in psutil.Process().children() if child.__name__ in process.cmdline()]


async def test_a_process_is_kept_for_the_next_document_and_ends_with_the_reader(reader: Reader) -> None:
    await asyncio.gather(*(reader.text_of(Item(document=b"a")) for _ in range(20)))
    kept = processes()
    assert 1 <= len(kept) <= len(os.sched_getaffinity(0))
    assert {process.rlimit(psutil.RLIMIT_AS) for process in kept} == {(child.MEMORY, child.MEMORY)}
    await reader.close()
    assert not any(process.is_running() for process in kept)


async def test_idle_processes_go(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "IDLE_S", 0.2)
    assert await reader.text_of(Item(document=b"a")) == "a"
    (process,) = processes()
    await asyncio.to_thread(process.wait, 10)
    assert await reader.text_of(Item(document=b"b")) == "b"


async def test_cancelling_ends_the_reading(reader: Reader) -> None:
    waiting = asyncio.create_task(reader.text_of(Item(document=pages(5000))))
    while not processes():
        assert not waiting.done()
        await asyncio.sleep(0.01)
    (process,) = processes()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.to_thread(process.wait, 10)


async def test_an_item_has_one_text(reader: Reader) -> None:
    assert await reader.text_of(Item(text="a")) == "a"
    for item in (Item(), Item(text="a", document=b"b")):
        assert isinstance(await reader.text_of(item), ItemError)


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
