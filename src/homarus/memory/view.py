"""Who may see which notes: every row has an owner and an audience, and SQL keeps to them.

An audience is `private` (the agent's own person), `shared` (everybody it talks to), or the key of
one conversation. A group is shown what is shared and what is its own, whatever the scope says.
"""

import json
from typing import Final

from homarus.core.value import dataclass

PRIVATE: Final = "private"
SHARED: Final = "shared"

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


EVERYTHING: Final = View()
