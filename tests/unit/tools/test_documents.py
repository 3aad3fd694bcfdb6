"""Documents are parsed in a bounded process, and what goes wrong there is one ToolError."""

import asyncio
import io
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from homarus.core import worker_process
from homarus.core.errors import ToolError
from homarus.tools.documents import extraction
from homarus.tools.documents.extraction import extract_html, extract_pdf
from tests.unit.tools.document_builders import make_pdf, make_scan, write_objects
from tests.waiting import until

ARTICLE = b"""<html><head><title>Lobsters &amp; more</title></head><body>
<nav><a href="/x">Home</a></nav><article><h1>The lobster</h1>
<p>A lobster is a <a href="/animal?id=1">crustacean</a> with <b>ten</b> legs. It lives in the sea,
where it eats what it finds on the ground, and grows all of its life.</p>
<h2>Sizes</h2><table><tr><th>name</th><th>cm</th></tr><tr><td>European</td><td>60</td></tr></table>
<ul><li>blue</li><li>red</li></ul></article><footer>Copyright</footer></body></html>"""
ENDLESS = b"<!--" * 400_000  # quadratic in the standard parser

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


async def test_page_with_an_article_becomes_markdown() -> None:
    page = await extract_html(ARTICLE, url="https://example.org/a/b")
    assert page.title == "Lobsters & more"
    assert "# The lobster" in page.text and "## Sizes" in page.text
    assert "[crustacean](https://example.org/animal?id=1)" in page.text
    assert "| European | 60 |" in page.text and "- blue" in page.text
    assert "Copyright" not in page.text and not page.is_truncated


async def test_page_as_text_has_no_markup() -> None:
    page = await extract_html(ARTICLE, url="https://example.org/", mode="text")
    assert "A lobster is a crustacean with ten legs." in page.text
    assert "](" not in page.text and "**" not in page.text


async def test_page_without_a_readable_part_gives_its_plain_text() -> None:
    content = b"<title>T</title><script>x()</script><div><form>Sign <a href=in>in</a></form></div>"
    page = await extract_html(content, url="https://example.org/")
    assert (page.title, page.text) == ("T", "Sign [in](https://example.org/in)")


@pytest.mark.parametrize(
    ("content", "charset"),
    [
        ("<p>Grüße €".encode(), ""),
        ("<p>Grüße €".encode("cp1252"), "ISO-8859-1"),
        ("<meta charset=windows-1252><p>Grüße €".encode("cp1252"), ""),
        ("<p>Grüße €".encode("utf-16"), "utf-8"),
        ("<p>Grüße €".encode("cp1252"), "no-such-charset"),
    ],
)
async def test_page_is_decoded_as_its_charset_says(content: bytes, charset: str) -> None:
    assert (await extract_html(content, charset=charset)).text == "Grüße €"


async def test_long_page_is_cut_and_says_so() -> None:
    page = await extract_html(b"<p>" + b"word " * 1000, max_chars=50)
    assert page.is_truncated and len(page.text) == 50


@pytest.mark.parametrize(
    "content",
    [b"<div>" * 30_000, b"<b><i>" * 20_000, b"<table><tr><td>" * 5_000, b"<" * 50_000],
)
async def test_hostile_page_still_gives_its_text(content: bytes) -> None:
    assert "hello" in (await extract_html(content + b" hello", max_chars=300_000)).text


async def test_pdf_gives_its_text_page_by_page() -> None:
    found = await extract_pdf(make_pdf(["First page", "Second (page)"], title="A title"))
    assert (found.title, found.page_count, found.is_truncated) == ("A title", 2, False)
    assert [(page.number, page.text) for page in found.pages] == [
        (1, "First page"),
        (2, "Second (page)"),
    ]


async def test_pdf_with_a_range_gives_those_pages() -> None:
    content = make_pdf([f"page {number}" for number in range(1, 8)])
    found = await extract_pdf(content, pages=(3, 4))
    assert [page.text for page in found.pages] == ["page 3", "page 4"] and found.page_count == 7
    assert (await extract_pdf(content, pages=(9, 12))).pages == ()


async def test_long_pdf_is_cut_and_says_so() -> None:
    found = await extract_pdf(make_pdf(["abcdefgh"] * 5), max_chars=20)
    assert [page.text for page in found.pages] == ["abcdefgh", "abcdefgh", "abcd"]
    assert found.is_truncated


async def test_scanned_page_gives_its_picture_scaled() -> None:
    found = await extract_pdf(make_scan(("red", "blue"), side_px=2_500), with_images=True)
    [(mime, data)] = found.pages[1].images
    with Image.open(io.BytesIO(data)) as picture:
        assert (mime, picture.format, picture.size) == ("image/jpeg", "JPEG", (1_600, 1_600))
        red, _, blue = picture.convert("RGB").getpixel((9, 9))  # type: ignore[misc] # it is RGB
    assert blue > 200 and red < 50
    assert (await extract_pdf(make_scan())).pages[0].images == ()


