"""Names in the config that stand for several tools, as OpenClaw defines them."""

from collections.abc import Iterable

GROUPS: dict[str, tuple[str, ...]] = {
    "group:fs": ("read", "write", "edit", "apply_patch", "ls", "find", "grep"),
    "group:runtime": ("exec", "process"),
    "group:memory": ("memory_search", "memory_get", "memory_write"),
    "group:web": ("web_search", "web_fetch"),
    "group:sessions": (
        "sessions_list",
        "sessions_history",
        "sessions_send",
        "sessions_spawn",
        "subagents",
        "session_status",
    ),
    "group:ui": ("browser", "canvas"),
    "group:automation": ("cron", "gateway"),
    "group:messaging": ("message",),
    "group:nodes": ("nodes",),
}
ALIASES = {"bash": "exec", "apply-patch": "apply_patch"}


def expand_tool_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return tool names and globs, with groups expanded and aliases replaced."""
    expanded: list[str] = []
    for raw in names:
        name = raw.strip().lower()
        expanded += GROUPS.get(name, (ALIASES.get(name, name),))
    return tuple(dict.fromkeys(expanded))
