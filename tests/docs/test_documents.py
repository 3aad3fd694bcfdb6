"""Check the pages: their links lead to files, their commands and modules exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from homarus.cli.main import group
from tests.style.rules import ROOT, tracked

DOCUMENTS = [p for p in tracked() if p.suffix == ".md" and "data" not in p.parts]
OURS = [p for p in DOCUMENTS if p.is_relative_to(ROOT / "docs") or p.parent == ROOT]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^ *```(?:console|sh|bash)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


def broken_links(page: Path, text: str) -> list[str]:
    """Return the relative links of a page that lead to no file or heading."""
    broken = []
    for link in _LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        there = target.exists()
        if there and anchor and target.suffix == ".md":
            there = anchor in anchors(target.read_text(encoding="utf-8"))
        if not there:
            broken.append(link)
    return broken


def commands_in(text: str) -> list[list[str]]:
    """Return the command lines in the code blocks of a page, without prompts and comments."""
    blocks = (block.replace("\\\n", " ") for block in _FENCE.findall(text))
    lines = [line for block in blocks for line in block.splitlines()]
    typed = [line.strip().removeprefix("$ ") for line in lines if line.strip()]
    return [words for line in typed if (words := shlex.split(line, comments=True))]


def unknown_command(words: list[str]) -> str:
    """Return what is wrong with a `homarus …` line, "" if nothing is."""
    ctx = click.Context(group, info_name="homarus", **group.context_settings)
    rest = iter(words[1:])
    for word in rest:
        if word == "--":  # what follows is a command of another program
            break
        if word.startswith("-") and word != "-":  # `-` alone is a value: standard input
            known = {flag: param for param in ctx.command.get_params(ctx) for flag in param.opts}
            name, has_value, _ = word.partition("=")
            if name not in known:
                return f"{ctx.command_path} has no option {word}"
            option = known[name]
            if isinstance(option, click.Option) and not option.is_flag and not has_value:
                next(rest, None)  # its value is no command
        elif isinstance(ctx.command, click.Group):
            command = ctx.command.get_command(ctx, word)
            if command is None:
                return f"{ctx.command_path} has no command {word}"
            ctx = click.Context(command, info_name=word, parent=ctx)
    return ""


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_a_file(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


TOOL_PAGES = {*(ROOT / "docs" / "reference" / "tools").glob("*.md")}
INDEXED = {
    "docs/index.md": {*(ROOT / "docs").rglob("*.md")} - TOOL_PAGES,
    "docs/channels/README.md": {*(ROOT / "docs" / "channels").rglob("*.md")},
    "docs/reference/tools.md": TOOL_PAGES,
}


@pytest.mark.parametrize("start", INDEXED)
def test_pages_are_linked_from_their_index(start: str) -> None:
    index = ROOT / start
    links = _LINK.findall(index.read_text(encoding="utf-8"))
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links}
    assert INDEXED[start] and not INDEXED[start] - linked - {index}


@pytest.mark.parametrize("page", OURS, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_named_on_pages_exist(page: Path) -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text(encoding="utf-8"))
    roots = (ROOT, ROOT / "src", ROOT / "src" / "homarus")
    assert not [name for name in named if not any((root / name).exists() for root in roots)]


def test_broken_link_is_detected(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# A head, here\n", encoding="utf-8")
    text = "[x](c.md) [y](b.md#a-head-here) [z](b.md#no) [w](https://example.com) [v](b.md)"
    assert broken_links(tmp_path / "a.md", text) == ["c.md", "b.md#no"]


@pytest.mark.parametrize("page", OURS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_pages_exist(page: Path) -> None:
    dev = (ROOT / "dev_commands.py").read_text(encoding="utf-8")
    for words in commands_in(page.read_text(encoding="utf-8")):
        if words[0] == "homarus":
            assert not unknown_command(words), words
        elif words[:2] in (["python3", "dev.py"], ["python", "dev.py"]) and len(words) > 2:
            assert f'"{words[2]}":' in dev, words
        elif words[0] == "make":
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^[\w -]*\b{words[1]}\b[\w -]*:", makefile, re.MULTILINE), words


def test_unknown_command_on_a_page_is_detected() -> None:
    assert unknown_command(["homarus", "config", "get", "agents"]) == ""
    assert "no command gte" in unknown_command(["homarus", "config", "gte"])
    assert "no option --jsn" in unknown_command(["homarus", "agent", "--jsn"])
    assert commands_in("```console\n$ homarus chat  # talk\n```\n") == [["homarus", "chat"]]
    assert commands_in("1. Do:\n\n   ```console\n   $ homarus chat\n   ```\n") == [
        ["homarus", "chat"]
    ]


def test_readme_shows_the_two_commands_for_newcomers() -> None:
    shown = commands_in((ROOT / "README.md").read_text(encoding="utf-8"))
    assert ["python3", "dev.py", "run"] in shown
    assert ["python3", "dev.py", "test"] in shown