async def test_pdf_with_a_password_is_refused_with_the_reason() -> None:
    with pytest.raises(ToolError, match=r"a\.pdf is encrypted") as caught:
        await extract_pdf(make_pdf(["secret"], password="x"), name="a.pdf")
    assert "without a password" in caught.value.fix
    found = await extract_pdf(make_pdf(["open to all"], password=""))
    assert found.pages[0].text == "open to all"


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7\nnothing", make_pdf(["x"])[:200], b"\0" * 999])
async def test_damaged_pdf_is_one_clear_error(content: bytes) -> None:
    with pytest.raises(ToolError, match=r"the PDF cannot be read: it is damaged"):
        await extract_pdf(content)


async def test_pdf_page_tree_in_a_loop_ends() -> None:
    content = write_objects(
        [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 2>>"]
    )
    with pytest.raises(ToolError, match="cannot be read"):
        await extract_pdf(content)


async def test_pdf_stream_that_unpacks_to_gigabytes_is_bounded() -> None:
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(b"BT (x) Tj ET\n" * 1_000_000) for _ in range(20))
    bomb += packer.flush()
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<<>>/Contents 4 0 R>>"
    stream = b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(bomb), bomb)
    pages = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
    content = write_objects([b"<</Type/Catalog/Pages 2 0 R>>", pages, page, stream])
    found = await extract_pdf(content)
    assert [(page.number, page.text) for page in found.pages] == [(1, "")]


async def test_document_over_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "MAX_DOCUMENT_BYTES", 2_000_000)
    with pytest.raises(ToolError, match="the page has more than 2 MB"):
        await extract_html(b"x" * 2_000_001)


async def test_worker_over_its_processor_time_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "CPU_S", 1)
    with pytest.raises(ToolError, match="more than 1 s of processor time"):
        await extract_html(ENDLESS)


async def test_worker_over_its_wall_time_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "WALL_S", 0.01)
    before = _children(os.getpid())  # servers of other tests
    with pytest.raises(ToolError, match=r"longer than 0\.01 s"):
        await extract_html(ARTICLE)
    assert _children(os.getpid()) == before


async def test_worker_over_its_memory_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "MEMORY_BYTES", 110 << 20)  # the page is decoded, too
    with pytest.raises(ToolError, match=r"cannot be read"):
        await extract_html(b"<p>hello</p>" * 4_000_000)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", "crashed on it .signal 11."),
        ("raise SystemExit(3)", "it is damaged"),
        ("print('{}')", "its parser failed"),
        ("print('[' * 100_000)", "its parser failed"),
        ("import sys; sys.stdout.write('x' * 30_000_000)", "its text is too long"),
    ],
)
async def test_worker_that_misbehaves_is_one_error(
    program: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "fake_worker.py"
    fake.write_text(program)
    monkeypatch.setattr(worker_process, "_MAIN", fake)
    with pytest.raises(ToolError, match=reason):
        await extract_html(ARTICLE)


@needs_proc
async def test_cancelled_extraction_leaves_no_process() -> None:
    before = _children(os.getpid())  # servers of other tests
    async with asyncio.TaskGroup() as group:
        task = group.create_task(extract_html(ENDLESS))
        await until(lambda: len(_children(os.getpid())) > len(before))
        task.cancel()
    assert task.cancelled() and _children(os.getpid()) == before


@needs_proc
async def test_killed_gateway_leaves_no_worker() -> None:
    program = (
        "import asyncio\nfrom homarus.tools.documents.extraction import extract_html\n"
        f"asyncio.run(extract_html(b'<!--' * {len(ENDLESS)}))"
    )
    gateway = subprocess.Popen([sys.executable, "-c", program])
    try:
        await until(lambda: _children(gateway.pid))
        [worker] = _children(gateway.pid)
    finally:
        gateway.kill()
        gateway.wait()
    await until(lambda: _state(worker) in {"", "Z"})


def test_parsers_are_not_imported_in_the_gateway() -> None:
    program = (
        "import asyncio, sys\nfrom homarus.tools.documents.extraction import *\n"
        "asyncio.run(extract_html(b'<p>x'))\n"
        "print(sorted({'trafilatura', 'pypdf', 'lxml', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


async def test_worker_gets_nothing_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    fake = tmp_path / "fake_worker.py"
    page = "{'title': '', 'text': ','.join(sorted(os.environ)), 'is_truncated': False}"
    fake.write_text(
        f"import json, os, sys\nsys.stdin.read()\nprint(json.dumps({{'result': {page}}}))"
    )
    monkeypatch.setattr(worker_process, "_MAIN", fake)
    assert "OPENAI_API_KEY" not in (await extract_html(ARTICLE)).text


def _children(parent: int) -> list[int]:
    """Return the running child processes; none where there is no /proc."""
    found = list[int]()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != b"Z":
            found.append(int(entry.name))
    return found


def _state(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[0]
