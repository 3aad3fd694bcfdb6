"""`read`, `write` and `edit` as a model uses them."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolError
from homarus.core.message import Image, Text
from homarus.tools.builtin.files import edit, read, write
from homarus.tools.tool import Tool, ToolContext, ToolOutput

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"\0" * 20,
    "image/gif": b"GIF89a" + b"\0" * 20,
    "image/webp": b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 20,
}


async def use(made: Tool, root: Path, **args: Any) -> ToolOutput:
    ctx = ToolContext("agent:main:main", "main", root)
    result = await made(ctx, args)
    return result if isinstance(result, ToolOutput) else ToolOutput((Text(result),))


def text(result: ToolOutput) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


async def test_read_small_file_returns_all(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one\ntwo\n")
    assert text(await use(read, tmp_path, path="a.md")) == "one\ntwo"
    assert text(await use(read, tmp_path, file_path="a.md")) == "one\ntwo"


async def test_read_part_gives_next_offset(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{n}\n" for n in range(1, 11)))
    assert (
        text(await use(read, tmp_path, path="a", limit=2))
        == "1\n2\n\n[8 more lines in file. Use offset=3 to continue.]"
    )
    assert text(await use(read, tmp_path, path="a", offset=9)) == "9\n10"
    assert text(await use(read, tmp_path, path="a", offset=0, limit=1)).startswith("1\n")
    with pytest.raises(ToolError, match="the file has 10 lines"):
        await use(read, tmp_path, path="a", offset=11)


async def test_read_pages_join_to_complete_file(tmp_path: Path) -> None:
    lines = [f"line {n} " + "x" * (n % 300) for n in range(5000)]
    (tmp_path / "long").write_text("\n".join(lines) + "\n")
    got: list[str] = []
    offset: int | None = 1
    while offset:
        page = text(await use(read, tmp_path, path="long", offset=offset))
        assert len(page) < 51_000
        body, mark, rest = page.partition("\n\n[")
        got += body.split("\n")
        assert len(body.split("\n")) <= 2000
        offset = int(rest.split("offset=")[1].split(" ")[0]) if mark else None
    assert got == lines


async def test_read_too_long_line_is_cut_and_skippable(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("é" * 40_000 + "\nnext\n")
    page = text(await use(read, tmp_path, path="a"))
    assert "[Line 1 is cut: it is longer than 50 KB.]" in page
    assert "offset=2" in page and "\ufffd" not in page


async def test_read_invalid_utf8_is_replaced_and_mentioned(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9\n")
    assert text(await use(read, tmp_path, path="a")) == (
        "caf\ufffd\n\n[Some bytes are not UTF-8 and are shown as \ufffd.]"
    )
    (tmp_path / "b").write_text("an honest \ufffd\n")
    assert "not UTF-8" not in text(await use(read, tmp_path, path="b"))


async def test_read_crlf_text_has_plain_newlines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert text(await use(read, tmp_path, path="a")) == "one\ntwo"


async def test_read_binary_empty_and_missing_file_gives_reason(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "empty").touch()
    with pytest.raises(ToolError, match="binary file"):
        await use(read, tmp_path, path="bin")
    assert text(await use(read, tmp_path, path="empty")) == "(empty file)"
    with pytest.raises(ToolError, match="no such file"):
        await use(read, tmp_path, path="missing")
    with pytest.raises(ToolError, match="is a folder"):
        await use(read, tmp_path, path=".")


@pytest.mark.parametrize("mime", IMAGES)
async def test_read_image_returns_image_by_content(tmp_path: Path, mime: str) -> None:
    (tmp_path / "pic.txt").write_bytes(IMAGES[mime])
    image = (await use(read, tmp_path, path="pic.txt")).content[1]
    assert image == Image(base64.b64encode(IMAGES[mime]).decode(), mime)


async def test_read_too_large_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pic").write_bytes(PNG + b"x" * 5_000_000)
    with pytest.raises(ToolError, match="the limit is 5000000"):
        await use(read, tmp_path, path="pic")


async def test_write_creates_file_and_directories(tmp_path: Path) -> None:
    assert text(await use(write, tmp_path, path="x/y/z.md", content="é\r\n")) == (
        "Created x/y/z.md (4 bytes)."
    )
    assert (tmp_path / "x/y/z.md").read_bytes() == "é\r\n".encode()
    assert text(await use(write, tmp_path, path="x/y/z.md", content="")) == (
        "Replaced x/y/z.md (0 bytes)."
    )


@pytest.mark.parametrize("path", ["folder/", "folder", "."])
async def test_write_to_directory_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ToolError, match="is a folder"):
        await use(write, tmp_path, path=path, content="x")


async def test_write_name_with_trailing_slash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError):
        await use(write, tmp_path, path="new/", content="x")
    assert not list(tmp_path.iterdir())


async def test_write_half_surrogate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="half a character"):
        await use(write, tmp_path, path="a", content="x\ud83d")
    (tmp_path / "a").write_text("old")
    with pytest.raises(ToolError, match="half a character"):
        await use(edit, tmp_path, path="a", oldText="old", newText="\ud83d")
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("names", [("oldText", "newText"), ("old_string", "new_string")])
async def test_edit_replaces_text(tmp_path: Path, names: tuple[str, str]) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    (tmp_path / "a").chmod(0o700)
    done = await use(edit, tmp_path, path="a", **{names[0]: "one\ntwo", names[1]: "1\n2\n3"})
    assert (tmp_path / "a").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3\r\n"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert done.details and done.details["firstChangedLine"] == 1
    assert "-\ufeffone\r\n" in done.details["diff"]


async def test_edit_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9 one")
    with pytest.raises(ToolError, match="not UTF-8"):
        await use(edit, tmp_path, path="a", oldText="one", newText="two")
    (tmp_path / "b").write_bytes(b"x" * 10_000_001)
    with pytest.raises(ToolError, match="too big to edit"):
        await use(edit, tmp_path, path="b", oldText="one", newText="two")


async def test_edit_concurrent_edits_lose_nothing(tmp_path: Path) -> None:
    """Two runs share a workspace: each edit is in the file, or was refused."""
    (tmp_path / "a").write_text("".join(f"<{n}>\n" for n in range(40)))
    ctx = ToolContext("k", "main", tmp_path)
    done: list[int] = []

    async def one(number: int) -> None:
        args = {"path": "a", "oldText": f"<{number}>", "newText": f"[{number}]"}
        try:
            await edit(ctx, args)
        except ToolError:
            return
        done.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(40):
            tasks.create_task(one(number))
    lines = (tmp_path / "a").read_text().split("\n")
    assert len(lines) == 41
    assert done
    assert [n for n in done if lines[n] != f"[{n}]"] == []
