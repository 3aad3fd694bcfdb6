"""Read a transcript file that may be torn, foreign, old or malicious.

Every record that can be decoded is kept; the others are returned as bad lines. Rules:

- a parent must be an earlier entry, else the entry follows the one before it in the file: this
  repairs a lost line, and makes cycles impossible;
- an id seen before on another text is a bad line; the same line twice is one entry;
- a line without an id (version 1 files, bare role rows) gets one made from its position and text,
  so that reading the file again finds the same entry.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import field
from typing import BinaryIO

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.store.base import TranscriptEntry
from homarus.store.transcript_codec import dump_json, load_json, parse_ms, read_int

# A line with an image may have some megabytes; a longer line than this is not read at all.
MAX_LINE_BYTES = 64 << 20
_SHOWN_BYTES = 64 << 10  # how much of such a line is quarantined; the file keeps the rest
_PADDING = b"\0 \t\r\n"  # a file system fills blocks with NULs after a crash
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ScannedEntry:
    """An entry and its stored line."""

    entry: TranscriptEntry
    text: str


@dataclass(slots=True)
class TranscriptScan:
    """The contents of a transcript file. `end` is where its last complete line ends."""

    header: str = ""
    found: list[ScannedEntry] = field(default_factory=list)
    bad: list[bytes] = field(default_factory=list)
    end: int = 0
    torn: bool = False  # the last line has no newline


@dataclass(frozen=True, slots=True)
class _RawLine:
    start: int
    data: bytes
    whole: bool  # ends in a newline
    part: int = 0  # of a line that is too long: which piece, from 1


def scan_transcript(file: BinaryIO, max_line_bytes: int = MAX_LINE_BYTES) -> TranscriptScan:
    """Read a transcript from its start."""
    result = TranscriptScan()
    reader = _EntryReader(result)
    for line in _lines(file, max_line_bytes):
        understood = not line.part and reader.take(line)
        if not understood and line.part <= 1:
            result.bad.append(line.data[: _SHOWN_BYTES if line.part else None].rstrip(b"\n"))
        result.torn = not line.whole
        if line.whole or understood:
            result.end = line.start + len(line.data)
    return result


def _lines(file: BinaryIO, max_bytes: int) -> Iterator[_RawLine]:
    start = part = 0
    while data := file.readline(max_bytes):
        whole = data.endswith(b"\n")
        part = part + 1 if part or (not whole and len(data) == max_bytes) else 0
        yield _RawLine(start, data, whole, part)
        start += len(data)
        part = 0 if whole else part


class _EntryReader:
    """Converts lines to entries, and keeps the state that the rules need."""

    def __init__(self, result: TranscriptScan) -> None:
        self._result = result
        self._texts: dict[str, str] = {}
        self._places: list[str] = [""]  # ids by place in a version 1 file; the header is 0
        self._last: str | None = None
        self._rows = _LegacyRowReader()

    def take(self, line: _RawLine) -> bool:
        data = line.data.strip(_PADDING)
        if line.start == 0:
            data = data.removeprefix(_BOM)
        if not data:
            return True
        try:
            text = data.decode()
            value = load_json(text)
        except ValueError:
            return False
        if not isinstance(value, dict):
            return False
        if value.get("type") == "session":
            return self._take_header(text, value)
        if not value.get("type") and isinstance(value.get("role"), str):
            value, text = self._rows.entry(value, line.start), ""
        return self._take_entry(value, text, line)

    def _take_header(self, text: str, value: dict[str, Json]) -> bool:
        if self._result.header or not isinstance(value.get("id"), str):
            return text == self._result.header
        self._result.header = text
        return True

    def _take_entry(self, value: dict[str, Json], text: str, line: _RawLine) -> bool:
        kind, id_ = value.get("type"), value.get("id")
        if not isinstance(kind, str) or not kind:
            return False
        if not isinstance(id_, str) or not id_:
            id_, text = self._number(value, line), ""
        parent = value.get("parentId")
        if parent is not None and not (isinstance(parent, str) and parent in self._texts):
            parent = self._last
        text = text or dump_json(value)
        if id_ in self._texts:
            return self._texts[id_] == text
        at_ms = parse_ms(value.get("timestamp"))
        data = {k: v for k, v in value.items() if k not in _PLACED}
        self._result.found.append(
            ScannedEntry(TranscriptEntry(id_, parent, kind, at_ms, data), text)
        )
        self._texts[id_] = text
        self._places.append(id_)
        self._last = id_
        return True

    def _number(self, value: dict[str, Json], line: _RawLine) -> str:
        """Give a line without an id the fields that a newer file would have."""
        id_ = _made_id(line.start, line.data)
        rest = {k: v for k, v in value.items() if k not in _PLACED}
        if "firstKeptEntryIndex" in rest:
            place = read_int(rest.pop("firstKeptEntryIndex"))
            if 0 < place < len(self._places):
                rest["firstKeptEntryId"] = self._places[place]
        placed = {
            "type": value["type"],
            "id": id_,
            "parentId": self._last,
            "timestamp": value.get("timestamp"),
        }
        value.clear()
        value.update(placed, **rest)
        return id_


_PLACED = frozenset({"type", "id", "parentId", "timestamp"})


def _made_id(start: int, data: bytes) -> str:
    return hashlib.blake2b(b"%d:" % start + data.strip(_PADDING), digest_size=4).hexdigest()


class _LegacyRowReader:
    """Converts bare rows `{role, content, timestamp}` of a format without ids or a tree."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}  # a tool's name → the id of its unanswered call

    def entry(self, row: dict[str, Json], start: int) -> dict[str, Json]:
        at_ms = parse_ms(row.get("timestamp"))
        match row["role"]:
            case "tool":
                message = self._call(row, start, at_ms)
            case "tool_result":
                message = self._result(row, start, at_ms)
            case "assistant":
                message = _assistant(_content(row.get("content")), "stop", at_ms)
            case role:
                message = {"role": role, "content": _content(row.get("content"))}
                message["timestamp"] = at_ms
        return {"type": "message", "timestamp": row.get("timestamp"), "message": message}

    def _call(self, row: dict[str, Json], start: int, at_ms: int) -> dict[str, Json]:
        name, args = str(row.get("name", "")), row.get("input")
        self._open[name] = f"row_{start}"
        call = {"type": "toolCall", "id": f"row_{start}", "name": name, "arguments": args or {}}
        return _assistant([call], "toolUse", at_ms)

    def _result(self, row: dict[str, Json], start: int, at_ms: int) -> dict[str, Json]:
        name = str(row.get("name", ""))
        return {
            "role": "toolResult",
            "toolCallId": self._open.pop(name, f"row_{start}"),
            "toolName": name,
            "content": _content(row.get("content")),
            "isError": False,
            "timestamp": at_ms,
        }


def _assistant(content: list[Json], stop: str, at_ms: int) -> dict[str, Json]:
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    usage = {**cost, "totalTokens": 0, "cost": {**cost, "total": 0}}
    origin = {"api": "", "provider": "", "model": "", "usage": usage, "stopReason": stop}
    return {"role": "assistant", "content": content, **origin, "timestamp": at_ms}


def _content(value: Json) -> list[Json]:
    if isinstance(value, list):
        return value
    return [{"type": "text", "text": value if isinstance(value, str) else dump_json(value)}]
