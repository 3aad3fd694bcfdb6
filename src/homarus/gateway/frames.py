"""Frames: requests, responses and events, one JSON object each. Strict on the way in.

`parse_request` alone reads bytes from outside: it raises InvalidRequestError for invalid ones, and
no input makes it fail in any other way.
"""

import json
import math
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from homarus.core.errors import HomarusError, InvalidRequestError, ProtocolError
from homarus.core.message import Json
from homarus.core.text import one_line, repair_json

PROTOCOL = 3
NEWEST_PROTOCOL = 4  # clients that request it get its additions
MAX_FRAME_BYTES = 25 * 1024 * 1024
MAX_HELLO_BYTES = 64 * 1024  # before the client has authenticated
MAX_UNSCOPED_FRAME_BYTES = 1024 * 1024  # of a client without scopes
MAX_BUFFERED_BYTES = 50 * 1024 * 1024
TICK_S = 30.0
HANDSHAKE_S = 10.0
MAX_ID_CHARS = 256
MAX_METHOD_CHARS = 128
MAX_DEPTH = 64  # of nested values, including the frame itself
# Values of a frame, estimated: a few bytes of text can become an object of some sixty bytes.
MAX_VALUES, MAX_UNSCOPED_VALUES = 2_000_000, 20_000


class RequestFrame(BaseModel):
    """A request frame."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    type: Literal["req"]
    id: str = Field(min_length=1, max_length=MAX_ID_CHARS)
    method: str = Field(min_length=1, max_length=MAX_METHOD_CHARS)
    params: Json = None
    # Newer clients send a trace id; the gateway ignores it.
    traceparent: str | None = Field(None, max_length=MAX_ID_CHARS)


_REQUEST: TypeAdapter[RequestFrame] = TypeAdapter(RequestFrame)


def parse_request(text: str | bytes, *, max_values: int = MAX_VALUES) -> RequestFrame:
    """Parse a request frame from outside; raises InvalidRequestError."""
    if _count_values(text) > max_values:
        raise InvalidRequestError("invalid request frame: too many values")
    try:
        request = _REQUEST.validate_json(text)
    except ValidationError as exc:
        raise InvalidRequestError(f"invalid request frame: {first_error(exc)}") from None
    _check_values(request.params)
    return request


def _check_values(params: Json) -> None:
    """Refuse values that are nested too deeply, and numbers that JSON cannot represent."""
    level, depth = [params], 1
    while level:
        depth += 1
        if any(isinstance(value, float) and not math.isfinite(value) for value in level):
            raise InvalidRequestError("invalid request frame: at params: a number is not finite")
        inside = [value for value in level if isinstance(value, dict | list)]
        if inside and depth > MAX_DEPTH:
            raise InvalidRequestError(f"invalid request frame: at params: deeper than {MAX_DEPTH}")
        level = [
            below
            for value in inside
            for below in (value.values() if isinstance(value, dict) else value)
        ]


def request_id(text: str | bytes) -> str:
    """Return the id of a frame that cannot be parsed, or `invalid` when it has none."""
    if _count_values(text) > MAX_UNSCOPED_VALUES:
        return "invalid"
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return "invalid"
    found = frame.get("id") if isinstance(frame, dict) else None
    return found if isinstance(found, str) and 0 < len(found) <= MAX_ID_CHARS else "invalid"


def _count_values(text: str | bytes) -> int:
    """Return an upper bound of the number of values: what may start or separate them, anywhere."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    return text.count("[") + text.count("{") + text.count(",")


def first_error(exc: ValidationError) -> str:
    """Describe the first error in one line, without the value, which may be a secret."""
    error = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    # The name of an unknown key is untrusted text, and this goes to a log.
    where = one_line("/".join(str(part) for part in error["loc"]), 80)
    return f"at {where or 'root'}: {error['msg']}"[:500]


def encode(frame: Mapping[str, Json]) -> str:
    """Encode a frame in ASCII. Lone surrogates, which strict parsers refuse, become U+FFFD."""
    text = json.dumps(frame, separators=(",", ":"))
    if "\\ud" not in text or (repaired := repair_json(frame)) is frame:
        return text
    return json.dumps(repaired, separators=(",", ":"))


def response_frame(request_id: str, payload: Json = None) -> str:
    """Encode a successful response; its payload is always present, even if null."""
    return encode({"type": "res", "id": request_id, "ok": True, "payload": payload})


def error_frame(request_id: str, error: HomarusError, payload: Json = None) -> str:
    """Encode an error response."""
    shown: dict[str, Json] = {"code": "UNAVAILABLE", "message": error.message}
    if isinstance(error, ProtocolError):
        shown["code"] = error.wire
        if error.details is not None:
            shown["details"] = dict(error.details)
        if error.retry_after_ms:
            shown |= {"retryable": True, "retryAfterMs": error.retry_after_ms}
    frame: dict[str, Json] = {"type": "res", "id": request_id, "ok": False}
    if payload is not None:
        frame["payload"] = payload
    return encode({**frame, "error": shown})


def event_frame(
    name: str,
    payload: Json = None,
    seq: int | None = None,
    state_version: Mapping[str, int] | None = None,
) -> str:
    """Encode an event frame."""
    frame: dict[str, Json] = {"type": "event", "event": name}
    if payload is not None:
        frame["payload"] = payload
    if seq is not None:
        frame["seq"] = seq
    if state_version is not None:
        frame["stateVersion"] = dict(state_version)
    return encode(frame)
