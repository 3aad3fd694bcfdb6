"""Which commands a node may be asked to run, by the kind of its device. Pure."""

from collections.abc import Collection
from typing import Literal, TypeAlias

DeviceKind: TypeAlias = Literal["ios", "android", "macos", "windows", "linux", "unknown"]

_CANVAS = frozenset(
    f"canvas.{verb}"
    for verb in (
        "present", "hide", "navigate", "eval", "snapshot", "a2ui.push", "a2ui.pushJSONL",
        "a2ui.reset",
    )
)  # fmt: skip
_SENSING = _CANVAS | {"camera.list", "location.get"}
_PERSONAL = _SENSING | {
    "device.info", "device.status", "contacts.search", "calendar.events", "reminders.list",
    "photos.latest", "motion.activity", "motion.pedometer",
}  # fmt: skip
_SYSTEM = frozenset({"system.run", "system.which", "system.notify", "browser.proxy"})
# Commands that take pictures, record, send or change personal data must be allowed by name.
COMMANDS: dict[DeviceKind, frozenset[str]] = {
    "ios": _PERSONAL | {"system.notify"},
    "android": _PERSONAL,
    "macos": _PERSONAL | _SYSTEM,
    "windows": _SYSTEM,
    "linux": _SYSTEM,
    "unknown": _SENSING | _SYSTEM,
}
_NAMES: tuple[tuple[str, DeviceKind], ...] = (
    ("ios", "ios"), ("iphone", "ios"), ("ipad", "ios"), ("android", "android"),
    ("darwin", "macos"), ("mac", "macos"), ("win", "windows"), ("linux", "linux"),
)  # fmt: skip


def device_kind(platform: str = "", family: str = "") -> DeviceKind:
    """Return the kind of a device from its platform and family."""
    for text in (platform.strip().lower(), family.strip().lower()):
        for start, kind in _NAMES:
            if text.startswith(start):
                return kind
    return "unknown"


def allowed_commands(
    kind: DeviceKind, allow: Collection[str] = (), deny: Collection[str] = ()
) -> frozenset[str]:
    """Return the commands allowed on a device: those of its kind and `allow`, without `deny`."""
    named = {name.strip() for name in allow if name.strip()}
    return (COMMANDS[kind] | named) - {name.strip() for name in deny}
