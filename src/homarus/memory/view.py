"""What a session sees of memory: every row has an owner and an audience, which SQL filters by.

`policy.audience` says which audience a session and a file have.
"""

import json
from functools import lru_cache
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.principal import OWNER
from homarus.policy.audience import (
    CHATS_FOLDER,
    PRIVATE,
    SHARED,
    SHARED_FOLDER,
    audience_of,
    audience_of_path,
    chat_of,
    day_note,
    folder_of,
    slug_for,
    visible_audiences,
)

__all__ = [
    "CHATS_FOLDER",
    "EVERYTHING",
    "PRIVATE",
    "SHARED",
    "SHARED_FOLDER",
    "MemoryView",
    "audience_of",
    "audience_of_path",
    "chat_of",
    "day_note",
    "folder_of",
    "slug_for",
    "view_for",
]

_OWNED = "notes.owner IN (SELECT value FROM json_each(?))"
_HEARD = "notes.audience IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class MemoryView:
    """What a session sees: None is everything, else notes of these owners and audiences."""

    owners: frozenset[str] | None = None
    audiences: frozenset[str] | None = None

    def condition(self) -> tuple[str, list[str]]:
        """Return the SQL condition over `notes`, for WHERE."""
        asked = ((_OWNED, self.owners), (_HEARD, self.audiences))
        parts = [(sql, wanted) for sql, wanted in asked if wanted is not None]
        values = [json.dumps(sorted(wanted)) for _, wanted in parts]
        return " AND ".join(sql for sql, _ in parts), values

    def shows(self, audience: str, owner: str = OWNER.user) -> bool:
        """Return whether a note of this audience is visible: the same condition in Python."""
        asked = ((self.owners, owner), (self.audiences, audience))
        return all(wanted is None or name in wanted for wanted, name in asked)


EVERYTHING: Final = MemoryView()


@lru_cache(1_024)
def view_for(session_key: str) -> MemoryView:
    """Return the view of a session."""
    audiences = visible_audiences(session_key)
    return EVERYTHING if audiences is None else MemoryView(audiences=audiences)
