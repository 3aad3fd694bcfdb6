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
GROUPS["group:openclaw"] = (
    *GROUPS["group:ui"], *GROUPS["group:nodes"], *GROUPS["group:automation"],
    *GROUPS["group:messaging"], "agents_list", *GROUPS["group:sessions"], *GROUPS["group:memory"],
    *GROUPS["group:web"], "image",
)  # fmt: skip
PROFILES: dict[str, tuple[str, ...]] = {
    "minimal": ("group:memory", "session_status"),
    "coding": ("group:memory", "group:fs", "group:runtime", "group:sessions", "image"),
    "messaging": (
        "group:memory", "group:messaging",
        "sessions_list", "sessions_history", "sessions_send", "session_status",
    ),
    "full": ("*",),
}  # fmt: skip
# Other names of tools in allow and deny lists.
ALIASES = {
    "bash": "exec", "shell": "exec", "code_run": "exec", "apply-patch": "apply_patch",
    "file_read": "read", "file_write": "write", "channel_send": "message", "dm_send": "message",
}  # fmt: skip


def expand_tool_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return tool names and globs, with groups expanded and aliases replaced."""
    expanded: list[str] = []
    for raw in names:
        name = raw.strip().lower()
        expanded += GROUPS.get(name, (ALIASES.get(name, name),))
    return tuple(dict.fromkeys(expanded))
