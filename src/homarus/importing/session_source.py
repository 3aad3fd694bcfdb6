"""Read the sessions of an agent's folder, in every form that such a folder had.

- `sessions.json` is a map of session keys, or an array of `{id, name, updated_at}`, or missing;
- a transcript has typed entries, or bare rows `{role, content}`;
- `<id>-topic-<n>.jsonl` is the transcript of a forum topic, with or without an entry of its own.

A transcript that no session names is an old one if the index is a map, and a session otherwise.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from hashlib import blake2b
from typing import BinaryIO, Final
from urllib.parse import unquote

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.session_keys import canonical_key, parse_agent_key
from homarus.importing.report import ImportReport
from homarus.importing.source_tree import RefusedSourceError, SourceTree
from homarus.store.base import TranscriptEntry, TranscriptHeader
from homarus.store.sessions_file import convert_array, parse_index
from homarus.store.state_paths import INDEX, is_agent_id, is_session_id
from homarus.store.transcript_codec import decode_header, parse_ms
from homarus.store.transcript_scan import scan_transcript

MAX_INDEX_BYTES: Final = 128 << 20
MAX_TRANSCRIPT_BYTES: Final = 512 << 20
_TOPIC: Final = "-topic-"
_ARCHIVED: Final = re.compile(r".+\.jsonl\.reset\.[0-9TZ.:-]{1,40}")
_MAX_ID_CHARS: Final = 100
# What a topic has in common with the session of its forum.
_SHARED_BY_TOPICS: Final = frozenset({"displayName", "updatedAt", "chatType", "channel", "subject"})


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A session record of a source, under the key that it gets here."""

    key: str
    agent: str
    updated_ms: int
    data: Mapping[str, Json]


