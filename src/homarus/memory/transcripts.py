"""Render session transcripts as Markdown notes that can be searched and cited.

`<agent>/sessions/<id>.jsonl` becomes `sessions/<id>.md`: the messages of users and of the agent,
without tool calls and thinking. A transcript only grows, and so does its rendering: a cited line
keeps its number when the session continues.

The audience of a transcript follows from its session key in `sessions.json`. A transcript without a
key there, or with several that disagree, is shown in the agent's own sessions alone.
"""

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from homarus.config.timezone import load_zone, local_date
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.principal import OWNER
from homarus.core.session_keys import canonical_key
from homarus.memory.cleaning import clean_assistant, clean_user
from homarus.memory.note_files import NoteContent, NoteFile, SkippedFile
from homarus.memory.spec import MemorySpec
from homarus.memory.view import MemoryView, audience_of
from homarus.store.state_paths import FileStamp, is_session_id, stat_stamp
from homarus.store.transcript_codec import load_json, parse_ms

FOLDER: Final = "sessions"
UNCLAIMED: Final = "unclaimed"  # an audience that no chat has
MAX_LINE_BYTES: Final = 16 << 20  # an image of some megabytes is a normal line
MAX_CHARS: Final = 32 << 20
MAX_INDEX_BYTES: Final = 64 << 20

_DAY_MS = 86_400_000
_QUIET_MS = 3_600_000  # a session that was idle this long is read to its end
_EDGE_BYTES = 64 << 10
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FILE = re.compile(
    r"([A-Za-z0-9][\w.%~!'()*-]{0,240})\.jsonl(?:\.reset\.([0-9TZ.:-]{1,40}))?", re.ASCII
)
_TOPIC = "-topic-"
_TEXTS = frozenset({"text", "input_text", "output_text"})
_Span: TypeAlias = tuple[FileStamp, int, int]  # times of the first and the last message, if known
_SPEAKERS = {"user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, slots=True)
class RenderedTranscript:
    """A transcript as Markdown; `stamp` identifies the version of the file that was read.

    `unread` counts the lines that could not be parsed.
    """

    text: str
    hash: str
    stamp: FileStamp
    ctime_ns: int
    messages: int = 0
    unread: int = 0
    is_whole: bool = True  # false: it was cut at the size limit


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """A transcript file, its name in results, and its audience."""

    file: Path
    path: str
    audience: str
    stamp: FileStamp
    first_ms: int
    last_ms: int


def wants_sessions(spec: MemorySpec) -> bool:
    """Return whether transcripts are searched."""
    search = spec.search
    asked = "sessions" in search.sources and search.experimental.session_memory
    return asked or spec.settings.qmd.sessions.enabled


# --- rendering ---------------------------------------------------------------------------------


def render_transcript(file: Path, *, timezone: str = "") -> RenderedTranscript:
    """Render the messages of a transcript. Raises OSError when the file cannot be read."""
    with _opened(file) as source:
        status = os.fstat(source.fileno())
        page = _TranscriptRenderer(_stem(file.name), timezone)
        known_by = hashlib.sha256()
        size = 0
        for data, is_read in _lines(source):
            known_by.update(data)
            size += len(data)
            if is_read:
                page.take(data)
    return RenderedTranscript(
        page.text(),
        known_by.hexdigest(),
        FileStamp(size, status.st_mtime_ns, status.st_ino),
        status.st_ctime_ns,
        page.messages,
        page.unread,
        page.is_whole,
    )


class _TranscriptRenderer:
    """Collect lines of Markdown, message by message: day, speaker, text."""

    def __init__(self, title: str, timezone: str) -> None:
        self._lines = [f"# Conversation {title}"]
        self._zone = timezone if timezone and load_zone(timezone) else "UTC"
        self._day = ""
        self._seen: set[str] = set()
        self._chars = 0
        self.messages = self.unread = 0
        self.is_whole = True

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def take(self, data: bytes) -> None:
        """Add one line of the file."""
        stripped = data.strip(b"\0 \t\r\n")
        if not stripped:
            return
        try:
            value = load_json(stripped.decode("utf-8", "replace").removeprefix("\ufeff"))
        except ValueError:
            self.unread += 1
            return
        message = _message(value)
        if message is None or not self.is_whole or self._is_known(value):
            return
        role = str(message["role"])
        words = _words(message.get("content"))
        said = clean_user(words) if role == "user" else clean_assistant(words)
        if said:
            self._say(_SPEAKERS[role], said, _at_ms(value))

    def _is_known(self, value: Mapping[str, Any]) -> bool:
        """Return whether the line is a repetition: two programs may have appended the same one."""
        name = value.get("id")
        if not isinstance(name, str) or not name:
            return False
        if name in self._seen:
            return True
        self._seen.add(name)
        return False

    def _say(self, who: str, said: str, at_ms: int) -> None:
        self._chars += len(said)
        if self._chars > MAX_CHARS:
            self.is_whole = False
            return
        self.messages += 1
        day = _day(self._zone, at_ms)
        if day and day != self._day:
            self._day = day
            self._lines += ["", f"## {day}", ""]
        # The speaker is on every line, so that each can be cited alone and none can be forged.
        self._lines += [f"{who}: {line.strip()}" for line in said.split("\n") if line.strip()]


def _message(value: Any) -> dict[str, Any] | None:
    """Return a message of a user or the agent; rows with a role but no type are an older format."""
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    message = value.get("message") if kind == "message" else value if not kind else None
    if not isinstance(message, dict) or str(message.get("role")) not in _SPEAKERS:
        return None
    return message


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part for part in content if isinstance(part, dict) and str(part.get("type")) in _TEXTS)
    return "\n".join(text for part in parts if isinstance(text := part.get("text"), str))


