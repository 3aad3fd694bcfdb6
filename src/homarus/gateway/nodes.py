"""Nodes: which commands a device may be asked to run, by what kind of device it is. Pure."""

from collections.abc import Collection
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["ios", "android", "macos", "windows", "linux", "unknown"]

_CANVAS = frozenset(
    f"canvas.{verb}"
    for verb in (
        "present", "hide", "navigate", "eval", "snapshot", "a2ui.push", "a2ui.pushJSONL",
        "a2ui.reset",
    )
)  # fmt: skip
_SEEING = _CANVAS | {"camera.list", "location.get"}
_PERSONAL = _SEEING | {
    "device.info", "device.status", "contacts.search", "calendar.events", "reminders.list",
    "photos.latest", "motion.activity", "motion.pedometer",
}  # fmt: skip
_SYSTEM = frozenset({"system.run", "system.which", "system.notify", "browser.proxy"})
# What takes pictures, records, sends or changes somebody's data must be allowed by name.
COMMANDS: dict[Kind, frozenset[str]] = {
    "ios": _PERSONAL | {"system.notify"},
    "android": _PERSONAL,
    "macos": _PERSONAL | _SYSTEM,
    "windows": _SYSTEM,
    "linux": _SYSTEM,
    "unknown": _SEEING | _SYSTEM,
}
_NAMES: tuple[tuple[str, Kind], ...] = (
    ("ios", "ios"), ("iphone", "ios"), ("ipad", "ios"), ("android", "android"),
    ("darwin", "macos"), ("mac", "macos"), ("win", "windows"), ("linux", "linux"),
)  # fmt: skip


def kind_of(platform: str = "", family: str = "") -> Kind:
    """What a device is, by what it says of itself."""
    for text in (platform.strip().lower(), family.strip().lower()):
        for start, kind in _NAMES:
            if text.startswith(start):
                return kind
    return "unknown"


def allowed_commands(
    kind: Kind, allow: Collection[str] = (), deny: Collection[str] = ()
) -> frozenset[str]:
    """What may be asked of such a device: the kind's own, what is allowed besides, less denied."""
    named = {name.strip() for name in allow if name.strip()}
    return (COMMANDS[kind] | named) - {name.strip() for name in deny}
