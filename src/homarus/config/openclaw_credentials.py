"""Read the model credentials and approved senders in the databases of OpenClaw 2026.9.

Nothing is written. What changes here is in files of our own, which override what is read.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from homarus.config.openclaw_snapshot import DATABASE_NAME, DatabaseStamp, OpenClawSnapshot
from homarus.config.paths import OPENCLAW_DATABASE
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_ACCOUNT, DEFAULT_AGENT
from homarus.core.text import repair_json

_ALLOWED: Final = (
    "SELECT channel_key, account_id, entry FROM channel_pairing_allow_entries"
    " ORDER BY channel_key, account_id, sort_order"
)
# Profiles that all agents share: `authProfiles.store`, and their order in `authProfiles.state`.
_SHARED_PROFILES: Final = (
    "SELECT value_json FROM config_machine_state"
    " WHERE state_key IN ('authProfiles.store', 'authProfiles.state') ORDER BY state_key"
)
_PROFILES: Final = "SELECT store_json FROM auth_profile_store ORDER BY store_key"
_PROFILE_STATES: Final = "SELECT state_json FROM auth_profile_state ORDER BY state_key"


class OpenClawProfiles:
    """The profiles that OpenClaw has for one agent; the main agent has those of all agents, too."""

    def __init__(self, state: Path, agent: str) -> None:
        self._state, self._agent = state, agent
        self._shared = state / OPENCLAW_DATABASE
        self._own = state / "agents" / agent / "agent" / DATABASE_NAME

    def stamp(self) -> object:
        """Return a value that is the same while the databases were not written."""
        return DatabaseStamp.of(self._shared), DatabaseStamp.of(self._own)

    def load(self) -> list[tuple[str, dict[str, Json]]]:
        """Return each database's path and what `auth-profiles.json` would have of it.

        The first one that has a profile wins. Raises StoreError.
        """
        found = list[tuple[str, dict[str, Json]]]()
        with OpenClawSnapshot(self._shared) as shared:
            if table_rows(shared, "SELECT 1 FROM agent_databases LIMIT 1"):
                listed = self._state / dict(shared.listed_databases()).get(self._agent, "")
                self._own = listed if listed.is_file() else self._own  # a home may be moved
            if self._own.is_file():
                with OpenClawSnapshot(self._own) as own:
                    found.append((str(self._own), load_agent_profiles(own)))
            if self._agent == DEFAULT_AGENT:
                found.append((str(self._shared), load_shared_profiles(shared)))
        return found


class OpenClawSenders:
    """The senders that OpenClaw has approved; read again only after a change."""

    def __init__(self, state: Path) -> None:
        self.path = state / OPENCLAW_DATABASE
        self._stamp: DatabaseStamp | None = None
        self._found: dict[tuple[str, str], list[str]] = {}

    def approved(self, channel: str, account: str) -> Sequence[str]:
        """Return the approved senders of an account. Raises StoreError."""
        stamp = DatabaseStamp.of(self.path)
        if stamp != self._stamp:
            self._stamp = None
            with OpenClawSnapshot(self.path) as database:
                self._found = load_approved_senders(database)
            self._stamp = stamp
        return self._found.get((channel, account), ())


def load_agent_profiles(database: OpenClawSnapshot) -> dict[str, Json]:
    """Return the profiles in an agent's database as `auth-profiles.json` has them."""
    return _merge([*table_rows(database, _PROFILES), *table_rows(database, _PROFILE_STATES)])


def load_shared_profiles(database: OpenClawSnapshot) -> dict[str, Json]:
    """Return the profiles in a state database as `auth-profiles.json` has them."""
    return _merge(table_rows(database, _SHARED_PROFILES))


def load_approved_senders(database: OpenClawSnapshot) -> dict[tuple[str, str], list[str]]:
    """Return the approved senders by channel and account."""
    found: dict[tuple[str, str], list[str]] = {}
    for channel, account, entry in table_rows(database, _ALLOWED):
        found.setdefault((str(channel), str(account) or DEFAULT_ACCOUNT), []).append(str(entry))
    return found


def table_rows(database: OpenClawSnapshot, sql: str) -> list[tuple[Json, ...]]:
    """Return the rows of a table that not every version has."""
    table = sql.partition(" FROM ")[2].split()[0]
    known = database.rows("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,))
    return database.rows(sql) if known else []


def decode_object(text: Json) -> dict[str, Json]:
    """Return the object in a column; an empty one if there is none."""
    try:
        found = repair_json(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _merge(rows: Sequence[tuple[Json, ...]]) -> dict[str, Json]:
    """Merge objects with `profiles` and `order`, the first of a name wins."""
    found: dict[str, dict[str, Json]] = {"profiles": {}, "order": {}}
    for (text,) in rows:
        tree = decode_object(text)
        for name, known in found.items():
            inner = tree.get(name)
            found[name] = {**(inner if isinstance(inner, dict) else {}), **known}
    return dict(found)
