"""Resolve the paths of the state directory and refuse unsafe ones.

A session id becomes a file name, and `sessionFile` in `sessions.json` is a path that any program
may have written: neither may lead out of an agent's sessions directory.
"""

import os
import re
from pathlib import Path
from urllib.parse import quote

from homarus.config.paths import SessionStorePath
from homarus.core.errors import StoreError, UserError
from homarus.core.file_stamp import FileStamp as FileStamp  # noqa: PLC0414 - a part of this module's interface
from homarus.core.file_stamp import stat_stamp as stat_stamp  # noqa: PLC0414 - a part of this module's interface
from homarus.core.private_files import make_private_dir as make_private_dir  # noqa: PLC0414 - a part of this module's interface

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KEEP = "!'()*"  # what encodeURIComponent does not encode, in addition to letters, digits and -._~

DATABASE = "state.sqlite"
REPAIRED = "state.sqlite.repaired"  # complete: only its rename is missing
LOCK = "state.lock"
INDEX = "sessions.json"


def is_session_id(text: object) -> bool:
    """Return whether the text may name a transcript file."""
    return isinstance(text, str) and _SESSION_ID.fullmatch(text) is not None


def is_agent_id(text: object) -> bool:
    """Return whether the text may name an agent's directory."""
    return isinstance(text, str) and _AGENT_ID.fullmatch(text) is not None


def transcript_file_name(session_id: str, topic: str | int | None = None) -> str:
    """Return `<sessionId>.jsonl`, or `<sessionId>-topic-<topic>.jsonl` for a forum's topic."""
    if not is_session_id(session_id):
        raise UserError(f"Invalid session ID: {session_id}")
    if topic is None:
        return f"{session_id}.jsonl"
    return f"{session_id}-topic-{quote(str(topic), safe=_KEEP, errors='replace')}.jsonl"


class StatePaths:
    """Paths below one state directory, as text, because every turn needs them."""

    def __init__(self, state: Path, store: SessionStorePath | None = None) -> None:
        self.state = state.expanduser().absolute()
        self.database = self.state / DATABASE
        self._store = store
        self._indexes: dict[str, str] = {}

    def sessions_dir(self, agent: str) -> str:
        return self.index(agent).rpartition("/")[0]

    def index(self, agent: str) -> str:
        """Return the path of an agent's sessions.json, or of what `session.store` names."""
        index = self._indexes.get(agent)
        if index is None:
            if not is_agent_id(agent):
                raise StoreError(f"{agent!r} is not an agent id", fix="use a-z, 0-9, - and _")
            named = self._store.index(agent) if self._store else None
            index = self._indexes[agent] = named or f"{self._default_dir(agent)}/{INDEX}"
        return index

    def index_key(self, agent: str) -> str:
        """Return under which key the stamp of an agent's index is stored: another file, another."""
        index = self.index(agent)
        return agent if index == f"{self._default_dir(agent)}/{INDEX}" else f"{agent}@{index}"

    def stored_path(self, path: Path) -> str:
        """Return a transcript's path as the database has it: relative in the default place."""
        agent = path.parent.parent.name
        is_default = str(path.parent) == self._default_dir(agent)
        return f"agents/{agent}/sessions/{path.name}" if is_default else str(path)

    def agents(self) -> list[str]:
        """Return the agents that have a sessions.json."""
        try:
            names = {entry.name for entry in os.scandir(self.state / "agents")}
        except OSError:
            names = set()
        if self._store:
            names |= self._store.find_agents()
        return sorted(name for name in names if is_agent_id(name) and stat_stamp(self.index(name)))

    def _default_dir(self, agent: str) -> str:
        return str(self.state / "agents" / agent / "sessions")

    def transcript(self, agent: str, session_id: str, session_file: object = None) -> str:
        """Return the transcript's path: `session_file` where it is safe, else the default name."""
        default = f"{self.sessions_dir(agent)}/{transcript_file_name(session_id)}"
        if not isinstance(session_file, str) or session_file == default:
            return default
        return self._trusted(session_file, session_id, self.sessions_dir(agent)) or default

    def _trusted(self, session_file: str, session_id: str, own_dir: str) -> str | None:
        """Return a file that is named after the session in the sessions directory of an agent."""
        if "\0" in session_file:
            return None
        path = Path(session_file)
        named = path.name == f"{session_id}.jsonl" or (
            path.name.startswith(f"{session_id}-topic-") and path.name.endswith(".jsonl")
        )
        if not named or not path.is_absolute():
            return None
        agent, folders = path.parent.parent.name, [Path(own_dir)]
        if is_agent_id(agent):
            folders.append(Path(self._default_dir(agent)))
        try:
            is_in = next(
                (f for f in folders if path.parent == f or path.parent.resolve() == f.resolve()),
                None,
            )
        except (OSError, RuntimeError):
            return None
        return str(is_in / path.name) if is_in else None
