"""Encode and decode lines of a transcript and entries of sessions.json, as OpenClaw does.

Every value can be encoded, and decoding returns plain values: numbers JSON cannot express become
null, and halves of surrogate pairs never pass.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from homarus.core.message import Json
from homarus.core.text import repair_json, repair_surrogates
from homarus.store.base import TranscriptEntry, TranscriptHeader

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MAX_INT = 2**63 - 1
_MAX_DEPTH = 200

_tolerant = json.JSONDecoder(parse_constant=lambda _name: None)


def dump_json(value: Json, *, pretty: bool = False) -> str:
    """Return JSON text that can always be written as UTF-8."""
    indent = 2 if pretty else None
    try:
        # Ten times as fast as the standard library's, whose indenting is not in C.
        return to_json(value, indent=indent, inf_nan_mode="null", fallback=_plain).decode()
    except ValueError:  # half a surrogate pair, or nested too deeply
        separators = (",", ": ") if pretty else (",", ":")
        text = json.dumps(
            _clean(value, 0), ensure_ascii=False, indent=indent, separators=separators
        )
        return repair_surrogates(text)


def _plain(value: object) -> Json:
    return dict(value) if isinstance(value, Mapping) else str(value)


def load_json(text: str) -> Json:
    """Return the value of a JSON text. Raises ValueError when it is not one."""
    try:
        value = _decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if "\\u" in text and _ESCAPED_SURROGATE.search(text):
        value = repair_json(value)
    return value


def _decode(text: str) -> Json:
    try:
        return from_json(text, allow_inf_nan=False)  # four times as fast, and stricter
    except ValueError:
        return _tolerant.decode(text)


def _clean(value: Json, depth: int) -> Json:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, depth + 1) for item in value]
    return value if isinstance(value, str | int | None) else str(value)


def format_iso(at_ms: int) -> str:
    """Return milliseconds since the epoch as `2026-02-17T10:00:00.000Z`."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


def archive_suffix(reason: str, at_ms: int) -> str:
    """Return what is appended to the name of an archived transcript file."""
    return f"{reason}.{format_iso(at_ms).replace(':', '-')}"


@lru_cache(maxsize=64)
def _second(at_s: int) -> str:
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "1970-01-01T00:00:00"


def parse_ms(value: Json) -> int:
    """Return a timestamp, as either program writes it, in milliseconds; 0 when it is invalid."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return 0
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    return read_int(value)


def read_int(value: Json) -> int:
    """Return a whole number that fits a database column; 0 when it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    number = int(value)
    return number if -_MAX_INT <= number <= _MAX_INT else 0


def encode_header(header: TranscriptHeader) -> str:
    """Return the first line of a transcript."""
    value: dict[str, Json] = {
        "type": "session",
        "version": header.version,
        "id": header.session_id,
        "timestamp": format_iso(header.at_ms),
        "cwd": header.cwd,
    }
    if header.parent_session is not None:
        value["parentSession"] = header.parent_session
    return dump_json(value)


def decode_header(text: str, session_id: str, agent: str) -> TranscriptHeader:
    """Return the header from a line that `encode_header` or OpenClaw wrote."""
    value = load_json(text)
    cwd, parent = value.get("cwd"), value.get("parentSession")
    return TranscriptHeader(
        session_id,
        agent,
        parse_ms(value.get("timestamp")),
        cwd if isinstance(cwd, str) else "",
        read_int(value.get("version")) or 1,
        parent if isinstance(parent, str) else None,
    )


def encode_entry(entry: TranscriptEntry) -> str:
    """Return a transcript line with its fields in OpenClaw's order."""
    return dump_json(
        {
            "type": entry.type,
            "id": entry.id,
            "parentId": entry.parent,
            "timestamp": format_iso(entry.at_ms),
            **entry.data,
        }
    )


def decode_entry(row: tuple[Any, ...]) -> TranscriptEntry:
    """Return an entry from its row: the line, then the other columns."""
    text, seq, entry_id, parent, kind, at_ms = row
    data = load_json(text)
    for name in ("type", "id", "parentId", "timestamp"):
        data.pop(name, None)
    return TranscriptEntry(entry_id, parent, kind, at_ms, data, seq)
