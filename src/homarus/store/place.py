"""Where the files of the state directory are, and which paths are refused.

A session id becomes a file name, and `sessionFile` in `sessions.json` is a path that anybody may
have written: neither may lead out of an agent's sessions directory.
"""

import os
import re
import stat
from pathlib import Path
from urllib.parse import quote

from homarus.core.errors import StoreError, UserError
from homarus.core.value import dataclass

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KEEP = "!'()*"  # what encodeURIComponent leaves as it is, beside letters, digits and -._~

DATABASE = "state.sqlite"
LOCK = "state.lock"
INDEX = "sessions.json"


def is_session_id(text: object) -> bool:
    """Whether it may name a transcript file."""
    return isinstance(text, str) and _SESSION_ID.fullmatch(text) is not None


def is_agent_id(text: object) -> bool:
    """Whether it may name an agent's directory."""
    return isinstance(text, str) and _AGENT_ID.fullmatch(text) is not None


def transcript_file_name(session_id: str, topic: str | int | None = None) -> str:
    """`<sessionId>.jsonl`, or `<sessionId>-topic-<topic>.jsonl` for a forum's topic."""
    if not is_session_id(session_id):
        raise UserError(f"Invalid session ID: {session_id}")
    if topic is None:
        return f"{session_id}.jsonl"
    return f"{session_id}-topic-{quote(str(topic), safe=_KEEP, errors='replace')}.jsonl"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What `stat` says of a file: while it is the same, nobody wrote there."""

    size: int
    mtime_ns: int
    inode: int


def stamp_of(path: str | Path) -> Stamp | None:
    """The file's stamp; None when there is no regular file (a link is not followed)."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, for their owner alone."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_folder(path.parent)
        make_folder(path)


class Places:
    """Paths below one state directory, as text: they are asked for in every turn."""

    def __init__(self, state: Path) -> None:
        self.state = state.expanduser().absolute()
        self.database = self.state / DATABASE
        self._homes: dict[str, str] = {}

    def sessions_dir(self, agent: str) -> str:
        home = self._homes.get(agent)
        if home is None:
            if not is_agent_id(agent):
                raise StoreError(f"{agent!r} is not an agent id", fix="use a-z, 0-9, - and _")
            home = self._homes[agent] = str(self.state / "agents" / agent / "sessions")
        return home

    def index(self, agent: str) -> str:
        return f"{self.sessions_dir(agent)}/{INDEX}"

    def agents(self) -> list[str]:
        """The agents that have a sessions.json."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.state / "agents"))
        except OSError:
            return []
        return [name for name in names if is_agent_id(name) and stamp_of(self.index(name))]

    def transcript(self, agent: str, session_id: str, session_file: object = None) -> str:
        """The transcript's path: `session_file` where it may be trusted, else the usual name."""
        default = f"{self.sessions_dir(agent)}/{transcript_file_name(session_id)}"
        if not isinstance(session_file, str) or session_file == default:
            return default
        return self._trusted(session_file, session_id) or default

    def _trusted(self, session_file: str, session_id: str) -> str | None:
        """A file named after the session in the sessions directory of one of our agents."""
        if "\0" in session_file:
            return None
        path = Path(session_file)
        named = path.name == f"{session_id}.jsonl" or (
            path.name.startswith(f"{session_id}-topic-") and path.name.endswith(".jsonl")
        )
        agent = path.parent.parent.name
        if not named or not is_agent_id(agent) or not path.is_absolute():
            return None
        home = Path(self.sessions_dir(agent))
        try:
            same = path.parent == home or path.parent.resolve() == home.resolve()
        except (OSError, RuntimeError):
            return None
        return str(home / path.name) if same else None
