"""`homarus docs`: find pages of the documentation, which is installed with the program."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import limit_option
from homarus.core.errors import UserError
from homarus.core.installation import find_docs
from homarus.core.text import one_line

ADDRESS: Final = "https://github.com/homarus/homarus/blob/main/docs"
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")
_TITLE_WEIGHT: Final = 8


@click.command("docs")
@examples("homarus docs", "homarus docs telegram webhook", "homarus docs heartbeat --json")
@click.argument("query", nargs=-1)
@limit_option("How many pages at most.", 100, default=8)
@as_json_option
def command(query: tuple[str, ...], limit: int, *, as_json: bool) -> None:
    """Find pages of the documentation.

    The pages have all words of QUERY; without any, all pages are listed. They are installed with
    the program, so that nothing is asked of the network.
    """
    folder = find_docs()
    if folder is None:
        raise UserError("the documentation is not installed with this program", fix=ADDRESS)
    rows = find_pages(folder, " ".join(query))
    if query:
        rows = rows[:limit]
    if as_json:
        click.echo(json.dumps({"pages": rows}, ensure_ascii=False))
        return
    for row in rows:
        click.echo(f"{row['title']}\n  {row['file']}")
        for section in row["sections"]:
            click.echo(f"  § {section}")
    if not rows:
        click.echo("No page has all of these words.")


def find_pages(folder: Path, query: str) -> list[dict[str, Any]]:
    """Return the pages with every word of a query, the best first; all pages without one."""
    words = [word.lower() for word in _WORD.findall(query)]
    found = [row for path in sorted(folder.rglob("*.md")) for row in _match(folder, path, words)]
    found.sort(key=lambda row: (-row["score"], row["file"]))
    return found


def _match(folder: Path, path: Path, words: list[str]) -> Iterator[dict[str, Any]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    headings = [one_line(heading, 100) for heading in _HEADING.findall(text)]
    title, lowered = (headings[0] if headings else path.stem), text.lower()
    if not all(word in lowered for word in words):
        return
    counts = sum(min(lowered.count(word), 20) for word in words)
    titled = sum(word in title.lower() or word in path.stem.lower() for word in words)
    sections = [
        heading for heading in headings[1:] if any(word in heading.lower() for word in words)
    ]
    relative = path.relative_to(folder).as_posix()
    yield {
        "title": title,
        "file": str(path),
        "address": f"{ADDRESS}/{relative}",
        "sections": sections[:3],
        "score": counts + len(sections) * 3 + titled * _TITLE_WEIGHT * 4,
    }
