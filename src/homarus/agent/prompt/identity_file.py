"""IDENTITY.md: where an agent, or its owner, wrote down who it is.

Two forms are read: keys between two `---` at the top, and lines such as `- Name: Ada`. A template
nobody filled in says nothing.
"""

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from homarus.agent.prompt.files import MAX_BYTES, get_file, set_file
from homarus.config.frontmatter import parse_frontmatter
from homarus.config.resolve import AgentSettings
from homarus.core.errors import ToolError, UserError
from homarus.core.sniff import image_mime
from homarus.core.text import one_line
from homarus.core.value import dataclass
from homarus.tools.guard import Beneath

FILE: Final = "IDENTITY.md"
KEYS: Final = ("name", "emoji", "avatar", "creature", "vibe", "theme")
MAX_AVATAR_BYTES: Final = 2_000_000
_LINE = re.compile(rf"[ \t]{{0,8}}[-*]?[ \t]{{0,8}}\**({'|'.join(KEYS)})\**:\**(.*)", re.IGNORECASE)
_MAX_LINES = 200
_MAX_CHARS = 100
_URL = re.compile(r"https?://\S{1,500}|data:image/\S+", re.IGNORECASE)
_PICTURE = re.compile(r"(?:\./)?[\w][\w ./-]{0,200}\.(?:png|jpe?g|gif|webp)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Identity:
    """What the file says; empty where it says nothing.

    `avatar` is a picture's address, a file of the workspace, or a sign.
    """

    name: str = ""
    emoji: str = ""
    avatar: str = ""
    creature: str = ""
    vibe: str = ""
    theme: str = ""

    @property
    def picture(self) -> str:
        """The file of the workspace that shows the agent, if one does."""
        return self.avatar if is_picture(self.avatar) else ""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as it is served."""

    data: bytes
    mime: str


def is_picture(avatar: str) -> bool:
    """Whether an avatar names a file of the workspace."""
    return bool(_PICTURE.fullmatch(avatar)) and ".." not in avatar.split("/")


@lru_cache(64)
def parse_identity(text: str) -> Identity:
    """What the file's text says."""
    found: dict[str, str] = {}
    for key, value in parse_frontmatter(text).items():
        _take(found, key.lower(), value)
    for line in text.splitlines()[:_MAX_LINES]:
        if match := _LINE.fullmatch(line):
            _take(found, match[1].lower(), match[2])
    avatar = found.pop("avatar", "")
    known = _URL.fullmatch(avatar) or is_picture(avatar) or len(avatar) <= 4
    emoji = found.pop("emoji", "")[:16]
    return Identity(**found, emoji=emoji, avatar=avatar if known else "")


def _take(found: dict[str, str], key: str, raw: str) -> None:
    value = raw.strip().strip("*_`").strip()
    if key in KEYS and value and value[0] not in "([<" and value.isprintable():
        most = 500 if key == "avatar" else _MAX_CHARS
        found.setdefault(key, value[:most])


def read_identity(workspace: Path) -> Identity:
    """An agent's own words about itself."""
    file = get_file(workspace, FILE)
    return Identity() if file.missing else parse_identity(file.content)


def find_identity(settings: AgentSettings) -> Identity:
    """How an agent presents itself: by the config, and where that is silent by its own words."""
    own, told = read_identity(settings.workspace), settings.identity
    return replace(
        own,
        name=told.name or own.name,
        theme=told.theme or own.theme,
        emoji=told.emoji or own.emoji,
        avatar=told.avatar or own.avatar,
    )


def write_identity(workspace: Path, **values: str | None) -> None:
    """Put `name`, `emoji` or `avatar` into the file; its other lines stay as they are."""
    told = {key: one_line(value, _MAX_CHARS) for key, value in values.items() if value}
    if not told:
        return
    lines = _written(workspace).splitlines() or [f"# {FILE}", ""]
    ends = _frontmatter_end(lines)
    for at, line in enumerate(lines):
        match = _LINE.fullmatch(line)
        if match and match[1].lower() in told:
            key = match[1].lower()
            value = told.pop(key)
            lines[at] = f"{key}: {value}" if at < ends else f"- {key.capitalize()}: {value}"
    lines += [f"- {key.capitalize()}: {value}" for key, value in told.items()]
    set_file(workspace, FILE, "\n".join(lines) + "\n")


def _written(workspace: Path) -> str:
    """What stands in the file, whole; one whose text cannot be kept is left alone."""
    if get_file(workspace, FILE).missing:
        return ""
    try:
        with Beneath(workspace).open_read(FILE) as opened:
            return opened.file.read(MAX_BYTES + 1).decode()  # `set_file` refuses more
    except (OSError, ToolError, UnicodeDecodeError) as exc:
        raise UserError(
            f"{FILE} cannot be changed without damage: {one_line(str(exc), 200)}",
            fix=f"look at {workspace / FILE}",
        ) from None


def _frontmatter_end(lines: list[str]) -> int:
    """How many lines at the top are keys between two `---`."""
    if not lines or lines[0].rstrip() != "---":
        return 0
    return next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)


def read_picture(workspace: Path, avatar: str) -> Picture | None:
    """The picture an agent shows itself by; None when its file is none, or too large."""
    if not is_picture(avatar):
        return None
    try:
        with Beneath(workspace).open_read(avatar) as opened:
            data = opened.file.read(MAX_AVATAR_BYTES + 1)
    except (OSError, ToolError):
        return None
    if len(data) > MAX_AVATAR_BYTES:
        return None
    mime = image_mime(data)
    return Picture(data, mime) if mime else None
