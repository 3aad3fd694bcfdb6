"""Read and write IDENTITY.md, where an agent or its owner describes who the agent is.

Two forms are read: keys between two `---` at the top, and lines such as `- Name: Ada`. An
unedited template gives no values.
"""

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from homarus.agent.prompt.workspace_files import MAX_BYTES, get_file, set_file
from homarus.config.agent_settings import AgentSettings
from homarus.core.errors import ToolError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.mime import sniff_image_mime
from homarus.core.text import one_line
from homarus.tools.rooted_fs import RootedFs

FILE: Final = "IDENTITY.md"
KEYS: Final = ("name", "emoji", "avatar", "creature", "vibe", "theme")
MAX_AVATAR_BYTES: Final = 2_000_000
_LINE = re.compile(rf"[ \t]{{0,8}}[-*]?[ \t]{{0,8}}\**({'|'.join(KEYS)})\**:\**(.*)", re.IGNORECASE)
_MAX_LINES = 200
_MAX_CHARS = 100
_URL = re.compile(r"https?://\S{1,500}|data:image/\S+", re.IGNORECASE)
_PICTURE = re.compile(r"(?:\./)?[\w][\w ./-]{0,200}\.(?:png|jpe?g|gif|webp)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """The values of the file; empty where it has none.

    `avatar` is an image URL, a file of the workspace, or an emoji.
    """

    name: str = ""
    emoji: str = ""
    avatar: str = ""
    creature: str = ""
    vibe: str = ""
    theme: str = ""

    @property
    def picture(self) -> str:
        """The avatar if it is a file of the workspace, else ""."""
        return self.avatar if is_avatar_file(self.avatar) else ""


@dataclass(frozen=True, slots=True)
class AvatarImage:
    """An avatar image as it is served."""

    data: bytes
    mime: str


def is_avatar_file(avatar: str) -> bool:
    """Return whether an avatar names an image file of the workspace."""
    return bool(_PICTURE.fullmatch(avatar)) and ".." not in avatar.split("/")


@lru_cache(64)
def parse_identity(text: str) -> AgentIdentity:
    """Parse the text of the file."""
    found: dict[str, str] = {}
    for key, value in _read_frontmatter(text).items():
        _add_value(found, key.lower(), value)
    for line in text.splitlines()[:_MAX_LINES]:
        if match := _LINE.fullmatch(line):
            _add_value(found, match[1].lower(), match[2])
    avatar = found.pop("avatar", "")
    known = _URL.fullmatch(avatar) or is_avatar_file(avatar) or len(avatar) <= 4
    emoji = found.pop("emoji", "")[:16]
    return AgentIdentity(**found, emoji=emoji, avatar=avatar if known else "")


def _read_frontmatter(text: str) -> dict[str, str]:
    if not text.removeprefix("\ufeff").startswith("---"):
        return {}
    from homarus.skills.frontmatter import read_texts  # few files have any

    return read_texts(text)


def _add_value(found: dict[str, str], key: str, raw: str) -> None:
    value = raw.strip().strip("*_`").strip()
    if key in KEYS and value and value[0] not in "([<" and value.isprintable():
        max_chars = 500 if key == "avatar" else _MAX_CHARS
        found.setdefault(key, value[:max_chars])


def read_identity(workspace: Path) -> AgentIdentity:
    """Return the identity in a workspace's file."""
    file = get_file(workspace, FILE)
    return AgentIdentity() if file.missing else parse_identity(file.content)


def find_identity(settings: AgentSettings) -> AgentIdentity:
    """Return the identity by the config, and by the file where the config has no value."""
    own = read_identity(settings.workspace)
    configured = settings.identity.model_dump(include=set(KEYS))
    return replace(own, **{key: value for key, value in configured.items() if value})


def write_identity(workspace: Path, **values: str | None) -> None:
    """Set `name`, `emoji` or `avatar` in the file; its other lines stay."""
    pending = {key: one_line(value, _MAX_CHARS) for key, value in values.items() if value}
    if not pending:
        return
    lines = _load_text(workspace).splitlines() or [f"# {FILE}", ""]
    ends = _frontmatter_end(lines)
    for at, line in enumerate(lines):
        match = _LINE.fullmatch(line)
        if match and match[1].lower() in pending:
            key = match[1].lower()
            value = pending.pop(key)
            lines[at] = f"{key}: {value}" if at < ends else f"- {key.capitalize()}: {value}"
    lines += [f"- {key.capitalize()}: {value}" for key, value in pending.items()]
    set_file(workspace, FILE, "\n".join(lines) + "\n")


def _load_text(workspace: Path) -> str:
    """Return the complete text. Raises UserError when it cannot be rewritten unchanged."""
    if get_file(workspace, FILE).missing:
        return ""
    try:
        with RootedFs(workspace).open_read(FILE) as opened:
            return opened.file.read(MAX_BYTES + 1).decode()  # `set_file` refuses more
    except (OSError, ToolError, UnicodeDecodeError) as exc:
        raise UserError(
            f"{FILE} cannot be changed without damage: {one_line(str(exc), 200)}",
            fix=f"look at {workspace / FILE}",
        ) from None


def _frontmatter_end(lines: list[str]) -> int:
    """Return how many lines at the top are frontmatter."""
    if not lines or lines[0].rstrip() != "---":
        return 0
    return next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)


def read_picture(workspace: Path, avatar: str) -> AvatarImage | None:
    """Load the avatar's image file; None when it is no image or too large."""
    if not is_avatar_file(avatar):
        return None
    try:
        with RootedFs(workspace).open_read(avatar) as opened:
            data = opened.file.read(MAX_AVATAR_BYTES + 1)
    except (OSError, ToolError):
        return None
    if len(data) > MAX_AVATAR_BYTES:
        return None
    mime = sniff_image_mime(data)
    return AvatarImage(data, mime) if mime else None
