"""Names of servers' tools for models and rules: `server__tool`, in letters that all accept."""

import hashlib
import re
from collections.abc import Container
from typing import Final

from homarus.policy.tool_policy import normalize_tool_name

MAX_NAME_CHARS: Final = 64
SEPARATOR: Final = "__"
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_SUFFIX_CHARS: Final = 8


def make_tool_name(server: str, tool: str, taken: Container[str] = ()) -> str:
    """Return the name of a tool; `taken` has normalized names that others have.

    A name that is too long, or taken, ends in a suffix that depends on the server and the tool
    alone: it is the same at every start.
    """
    name = _OTHER.sub("_", f"{server}{SEPARATOR}{tool}")
    if len(name) <= MAX_NAME_CHARS and normalize_tool_name(name) not in taken:
        return name
    for attempt in range(1_000):
        digest = hashlib.sha256(f"{server}\0{tool}\0{attempt}".encode("utf-8", "surrogatepass"))
        suffix = f"_{digest.hexdigest()[: _SUFFIX_CHARS - 1]}"
        found = name[: MAX_NAME_CHARS - _SUFFIX_CHARS] + suffix
        if normalize_tool_name(found) not in taken:
            return found
    raise ValueError("every name is taken")
