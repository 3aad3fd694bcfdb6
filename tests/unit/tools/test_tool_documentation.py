"""The file tools read the program's documentation, outside the workspace, and change nothing."""

import os
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolError
from homarus.core.message import Text
from homarus.tools.builtin.files import edit, read, write
from homarus.tools.builtin.search import find, grep, ls
from homarus.tools.tool import Tool, ToolContext, ToolOutput


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Documentation as an installer leaves it, a file outside it, and a workspace."""
    folder = tmp_path / "site" / "docs"
    (folder / "reference").mkdir(parents=True)
    (folder / "index.md").write_text("# Pages\nSee config.\n")
    os.link(folder / "index.md", tmp_path / "cached")  # as uv and pip do with their caches
    (folder / "reference" / "config.md").write_text("`agents.defaults.repoRoot`\n")
    (tmp_path / "site" / "secret.md").write_text("repoRoot secret")
    (tmp_path / "docs2").mkdir()
    (tmp_path / "ws").mkdir()
    (folder / "out.md").symlink_to(tmp_path / "site" / "secret.md")
    return folder


async def use(made: Tool, docs: Path, *, reads: bool = True, **args: Any) -> str:
    workspace = docs.parents[1] / "ws"
    ctx = ToolContext("agent:main:irc:group:#a", "main", workspace, docs=docs if reads else None)
    result = await made(ctx, args)
    if isinstance(result, ToolOutput):
        return "".join(part.text for part in result.content if isinstance(part, Text))
    return result


async def test_documentation_is_listed_searched_and_read(docs: Path) -> None:
    assert await use(read, docs, path=f"{docs}/index.md") == "# Pages\nSee config."
    assert await use(ls, docs, path=str(docs)) == "index.md\nout.md@\nreference/"
    found = f"{docs}/reference/config.md"
    assert await use(find, docs, path=str(docs), pattern="**/config.*") == found
    matches = await use(grep, docs, path=f"{docs}/", pattern="repoRoot")
    assert matches == f"{found}:1: `agents.defaults.repoRoot`"
    assert await use(read, docs, path=found) == "`agents.defaults.repoRoot`"


@pytest.mark.parametrize(
    "path", ["{}/../secret.md", "{}/out.md", "{}2/secret.md", "{}/reference/../../secret.md"]
)
async def test_documentation_path_that_leaves_it_is_refused(docs: Path, path: str) -> None:
    with pytest.raises(ToolError):
        await use(read, docs, path=path.format(docs))


async def test_documentation_is_never_changed(docs: Path) -> None:
    with pytest.raises(ToolError, match="outside the workspace"):
        await use(write, docs, path=f"{docs}/index.md", content="x")
    with pytest.raises(ToolError, match="outside the workspace"):
        await use(edit, docs, path=f"{docs}/index.md", oldText="See", newText="x")
    assert (docs / "index.md").read_text() == "# Pages\nSee config.\n"


async def test_documentation_is_refused_where_it_may_not_be_read(docs: Path) -> None:
    with pytest.raises(ToolError, match="outside the workspace"):
        await use(read, docs, reads=False, path=f"{docs}/index.md")
