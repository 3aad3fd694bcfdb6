"""IDENTITY.md: the lines in which an agent, or its owner, wrote down who it is."""

import re
from pathlib import Path

from homarus.agent.workspace import get_file, set_file
from homarus.core.text import one_line
from homarus.core.value import dataclass

_LINE = re.compile(r"[ \t]{0,8}[-*]?[ \t]{0,8}\**(name|emoji|avatar)\**:\**(.*)", re.IGNORECASE)
FILE = "IDENTITY.md"
_MAX_LINES = 200
_MAX_CHARS = 100
_URL = re.compile(r"https?://\S{1,500}|data:image/\S+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Identity:
    """What the file says; empty where it says nothing."""

    name: str = ""
    emoji: str = ""
    avatar: str = ""


def read_identity(workspace: Path) -> Identity:
    """An agent's own words about itself. A template nobody filled in says nothing."""
    file = get_file(workspace, FILE)
    found: dict[str, str] = {}
    for line in file.content.splitlines()[:_MAX_LINES]:
        if match := _LINE.fullmatch(line):
            value = match[2].strip().strip("*_`").strip()
            if value and value[0] not in "([<" and value.isprintable():
                found.setdefault(match[1].lower(), value[:_MAX_CHARS])
    avatar = found.get("avatar", "")
    return Identity(
        name=found.get("name", ""),
        emoji=found.get("emoji", "")[:16],
        avatar=avatar if _URL.fullmatch(avatar) or len(avatar) <= 4 else "",
    )


def write_identity(workspace: Path, **values: str | None) -> None:
    """Put `name`, `emoji` or `avatar` into the file; its other lines stay as they are."""
    told = {key: one_line(value, _MAX_CHARS) for key, value in values.items() if value}
    if not told:
        return
    lines = get_file(workspace, FILE).content.splitlines() or ["# IDENTITY.md", ""]
    for at, line in enumerate(lines):
        match = _LINE.fullmatch(line)
        if match and match[1].lower() in told:
            key = match[1].lower()
            lines[at] = f"- {key.capitalize()}: {told.pop(key)}"
    lines += [f"- {key.capitalize()}: {value}" for key, value in told.items()]
    set_file(workspace, FILE, "\n".join(lines) + "\n")
