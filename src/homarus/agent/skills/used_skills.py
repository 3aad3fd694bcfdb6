"""Which skills a conversation uses: those whose SKILL.md its model has read. Pure.

The calls of `read` in the transcript say so, also after a restart. A compaction removes calls from
what the model is sent; their paths are then kept in the session's entry.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from homarus.core.message import Json, Message, ToolCall, ToolResult

FIELD: Final = "skillsRead"  # of a session's entry: paths, as the model wrote them
_READ_TOOLS: Final = frozenset({"read", "file_read"})
_PATHS: Final = ("path", "file_path")
_FILE: Final = "SKILL.md"
_MAX_PATHS: Final = 50


def find_read_paths(entry: Mapping[str, Json], messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the paths of the SKILL.md files that were read, as the model wrote them."""
    stored = entry.get(FIELD)
    earlier = [str(path) for path in stored] if isinstance(stored, list) else []
    return tuple(dict.fromkeys((*earlier, *_paths_in(messages))))


def read_fields(entry: Mapping[str, Json], messages: Sequence[Message]) -> dict[str, Json]:
    """Return the field of a session's entry for a compaction of these messages; {} if unchanged."""
    paths = [*find_read_paths(entry, messages)][-_MAX_PATHS:]
    return {FIELD: paths} if paths and paths != entry.get(FIELD) else {}


def _paths_in(messages: Sequence[Message]) -> Iterator[str]:
    called: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall) and (path := _read_path(part)):
                called[part.id] = path
            elif isinstance(part, ToolResult) and part.call_id in called and not part.is_error:
                yield called[part.call_id]


def _read_path(call: ToolCall) -> str:
    if call.name.strip().lower() not in _READ_TOOLS:
        return ""
    path = next((call.args[name] for name in _PATHS if name in call.args), "")
    return path if isinstance(path, str) and path.endswith(_FILE) else ""


def resolve_read_path(path: str, *, workspace: str, home: str, inside: Sequence[str] = ()) -> str:
    """Return a path of a `read` call as an absolute one of this machine.

    `inside` are the paths that the workspace has in a sandbox.
    """
    if path.startswith("~/"):
        path = f"{home}{path[1:]}"
    for root in inside:
        if path.startswith(f"{root}/"):
            path = f"{workspace}{path[len(root) :]}"
            break
    return posixpath.normpath(posixpath.join(workspace, path))