@dataclass(slots=True)
class SourceSession:
    """A transcript of a source, and the session records that name it."""

    session_id: str
    agent: str
    file: str = ""  # its name, if it has one; a topic's differs from the session id
    records: dict[str, SourceRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceTranscript:
    """The entries of a transcript, in the order of appending, and how many lines were damaged."""

    header: TranscriptHeader | None = None
    entries: tuple[TranscriptEntry, ...] = ()
    damaged: int = 0
    leaf: str = ""  # the entry that the next one follows; "" for the last one


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """The sessions in one folder, and the names of old transcripts."""

    tree: SourceTree
    path: str
    agent: str
    sessions: tuple[SourceSession, ...]
    old: tuple[str, ...]

    def read(self, session: SourceSession) -> SourceTranscript:
        """Read a transcript; one without a file is empty. Raises RefusedSourceError."""
        path = f"{self.path}/{session.file or f'{session.session_id}.jsonl'}"
        try:
            with self.tree.open(path, MAX_TRANSCRIPT_BYTES) as file:
                return make_transcript(file, session)
        except FileNotFoundError:
            return SourceTranscript()
        except OSError as exc:
            raise RefusedSourceError(exc.strerror or "cannot be read") from exc

    def open_old(self, name: str) -> BinaryIO:
        """Open an old transcript. Raises FileNotFoundError or RefusedSourceError."""
        return self.tree.open(f"{self.path}/{name}", MAX_TRANSCRIPT_BYTES)


def make_transcript(file: BinaryIO, session: SourceSession, leaf: str = "") -> SourceTranscript:
    """Read the lines of a transcript. Raises OSError."""
    scan = scan_transcript(file)
    entries = tuple(found.entry for found in scan.found)
    if scan.header:
        header = decode_header(scan.header, session.session_id, session.agent)
    else:
        at_ms = next((entry.at_ms for entry in entries if entry.at_ms), 0)
        header = TranscriptHeader(session.session_id, session.agent, at_ms)
    is_known = any(entry.id == leaf for entry in entries)
    return SourceTranscript(header, entries, len(scan.bad), leaf if is_known else "")


def read_folder(tree: SourceTree, path: str, agent: str, report: ImportReport) -> SessionFolder:
    """List the sessions of a folder."""
    index, is_map = _read_index(tree, path, agent, report)
    reader = FolderReader(agent, report)
    for key, entry in index.items():
        reader.add_entry(key, entry)
    claimed = {session.file for session in reader.sessions.values()}
    old: list[str] = []
    for name in tree.names(path):
        stem = name.removesuffix(".jsonl")
        if name in claimed or not is_transcript_name(name):
            continue
        if stem != name and reader.add_topic(stem):
            continue
        if is_map or not is_session_id(stem) or stem == name:
            old.append(name)
        else:
            reader.add_entry(f"agent:{agent}:{stem.lower()}", {"sessionId": stem})
    return SessionFolder(tree, path, agent, tuple(reader.sessions.values()), tuple(old))


def is_transcript_name(name: str) -> bool:
    """Return whether a file is a transcript: in use, or archived when its session was reset."""
    return name.endswith(".jsonl") or _ARCHIVED.fullmatch(name) is not None


def split_topic(stem: str) -> Iterator[tuple[str, str]]:
    """Yield each way to read a name as `<session id>-topic-<n>`: an id may contain that, too."""
    at = stem.find(_TOPIC)
    while at > 0:
        yield stem[:at], stem[at + len(_TOPIC) :]
        at = stem.find(_TOPIC, at + 1)


class FolderReader:
    """Collects the sessions of one folder or database by the file of their transcript."""

    def __init__(self, agent: str, report: ImportReport) -> None:
        self._agent, self._report = agent, report
        self._keys: set[str] = set()
        self.sessions: dict[str, SourceSession] = {}

    def add_entry(self, key: str, entry: Json) -> None:
        if not isinstance(entry, dict) or not is_session_id(entry.get("sessionId")):
            self._report.add("sessions", "skipped", key, "skipped: it names no session id")
            return
        try:
            stored = canonical_key(key, self._agent)
        except UserError as exc:
            self._report.add("sessions", "skipped", key, f"skipped: {exc.message}")
            return
        if stored in self._keys:
            self._report.add("sessions", "skipped", key, f"skipped: a second {stored}")
            return
        self._keys.add(stored)
        session_id = entry["sessionId"]
        name = _file_name(session_id, entry.get("sessionFile"))
        parsed = parse_agent_key(stored)
        agent = parsed.agent if parsed and is_agent_id(parsed.agent) else self._agent
        data = {name: value for name, value in entry.items() if name != "sessionFile"}
        record = SourceRecord(stored, agent, parse_ms(entry.get("updatedAt")), data)
        session = self.sessions.setdefault(name, SourceSession(session_id, agent, name))
        session.records[stored] = record

    def add_topic(self, stem: str) -> bool:
        """Add the transcript of a topic whose forum is a session; return whether it is one."""
        found = (
            (forum, topic)
            for base, topic in split_topic(stem)
            if (forum := self.sessions.get(f"{base}.jsonl"))
        )
        forum, topic = next(found, (None, ""))
        if forum is None:
            return False
        parent = next(iter(forum.records.values()))
        try:
            key = canonical_key(f"{parent.key}:topic:{unquote(topic)}", self._agent)
        except UserError:
            return False
        if key in self._keys:
            return False  # the topic has a newer conversation
        session_id = stem if is_session_id(stem) else _short_id(stem)
        kept = {key: value for key, value in parent.data.items() if key in _SHARED_BY_TOPICS}
        data = {**kept, "sessionId": session_id}
        self._keys.add(key)
        self.sessions[f"{stem}.jsonl"] = SourceSession(
            session_id,
            forum.agent,
            f"{stem}.jsonl",
            {key: SourceRecord(key, parent.agent, parent.updated_ms, data)},
        )
        return True


def _read_index(
    tree: SourceTree, path: str, agent: str, report: ImportReport
) -> tuple[dict[str, Json], bool]:
    """Return the entries of the index by key, and whether it is a map."""
    place = f"{path}/{INDEX}"
    try:
        value = parse_index(tree.read(place, MAX_INDEX_BYTES).decode("utf-8", "replace"))
    except FileNotFoundError:
        return {}, False
    except RefusedSourceError as exc:
        report.note("sessions", place, f"not read, so each transcript becomes a session: it {exc}")
        return {}, False
    if isinstance(value, list):
        found = convert_array(value, agent)
        for _ in range(len(value) - len(found)):
            report.add("sessions", "skipped", place, "skipped: a row without a valid id")
        return found, False
    if not isinstance(value, dict):
        report.note("sessions", place, "damaged, so each transcript becomes a session")
        return {}, False
    return value, True


def _file_name(session_id: str, named: Json) -> str:
    name = named.replace("\\", "/").rpartition("/")[2] if isinstance(named, str) else ""
    is_topic = name.startswith(f"{session_id}{_TOPIC}") and name.endswith(".jsonl")
    return name if is_topic else f"{session_id}.jsonl"


def _short_id(stem: str) -> str:
    """Return a session id for a topic whose file name is not one."""
    base = stem.partition(_TOPIC)[0][:_MAX_ID_CHARS]
    return f"{base}-topic-{blake2b(stem.encode(), digest_size=4).hexdigest()}"
