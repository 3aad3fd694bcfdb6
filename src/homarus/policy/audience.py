"""Decide which audience a session and a workspace file belong to. Pure.

An audience is `private` (the agent's owner), `shared` (everybody the agent talks to), or that of
one chat, as `chat:telegram-group-7-<hash>`: its transcripts, and the notes in
`memory/chats/<name>/`. The session key determines the chat, and what is shown there: the agent's
own sessions see everything; a person's direct chat and scheduled jobs see private, shared and their
own notes; a group, a webhook, a sub-agent and every unknown session see shared and their own notes.
"""

import hashlib
import re
import unicodedata
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from homarus.core.session_keys import (
    is_acp,
    is_cron,
    is_hook,
    is_subagent,
    parse_agent_key,
    thread_parent,
)
from homarus.core.text import fold_name

# Who reads a session: the owner in one of the agent's own, one person, a job, other people.
SessionReaders: TypeAlias = Literal["own", "person", "job", "others"]

PRIVATE: Final = "private"
SHARED: Final = "shared"
SHARED_FOLDER: Final = "memory/shared"
CHATS_FOLDER: Final = "memory/chats"

_CHAT = "chat:"
_SLUG_CHARS = 48
_HASH_CHARS = 16  # enough to make collisions infeasible
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_OTHERS = frozenset({"group", "channel"})
_PEOPLE = frozenset({"direct", "dm"})


@lru_cache(1_024)
def visible_audiences(session_key: str) -> frozenset[str] | None:
    """Return the audiences whose notes a session sees; None is all of them."""
    match session_readers(session_key):
        case "own":
            return None
        case "person" | "job":
            return frozenset({PRIVATE, SHARED, chat_of(session_key)})
        case _:
            return frozenset({SHARED, chat_of(session_key)})


def audience_of(session_key: str) -> str:
    """Return the audience of what is said and noted in a session."""
    return PRIVATE if session_readers(session_key) in {"own", "job"} else chat_of(session_key)


def audience_of_path(path: str) -> str:
    """Return the audience of a memory file by its path in the workspace.

    Some disks do not distinguish `Chats` from `chats`: a chat's folder is its own in every
    spelling, and the shared folder is shared in one spelling only.
    """
    if path.isascii() and "chats" not in path.lower() and "shared" not in path:
        return PRIVATE
    parts = path.removeprefix("./").split("/")
    folded = [fold_name(part) for part in parts]
    for at in range(len(parts) - 3):  # also below a folder that contains the workspace
        if folded[at : at + 2] == ["memory", "chats"]:
            return f"{_CHAT}{folded[at + 2]}"
    return SHARED if parts[:2] == ["memory", "shared"] and len(parts) > 2 else PRIVATE


def folder_of(audience: str) -> str:
    """Return the folder of an audience's notes, relative to the workspace."""
    if audience.startswith(_CHAT):
        return f"{CHATS_FOLDER}/{audience.removeprefix(_CHAT)}"
    return SHARED_FOLDER if audience == SHARED else "memory"


def day_note(day: str, audience: str = PRIVATE) -> str:
    """Return the daily note of a day (2026-01-31), relative to the workspace."""
    return f"{folder_of(audience)}/{day}.md"


def chat_of(session_key: str) -> str:
    """Return the audience of a chat. Members of a thread are members of its chat."""
    return f"{_CHAT}{slug_for(_chat_key(session_key))}"


@lru_cache(1_024)
def slug_for(key: str) -> str:
    """Return the folder name of a key: a readable part and a unique hash."""
    parsed = parse_agent_key(key)
    words = _NOT_SLUG.sub("-", parsed.rest if parsed else key)[:_SLUG_CHARS].strip("-")
    mark = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{words}-{mark}" if words else mark


def _chat_key(session_key: str) -> str:
    key = session_key.strip().lower()
    while parent := thread_parent(key):
        key = parent
    return key


@lru_cache(1_024)
def session_readers(session_key: str) -> SessionReaders:
    """Return who reads a session; an unknown one counts as visible to unknown people."""
    key = unicodedata.normalize("NFKC", session_key).strip().lower()
    parsed = parse_agent_key(key)
    if parsed is None or is_subagent(key) or is_hook(key):
        return "others"
    if is_cron(key):
        return "job"
    marks = {*parsed.rest.split(":")}
    if _OTHERS & marks:
        return "others"
    if is_acp(key) or (not _PEOPLE & marks and _is_plain(key)):
        return "own"
    return "person"


def _is_plain(key: str) -> bool:
    """Return whether the owner chose the name: `main`, `work`, also with a heartbeat or thread."""
    parsed = parse_agent_key(_chat_key(key))
    return parsed is not None and ":" not in parsed.rest.removesuffix(":heartbeat")
