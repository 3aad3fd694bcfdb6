"""Where settings of OpenClaw's earlier versions have moved, and whether a config is of a later one.

OpenClaw's own doctor moves the legacy keys; we name the new place.
"""

import re
from collections.abc import Mapping

from homarus.config.json5_document import KeyPath, Value

KEYS_VERSION = "2026.2.17"  # of the OpenClaw whose keys `original_keys.txt` lists
_CONVERTED = (2026, 9)  # the version whose config is converted: newer_config.py
_CHANNELS = ("whatsapp", "telegram", "discord", "slack", "signal", "imessage", "msteams")
# The legacy key, `*` for any list entry, and its new place.
_MOVED = {
    **{name: f"channels.{name}" for name in _CHANNELS},
    "gateway.token": "gateway.auth.token",
    "gateway.password": "gateway.auth.password",
    "bindings.*.match.provider": "bindings[].match.channel",
    "bindings.*.match.accountID": "bindings[].match.accountId",
    "identity": "agents.list[].identity",
    "memorySearch": "agents.defaults.memorySearch",
    "heartbeat": "agents.defaults.heartbeat",
    "tools.bash": "tools.exec",
    "agents.list.*.tools.bash": "agents.list[].tools.exec",
    "channels.telegram.requireMention": 'channels.telegram.groups["*"].requireMention',
    "agents.defaults.allowedModels": "agents.defaults.models",
    "agents.defaults.modelAliases": "agents.defaults.models[].alias",
    "agents.defaults.modelFallbacks": "agents.defaults.model.fallbacks",
    "agents.defaults.imageModelFallbacks": "agents.defaults.imageModel.fallbacks",
    "agents.defaults.bash": "tools.exec",
    "agents.defaults.tools": "tools",
    "agents.defaults.elevated": "tools.elevated",
    "routing.allowFrom": "channels.whatsapp.allowFrom",
    "routing.bindings": "bindings",
    "routing.agents": "agents.list",
    "routing.defaultAgentId": "agents.list[].default",
    "routing.agentToAgent": "tools.agentToAgent",
    "routing.queue": "messages.queue",
    "routing.transcribeAudio": "tools.media.audio.models",
    "routing.groupChat.requireMention": 'channels.<name>.groups["*"].requireMention',
    "routing.groupChat": "messages.groupChat",
    "routing": "bindings, agents.list and messages",
}
_VERSION = re.compile(r"(\d{4})\.(\d+)\.(\d+)")


def find_new_place(path: KeyPath) -> str:
    """Return where a legacy key has moved; empty if the path is no legacy key."""
    steps = ["*" if isinstance(step, int) else step for step in path]
    return _MOVED.get(".".join(steps), "")


def legacy_paths(path: KeyPath, value: Value) -> list[KeyPath]:
    """Return the paths of the legacy keys in a legacy section, else the path itself."""
    inner = [(*path, key) for key in value] if isinstance(value, Mapping) else []
    moved = [each for each in inner if find_new_place(each)]
    return moved if moved and len(moved) == len(inner) else [path]


def newer_version(tree: Mapping[str, Value]) -> str:
    """Return the version of OpenClaw that wrote a config, if it is newer than the known keys."""
    found = _written_by(tree)
    known = _VERSION.match(KEYS_VERSION)
    if not found or not known or _numbers(found) <= _numbers(known):
        return ""
    return found[0]


def is_unknown_version(tree: Mapping[str, Value]) -> bool:
    """Return whether a config is of a newer OpenClaw than 2026.2, and not of 2026.9."""
    found = _written_by(tree)
    return bool(newer_version(tree) and found and _numbers(found)[:2] != _CONVERTED)


def is_newer_config(tree: Mapping[str, Value]) -> bool:
    """Return whether a config has the shape of OpenClaw 2026.9, by its keys or its version."""
    for section, key in (("agents", "entries"), ("memory", "search"), ("meta", "migrations")):
        if isinstance(inner := tree.get(section), Mapping) and key in inner:
            return True
    found = _written_by(tree)
    return bool(found and _numbers(found)[:2] >= _CONVERTED)


def _written_by(tree: Mapping[str, Value]) -> re.Match[str] | None:
    meta = tree.get("meta")
    written = meta.get("lastTouchedVersion") if isinstance(meta, Mapping) else None
    return _VERSION.match(written) if isinstance(written, str) else None


def _numbers(found: re.Match[str]) -> tuple[int, ...]:
    return tuple(map(int, found.groups()))
