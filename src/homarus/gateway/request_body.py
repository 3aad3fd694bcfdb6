"""The body of an HTTP request: what its headers say of it, and its bytes, within limits."""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from homarus.gateway.origin_policy import RequestBlockedError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope


def joined_headers(scope: "Scope") -> dict[str, str]:
    """Return headers by lower-case name; a repeated one is joined, so it matches no secret."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]},{text}" if name in found else text
    return found


def content_kind(headers: Mapping[str, str]) -> str:
    """Return the media type of a body, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def check_body_headers(headers: Mapping[str, str], kinds: Collection[str], max_bytes: int) -> None:
    """Refuse, by its headers, a body that would not be read; raises RequestBlockedError."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RequestBlockedError(415, "send the body as it is, not compressed")
    if content_kind(headers) not in kinds:
        raise RequestBlockedError(
            415, f"the body must be {' or '.join(sorted(kinds))}", fix="set its Content-Type"
        )
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise RequestBlockedError(400, "Content-Length is not a number")
    if len(length) > len(str(max_bytes)) or int(length) > max_bytes:
        raise _too_large(max_bytes)


async def read_body(receive: "Receive", max_bytes: int, timeout_s: float) -> bytes | None:
    """Return the complete body; None when the client disconnects before its end.

    Raises RequestBlockedError for one that is too large or too slow.
    """
    pieces, size = list[bytes](), 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                piece = message.get("body", b"")
                size += len(piece)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise RequestBlockedError(408, "the body did not come in time") from None


def _too_large(max_bytes: int) -> RequestBlockedError:
    return RequestBlockedError(413, f"a body may have {max_bytes} bytes")