def _at_ms(value: Any) -> int:
    """Return when an entry was made; 0 if it does not say."""
    if not isinstance(value, dict):
        return 0
    message = value.get("message")
    own = message.get("timestamp") if isinstance(message, dict) else None
    return max(0, parse_ms(value.get("timestamp")) or parse_ms(own))


def _day(zone: str, at_ms: int) -> str:
    if not at_ms:
        return ""
    try:
        return local_date(zone, at_ms)
    except (OverflowError, OSError, ValueError):  # a transcript is untrusted input
        return ""


def _lines(source: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a file, and whether each is complete: overlong ones come in parts."""
    within = False
    while data := source.readline(MAX_LINE_BYTES):
        ends = data.endswith(b"\n")
        is_long = len(data) == MAX_LINE_BYTES and not ends
        yield data, not within and not is_long
        within = (within or is_long) and not ends


def _opened(file: Path) -> BinaryIO:
    """Open a regular file; links are not followed, and pipes do not block."""
    descriptor = os.open(file, _OPEN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{file} is not a file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


# --- finding -----------------------------------------------------------------------------------


class TranscriptSource:
    """The transcripts of one agent. What was read of a file is cached while it is unchanged."""

    def __init__(self, spec: MemorySpec) -> None:
        self._spec = spec
        self._claims: tuple[FileStamp | None, Mapping[str, frozenset[str]]] = (None, {})
        self._spans: Mapping[str, _Span] = {}

    def find(self, now_ms: int | None = None, only: str = "") -> list[TranscriptFile]:
        """Return the transcripts within retention, also of reset sessions, not of deleted ones.

        `only` is the path of a single transcript to return.
        """
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        days = self._spec.settings.qmd.sessions.retention_days
        oldest_ms = now_ms - days * _DAY_MS if days else 0
        spans: dict[str, _Span] = {}  # another thread may be using the previous dict
        found = [one for one in self._list(now_ms, spans, only) if one.last_ms >= oldest_ms]
        self._spans = spans
        return found

    def notes(
        self, remembered: Mapping[str, str] | None = None, now_ms: int | None = None
    ) -> list[NoteFile]:
        """Return the transcripts as notes for the index.

        `remembered` maps paths to the audience they had when their key was known: a reset session
        has none any more.
        """
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        return [self._note(one, remembered or {}, now_ms) for one in self.find(now_ms)]

    def _note(self, one: TranscriptFile, remembered: Mapping[str, str], now_ms: int) -> NoteFile:
        audience = one.audience
        if audience == UNCLAIMED:
            before = f"{FOLDER}/{_stem(one.file.name)}.md"
            audience = remembered.get(one.path) or remembered.get(before) or UNCLAIMED
        zone = self._spec.timezone
        brief = one.last_ms - one.first_ms < _DAY_MS
        return NoteFile(
            one.path,
            one.file,
            source="sessions",
            owner=OWNER.user,
            audience=audience,
            made=_TranscriptNote(one, self._spec, now_ms),
            day=(_day(zone, one.first_ms) or None) if brief else None,
        )

    def _list(self, now_ms: int, spans: dict[str, _Span], only: str) -> Iterator[TranscriptFile]:
        folder, claims = self._spec.transcripts, self._read_claims()
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:
            return
        for name in names:
            path = shown_path(name)
            if path is None or (only and path != only) or not (stamp := stat_stamp(folder / name)):
                continue
            stem = _stem(name)
            keys = claims.get(stem) or claims.get(stem.split(_TOPIC)[0]) or frozenset()
            held = self._spans.get(name)
            if held is None or held[0] != stamp:
                held = (stamp, *_read_span(folder / name, stamp))
            spans[name] = held
            first_ms, last_ms = _span_by(held, now_ms)
            yield TranscriptFile(
                folder / name,
                path,
                _audience(keys),
                stamp,
                first_ms,
                last_ms,
            )

    def _read_claims(self) -> Mapping[str, frozenset[str]]:
        file = self._spec.session_index
        stamp, held = stat_stamp(file), self._claims
        if stamp != held[0] or stamp is None:
            held = self._claims = (stamp, read_claims(file, self._spec.agent) if stamp else {})
        return held[1]


def shown_path(name: str) -> str | None:
    """Return a transcript's name in results; None for other files and deleted sessions."""
    found = _FILE.fullmatch(name)
    if not found or ".reset." in found[1] or not is_session_id(found[1].split(_TOPIC)[0]):
        return None
    return f"{FOLDER}/{found[1]}{f'.reset.{found[2]}' if found[2] else ''}.md"


def find_transcript(spec: MemorySpec, path: str) -> TranscriptFile | None:
    """Return the transcript of this name in results, or None."""
    return next(iter(TranscriptSource(spec).find(only=path)), None)


def read_session(
    spec: MemorySpec,
    name: str,
    view: MemoryView,
    recall: Callable[[str], str | None] = lambda _path: None,
) -> bytes | None:
    """Return the text of `sessions/<name>` for a view, or None.

    `recall` returns the audience of a transcript that has no key any more.
    """
    if not wants_sessions(spec):
        return None
    found = find_transcript(spec, f"{FOLDER}/{name}")
    if found is None:
        return None
    audience = found.audience
    if audience == UNCLAIMED and not view.shows(UNCLAIMED):
        audience = recall(found.path) or UNCLAIMED
    if not view.shows(audience):
        return None
    try:
        return render_transcript(found.file, timezone=spec.timezone).text.encode()
    except OSError:
        return None


def read_claims(file: Path, agent: str) -> dict[str, frozenset[str]]:
    """Return which session keys claim a transcript, by its file name without `.jsonl`."""
    claims: dict[str, set[str]] = {}
    for key, entry in _read_index(file).items():
        try:
            stored = canonical_key(key, agent)
        except UserError:
            continue
        if stem := _claimed(entry):
            claims.setdefault(stem, set()).add(stored)
    return {stem: frozenset(keys) for stem, keys in claims.items()}


def _read_index(file: Path) -> dict[str, dict[str, Any]]:
    try:
        with _opened(file) as source:
            data = source.read(MAX_INDEX_BYTES)
        value = load_json(data.decode("utf-8", "replace"))
    except (OSError, ValueError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {key: entry for key, entry in value.items() if isinstance(entry, dict)}


def _claimed(entry: Mapping[str, Any]) -> str | None:
    """Return the transcript name of a session: that of its id, or of a forum topic."""
    session_id, named = entry.get("sessionId"), entry.get("sessionFile")
    if not is_session_id(session_id):
        return None
    name = named.replace("\\", "/").rpartition("/")[2] if isinstance(named, str) else ""
    is_topic = name.startswith(f"{session_id}{_TOPIC}") and shown_path(name)
    return _stem(name) if is_topic else str(session_id)


def _audience(keys: frozenset[str]) -> str:
    found = {audience_of(key) for key in keys}
    return found.pop() if len(found) == 1 else UNCLAIMED


def _stem(name: str) -> str:
    return name.partition(".jsonl")[0]


def _span_by(held: _Span, now_ms: int) -> tuple[int, int]:
    """Return the times of the first and the last message, or the file's time if unknown."""
    stamp, first_ms, last_ms = held
    last_ms = last_ms if 0 < last_ms <= now_ms else stamp.mtime_ns // 1_000_000
    return first_ms if 0 < first_ms <= last_ms else last_ms, last_ms


def _read_span(file: Path, stamp: FileStamp) -> tuple[int, int]:
    try:
        with _opened(file) as source:
            head = source.read(_EDGE_BYTES)
            source.seek(max(0, stamp.size - _EDGE_BYTES))
            tail = source.read(_EDGE_BYTES)
    except OSError:
        return 0, 0
    first_ms = next(filter(None, map(_stamped, head.splitlines())), 0)
    last_ms = next(filter(None, map(_stamped, reversed(tail.splitlines()))), 0)
    return first_ms, last_ms


def _stamped(line: bytes) -> int:
    try:
        return _at_ms(load_json(line.strip(b"\0 \t\r\n").decode("utf-8", "replace")))
    except ValueError:
        return 0


class _TranscriptNote:
    """A transcript as a note; it is rendered again once it has grown enough."""

    def __init__(self, transcript: TranscriptFile, spec: MemorySpec, now_ms: int) -> None:
        self._transcript, self._spec, self._now_ms = transcript, spec, now_ms

    def read(self) -> NoteContent | SkippedFile:
        one = self._transcript
        try:
            made = render_transcript(one.file, timezone=self._spec.timezone)
        except OSError as exc:
            return SkippedFile(one.path, exc.strerror or "cannot be read")
        if not made.messages:
            return SkippedFile(one.path, "nothing is said in it")
        stamp = made.stamp
        return NoteContent(made.text, made.hash, stamp.mtime_ns, made.ctime_ns, stamp.size)

    def is_same(self, size: int, mtime_ns: int) -> bool:
        one, sync = self._transcript, self._spec.search.sync.sessions
        grown = one.stamp.size - size
        if grown == 0:
            return one.stamp.mtime_ns == mtime_ns
        if grown < 0 or grown >= sync.delta_bytes:
            return False
        if self._now_ms - one.stamp.mtime_ns // 1_000_000 > _QUIET_MS:
            return False
        return _count_after(one.file, size) < sync.delta_messages


def _count_after(file: Path, start: int) -> int:
    """Count the lines that were added after an offset."""
    try:
        with _opened(file) as source:
            source.seek(start)
            return sum(is_read for _, is_read in _lines(source))
    except OSError:
        return 0
