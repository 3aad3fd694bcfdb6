"""`ls`, `find` and `grep` as a model uses them."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolError
from homarus.tools.builtin.search import find, grep, ls
from homarus.tools.tool import Tool, ToolContext


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    for name, content in {
        "notes.md": "alpha\nbeta\ngamma\n",
        "src/main.py": "import os\nprint('alpha')\n",
        "src/deep/util.py": "ALPHA = 1\n",
        "node_modules/x/index.js": "alpha\n",
        ".git/config": "alpha\n",
        ".hidden": "alpha\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (tmp_path / "secret").write_text("alpha, outside\n")
    (root / "link").symlink_to(tmp_path)
    (root / "blob").write_bytes(b"alpha\0\n")
    return root


async def use(made: Tool, root: Path, **args: Any) -> str:
    result = await made(ToolContext("agent:main:main", "main", root), args)
    assert isinstance(result, str)
    return result


async def test_ls_lists_directory_with_kinds(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert (await use(ls, root)).split("\n") == [
        ".git/", ".hidden", "blob", "link@", "node_modules/", "notes.md", "pipe=", "src/",
    ]  # fmt: skip
    assert await use(ls, root, path="src", limit=1) == (
        "deep/\n\n[1 more names. Use a higher limit to see them.]"
    )
    (root / "empty").mkdir()
    assert await use(ls, root, path="empty") == "(empty folder)"
    with pytest.raises(ToolError, match="a file stands where a folder"):
        await use(ls, root, path="notes.md")
    with pytest.raises(ToolError):
        await use(ls, root, path="link")


async def test_ls_shows_hidden_characters_in_names(root: Path) -> None:
    (root / "src" / "a\nb\u202e").touch()
    assert r"a\u{a}b\u{202e}" in await use(ls, root, path="src") or "\n" in await use(
        ls, root, path="src"
    )
    assert "\u202e" not in await use(ls, root, path="src")
    assert "\u202e" not in await use(find, root, pattern="a*")


async def test_find_matches_file_names(root: Path) -> None:
    assert await use(find, root, pattern="*.py") == "src/deep/util.py\nsrc/main.py"
    assert await use(find, root, pattern="*.py", path="src/deep") == "src/deep/util.py"
    assert await use(find, root, pattern="deep/*", path="src") == "src/deep/util.py"
    assert await use(find, root, pattern="d*p") == "src/deep/"
    assert await use(find, root, pattern="index.js") == "nothing found"
    assert (await use(find, root, pattern="*", limit=1)).endswith("narrower pattern.]")
    assert "secret" not in await use(find, root, pattern="*")


async def test_grep_matches_contents(root: Path) -> None:
    assert (await use(grep, root, pattern="alpha")).split("\n") == [
        ".hidden:1: alpha", "notes.md:1: alpha", "src/main.py:2: print('alpha')",
    ]  # fmt: skip
    assert await use(grep, root, pattern="^alpha$", glob="*.md") == "notes.md:1: alpha"
    assert "util.py:1: ALPHA" in await use(grep, root, pattern="alpha", ignoreCase=True)
    assert await use(grep, root, pattern="print('", literal=True) == "src/main.py:2: print('alpha')"
    assert await use(grep, root, pattern="beta", path="notes.md") == "notes.md:2: beta"
    assert await use(grep, root, pattern="nowhere") == "no matches"


async def test_grep_context_lines_surround_matches(root: Path) -> None:
    (root / "n").write_text("".join(f"{n}\n" for n in range(1, 21)))
    assert await use(grep, root, pattern="^(2|4|15)$", path="n", context=1) == (
        "n-1- 1\nn:2: 2\nn-3- 3\nn:4: 4\nn-5- 5\n--\nn-14- 14\nn:15: 15\nn-16- 16"
    )


async def test_search_stops_at_limit_and_says_so(root: Path) -> None:
    (root / "n").write_text("hit\n" * 300)
    told = await use(grep, root, pattern="hit", path="n", limit=5)
    assert told.count("n:") == 5 and "more may match" in told


async def test_search_bounds_long_lines_big_files_and_outer_links(root: Path) -> None:
    (root / "wide").write_text("hit " + "x" * 10_000)
    (root / "big").write_bytes(b"hit\n" + b"x" * 5_000_001)
    os.link(root.parent / "secret", root / "hard")
    told = await use(grep, root, pattern="hit|outside")
    assert len(told) < 1000 and "[cut]" in told
    assert "[1 files over 5 MB not searched]" in told
    assert "outside" not in told


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)+$"])
async def test_grep_exponential_pattern_takes_linear_time(root: Path, pattern: str) -> None:
    (root / "a").write_text("aaa\n")
    (root / "zz").write_text(("a" * 60 + "!\n") * 1000)
    async with asyncio.timeout(10):
        told = await use(grep, root, pattern=pattern)
    assert "a:1: aaa" in told and "zz" not in told


async def test_grep_invalid_pattern_raises(root: Path) -> None:
    with pytest.raises(ToolError, match="not a regular expression"):
        await use(grep, root, pattern="[")
    with pytest.raises(ToolError, match="1 to 500 characters"):
        await use(find, root, pattern="")
    with pytest.raises(ToolError, match="outside the workspace"):
        await use(grep, root, pattern="x", path="../secret")
