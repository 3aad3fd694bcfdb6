"""Who may see which notes: every row has an owner and an audience, and SQL keeps to them.

An audience is `private` (the agent's own person), `shared` (everybody it talks to), or one chat's,
as `chat:telegram-group-7-<hash>`: its past, and the notes in `memory/chats/<name>/`. A session key
says which chat that is, and what is shown there:

- the agent's own conversations: everything;
- a person's direct chat, and scheduled jobs: what is private, what is shared, what is its own;
- a group, a webhook, a sub-agent, and whatever nobody knows: what is shared, and what is its own.
"""

import hashlib
import json
import re
import unicodedata
from functools import lru_cache
from typing import Final

from homarus.core.keys import (
    is_acp,
    is_cron,
    is_hook,
    is_subagent,
    parse_agent_key,
    thread_parent,
)
from homarus.core.principal import OWNER
from homarus.core.value import dataclass
from homarus.tools.pathname import fold

PRIVATE: Final = "private"
SHARED: Final = "shared"
SHARED_FOLDER: Final = "memory/shared"
CHATS_FOLDER: Final = "memory/chats"

_CHAT = "chat:"
_SLUG_CHARS = 48
_HASH_CHARS = 16  # as many as nobody finds a second key for
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_OTHERS = frozenset({"group", "channel"})
_PEOPLE = frozenset({"direct", "dm"})
_OWNED = "notes.owner IN (SELECT value FROM json_each(?))"
_HEARD = "notes.audience IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class View:
    """Who asks: None sees everything, else notes of these owners and of these audiences."""

    owners: frozenset[str] | None = None
    audiences: frozenset[str] | None = None

    def condition(self) -> tuple[str, list[str]]:
        """What stands after WHERE, over `notes`."""
        asked = ((_OWNED, self.owners), (_HEARD, self.audiences))
        parts = [(sql, wanted) for sql, wanted in asked if wanted is not None]
        values = [json.dumps(sorted(wanted)) for _, wanted in parts]
        return " AND ".join(sql for sql, _ in parts), values

    def shows(self, audience: str, owner: str = OWNER.user) -> bool:
        """Whether a note of that audience may be seen: the same, for one that is at hand."""
        asked = ((self.owners, owner), (self.audiences, audience))
        return all(wanted is None or name in wanted for wanted, name in asked)


EVERYTHING: Final = View()


@lru_cache(1_024)
def view_for(session_key: str) -> View:
    """What a conversation may see."""
    match _sort_of(session_key):
        case "own":
            return EVERYTHING
        case "person" | "job":
            seen = {PRIVATE, SHARED, chat_of(session_key)}
        case _:
            seen = {SHARED, chat_of(session_key)}
    return View(audiences=frozenset(seen))


def audience_of(session_key: str) -> str:
    """Who may see what is said in a conversation, and what is noted there."""
    return PRIVATE if _sort_of(session_key) in {"own", "job"} else chat_of(session_key)


def audience_of_path(path: str) -> str:
    """Who may see a file of memory, by its path from the workspace.

    Some disks take `Chats` for `chats`: so a chat's folder is its own in every spelling, and the
    shared one is shared in one.
    """
    if path.isascii() and "chats" not in path.lower() and "shared" not in path:
        return PRIVATE
    parts = path.removeprefix("./").split("/")
    folded = [fold(part) for part in parts]
    for at in range(len(parts) - 3):  # also in a folder that has the whole workspace in it
        if folded[at : at + 2] == ["memory", "chats"]:
            return f"{_CHAT}{folded[at + 2]}"
    return SHARED if parts[:2] == ["memory", "shared"] and len(parts) > 2 else PRIVATE


def folder_of(audience: str) -> str:
    """Where the notes of an audience are, from the workspace."""
    if audience.startswith(_CHAT):
        return f"{CHATS_FOLDER}/{audience.removeprefix(_CHAT)}"
    return SHARED_FOLDER if audience == SHARED else "memory"


def day_note(day: str, audience: str = PRIVATE) -> str:
    """The note of a day, as 2026-01-31, from the workspace."""
    return f"{folder_of(audience)}/{day}.md"


def chat_of(session_key: str) -> str:
    """A chat as an audience. Who is in a thread is in the chat that it hangs on."""
    return f"{_CHAT}{slug_of(_chat_key(session_key))}"


@lru_cache(1_024)
def slug_of(key: str) -> str:
    """A key as the name of a folder: what can be read of it, and a mark that is its own."""
    parsed = parse_agent_key(key)
    words = _NOT_SLUG.sub("-", parsed.rest if parsed else key)[:_SLUG_CHARS].strip("-")
    mark = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{words}-{mark}" if words else mark


def _chat_key(session_key: str) -> str:
    key = session_key.strip().lower()
    while parent := thread_parent(key):
        key = parent
    return key


def _sort_of(session_key: str) -> str:
    """Whose conversation a key names; in doubt, one where strangers listen."""
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
    """A name that the agent's own person gave: `main`, `work`; a heartbeat beside it, a thread."""
    parsed = parse_agent_key(_chat_key(key))
    return parsed is not None and ":" not in parsed.rest.removesuffix(":heartbeat")
