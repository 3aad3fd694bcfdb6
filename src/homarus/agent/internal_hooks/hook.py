"""An internal hook: what its HOOK.md says about it, and which file is its handler."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.skills.frontmatter import FrontmatterError, format_value
from homarus.skills.requirements import Requires
from homarus.skills.skill import NO_METADATA, Metadata, read_metadata, read_own_metadata

HOOK_FILE: Final = "HOOK.md"
HANDLER_FILE: Final = "handler.py"
BUNDLED_HANDLER_FILE: Final = "run_hook.py"  # a module of this program
DEFAULT_EXPORT: Final = "handle"
# Of OpenClaw: only Node.js runs them.
SCRIPT_FILES: Final = ("handler.ts", "handler.js", "handler.mjs", "index.ts", "index.js")
# The events that exist: the type, and its actions.
EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "command": ("new", "reset", "stop"),
    "session": ("start", "end"),
    "agent": ("bootstrap",),
    "gateway": ("startup",),
    "message": ("received", "sent"),
}
MAX_NAME_CHARS: Final = 64
_MAX_EVENTS: Final = 32
_EXPORT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)


class HookTier(Enum):
    """Where a hook comes from. Of hooks with the same name, that of the later tier is used."""

    EXTRA = "extra"
    BUNDLED = "bundled"
    MANAGED = "managed"
    WORKSPACE = "workspace"
    CONFIG = "config"  # an entry of hooks.internal.handlers

    @property
    def source(self) -> str:
        """The tier's name in OpenClaw's output."""
        return f"openclaw-{self.value}"


@dataclass(frozen=True, slots=True)
class InternalHook:
    """A hook; `key` names its settings in `hooks.internal.entries`.

    `events` are types (`command`) and types with an action (`command:new`). `scripts` are the
    handlers of the folder that only Node.js could run.
    """

    name: str
    description: str
    key: str
    tier: HookTier
    folder: Path
    file: Path
    handler: Path
    events: tuple[str, ...]
    export: str = DEFAULT_EXPORT
    metadata: Metadata = NO_METADATA
    scripts: tuple[str, ...] = ()

    @property
    def identity(self) -> Path:
        """What names it on this machine: its folder, or the file of a handler without one."""
        return self.handler if self.tier is HookTier.CONFIG else self.folder

    @property
    def requires(self) -> Requires:
        return self.metadata.requires or Requires()

    @property
    def unknown_events(self) -> tuple[str, ...]:
        """The events of its list that never happen."""
        return tuple(event for event in self.events if not is_event(event))


def is_event(name: str) -> bool:
    """Return whether an event of this name, or type, exists."""
    kind, colon, action = name.partition(":")
    return kind in EVENTS and (not colon or action in EVENTS[kind])


def make_hook(frontmatter: Mapping[str, Json], tier: HookTier, file: Path) -> InternalHook:
    """Make the hook of a HOOK.md. Raises FrontmatterError when it cannot be used."""
    own = read_own_metadata(frontmatter)
    if own is None:
        raise FrontmatterError("it has no metadata with `openclaw` and its `events`")
    metadata = read_metadata(frontmatter) or NO_METADATA
    folder = file.parent
    name = _read_text(frontmatter, "name") or folder.name
    if len(name) > MAX_NAME_CHARS or not name.isprintable() or set(name) & set("<>/\\"):
        raise FrontmatterError(
            f"its name {one_line(name, 40)!r} is not one of 1 to {MAX_NAME_CHARS} characters "
            "without < > / \\"
        )
    export = _read_text(own, "export")
    if export in {"", "default"}:  # OpenClaw's handlers export one function by default
        export = DEFAULT_EXPORT
    if not _EXPORT.fullmatch(export):
        raise FrontmatterError(f"its export {one_line(export, 40)!r} is not the name of a function")
    return InternalHook(
        name=name,
        description=_read_text(frontmatter, "description"),
        key=_read_text(own, "hookKey") or name,
        tier=tier,
        folder=folder,
        file=file,
        handler=folder / (BUNDLED_HANDLER_FILE if tier is HookTier.BUNDLED else HANDLER_FILE),
        events=_read_events(own.get("events")),
        export=export,
        metadata=metadata,
        scripts=_find_scripts(folder),
    )


def _read_events(value: Json) -> tuple[str, ...]:
    items: Sequence[Json] = value.split(",") if isinstance(value, str) else ()
    items = value if isinstance(value, list) else items
    names = dict.fromkeys(item.strip() for item in items if isinstance(item, str))
    names.pop("", None)
    if not names:
        raise FrontmatterError("its metadata has no `events`: it would never be called")
    if len(names) > _MAX_EVENTS:
        raise FrontmatterError(f"it has more than {_MAX_EVENTS} events")
    return tuple(names)


def _read_text(table: Mapping[str, Json], key: str) -> str:
    value = table.get(key)
    if value is None:
        return ""
    if isinstance(value, list | dict):
        raise FrontmatterError(f"its {key} is not text")
    return " ".join(format_value(value).split())


def _find_scripts(folder: Path) -> tuple[str, ...]:
    return tuple(name for name in SCRIPT_FILES if (folder / name).is_file())
