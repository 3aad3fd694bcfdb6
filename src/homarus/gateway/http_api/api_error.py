"""Errors of the HTTP API in OpenAI's shape, and which error of ours is which."""

import json
from collections.abc import Mapping
from typing import Final

from homarus.core.errors import (
    AgentTimeoutError,
    DiskFullError,
    ForbiddenError,
    HomarusError,
    InvalidRequestError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    StoreError,
    UnavailableError,
    UnknownNameError,
    UserError,
)
from homarus.core.message import Json
from homarus.core.text import repair_json
from homarus.gateway.origin_policy import RequestBlockedError

JSON_KIND: Final = "application/json"
API_HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# The type of an error, by its HTTP status; any other below 500 is an invalid request.
_TYPES: Final[Mapping[int, str]] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    429: "rate_limited",
}


class ApiError(HomarusError):
    """The error response to a request of the HTTP API; `param` is the field that is wrong."""

    code = "protocol.http"

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "",
        reason: str = "",
        param: str = "",
        fix: str = "",
        after_s: int = 0,
        allow: str = "",
    ) -> None:
        super().__init__(message, fix=fix)
        self.status, self.param, self.after_s, self.allow = status, param, after_s, allow
        is_ours = status >= 500
        self.kind = kind or ("api_error" if is_ours else _TYPES.get(status, _INVALID))
        self.reason = reason  # a word for programs: the field `code` of the response

    @property
    def body(self) -> dict[str, Json]:
        """The body of the response."""
        error: dict[str, Json] = {
            "message": str(self),
            "type": self.kind,
            "param": self.param or None,
            "code": self.reason or None,
        }
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response, besides those of every response."""
        found = {"Retry-After": str(self.after_s)} if self.after_s else {}
        if self.allow:
            found["Allow"] = self.allow
        if self.status == 401:
            found["WWW-Authenticate"] = "Bearer"
        if self.status in {400, 408, 413}:  # the rest of its input may not have been read
            found["Connection"] = "close"
        return found


_INVALID: Final = "invalid_request_error"


def as_api_error(exc: HomarusError) -> ApiError:
    """Return an error of ours as clients of the API receive it."""
    match exc:
        case ApiError():
            return exc
        case RequestBlockedError():
            return ApiError(exc.status, exc.message, fix=exc.fix, after_s=exc.after_s)
        case UnknownNameError():
            return ApiError(404, exc.message, fix=exc.fix)
        case ForbiddenError():
            return ApiError(403, exc.message, fix=exc.fix)
        case InvalidRequestError() | UserError():
            return ApiError(400, exc.message, fix=exc.fix)
    return _as_server_error(exc)


def _as_server_error(exc: HomarusError) -> ApiError:
    """Return an error whose cause is not the request."""
    match exc:
        case RateLimitError():
            after_s = round(exc.after_s or 0)
            return ApiError(429, exc.message, fix=exc.fix, after_s=after_s, reason=exc.code)
        case AgentTimeoutError():
            return ApiError(504, exc.message, fix=exc.fix, reason=exc.code)
        case DiskFullError() | UnavailableError():
            wait_ms = exc.retry_after_ms if isinstance(exc, ProtocolError) else 0
            after_s = -(-wait_ms // 1000) or 1
            return ApiError(503, exc.message, fix=exc.fix, after_s=after_s, reason=exc.code)
        case ProviderError():
            return ApiError(502, exc.message, fix=exc.fix, reason=exc.code)
        case StoreError():
            return ApiError(503, exc.message, fix=exc.fix, reason=exc.code)
    return ApiError(500, exc.message, fix=exc.fix, reason=exc.code)


def encode_json(value: Json) -> bytes:
    """Encode a body in ASCII. Lone surrogates, which strict parsers refuse, become U+FFFD."""
    text = json.dumps(value, separators=(",", ":"))
    if "\\ud" in text and (repaired := repair_json(value)) is not value:
        text = json.dumps(repaired, separators=(",", ":"))
    return text.encode("ascii")
