"""IDENTITY.md: the lines in which an agent, or its owner, wrote down who it is."""

import re
from dataclasses import dataclass
from pathlib import Path

from homarus.agent.workspace import get_file

_LINE = re.compile(r"[ \t]{0,8}[-*]?[ \t]{0,8}\**(name|emoji|avatar)\**:\**(.*)", re.IGNORECASE)
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
    file = get_file(workspace, "IDENTITY.md")
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
