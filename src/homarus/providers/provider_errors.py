"""Convert vendors' error responses into our error classes.

A failure arrives as an HTTP status with a body, or as an error inside a stream; its status, code,
type or message identifies it. The error's class decides what happens next, so the order of the
rules matters: the most specific come first.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import field, replace

from homarus.core.errors import (
    AuthError,
    BadRequestError,
    BillingError,
    ContentFilterError,
    ContextOverflowError,
    ImageTooLargeError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    ThinkingUnsupportedError,
    UnreachableError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

MAX_WORDS_CHARS = 300
MAX_WAIT_S = 24 * 3600.0
MIN_SECRET_CHARS = 6  # shorter ones ("none", "ollama") are words, not secrets


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The provider, model and address that an error names, and the secrets it must not contain."""

    provider: str
    model: str
    url: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def describe(self, what: str) -> str:
        """Return one line about this model, without secrets, of bounded length."""
        for secret in self.secrets:
            if len(secret) >= MIN_SECRET_CHARS:
                what = what.replace(secret, "***")
        return f"{self.provider}/{self.model}: {one_line(what, MAX_WORDS_CHARS)}"


@dataclass(frozen=True, slots=True)
class VendorError:
    """A vendor's error, independent of the shape it was sent in."""

    status: int
    words: str
    codes: str = ""  # its code, type and status, lower case, separated by blanks
    after_s: float | None = None  # the delay it asks for


def problem_in(body: Json, status: int = 0) -> VendorError:
    """Parse an error body: `{error: {…}}`, `{error: "…"}`, `{message}`, `{detail}`, a list."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return VendorError(status, str(body or ""))
    inner = body.get("error") or body.get("detail") or body
    if isinstance(inner, list) and inner:
        inner = inner[0]
    if not isinstance(inner, Mapping):
        inner = {"message": inner}
    told = (inner.get(name) for name in ("message", "Message", "msg", "detail"))
    words = next(filter(None, told), None) or body.get("message")
    named = [inner.get("code"), inner.get("type"), inner.get("status"), body.get("type")]
    details = inner.get("details")
    if isinstance(details, Mapping):  # Anthropic's field for the cause
        named.append(details.get("error_code"))
    raw = inner.get("metadata")
    if isinstance(raw, Mapping) and raw.get("raw"):  # OpenRouter: the upstream vendor's message
        words = f"{words}: {raw['raw']}"
    reasons, after_s = _details(inner.get("details"))
    if str(inner.get("param")).startswith("reasoning"):  # the message may not name the parameter
        reasons.append(inner["param"])
    numbers = [int(str(code)) for code in named if _is_status(code)]
    codes = " ".join(str(code).lower() for code in (*named, *reasons) if code)
    status = status or (numbers[0] if numbers else 0)
    return VendorError(status, str(words or codes or inner), codes, after_s)


def _details(details: Json) -> tuple[list[str], float | None]:
    """Return the reasons and the retry delay that Google adds to an error."""
    reasons: list[str] = []
    after_s: float | None = None
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, Mapping):
            continue
        if isinstance(detail.get("reason"), str):
            reasons.append(detail["reason"])
        delay = detail.get("retryDelay")
        seconds = _number(delay.removesuffix("s")) if isinstance(delay, str) else None
        after_s = after_s if seconds is None else _bounded(seconds)
    return reasons, after_s


def problem_of(body: bytes, status: int) -> VendorError:
    """Parse an error body that may be JSON, text, HTML or empty."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return problem_in(json.loads(text), status)
    except (ValueError, RecursionError):
        if text[:200].lower().lstrip().startswith(("<!doctype", "<html")):
            title = re.search(r"<title>(.{0,200}?)</title>", text, re.IGNORECASE | re.DOTALL)
            text = f"a web page: {title[1]}" if title else "a web page"
        return VendorError(status, text or "no explanation")


def error_from_response(
    subject: ErrorContext, status: int, body: bytes, headers: Mapping[str, str], now_ms: int
) -> ProviderError:
    """Return the error for an unsuccessful HTTP response."""
    if 300 <= status < 400:
        return BadRequestError(
            subject.describe(f"the server sends us elsewhere (HTTP {status})"),
            fix=f"set baseUrl to the address it moved to, instead of {subject.url}",
            status=status,
        )
    problem = problem_of(body, status)
    if named := headers.get("x-amzn-errortype"):  # AWS names an error outside of its body
        problem = replace(problem, codes=f"{problem.codes} {named.partition(':')[0].lower()}")
    return error_from_vendor(subject, problem, retry_after_s(headers, now_ms))


def error_from_vendor(
    subject: ErrorContext,
    problem: VendorError,
    after_s: float | None = None,
    *,
    midway: bool = False,
) -> ProviderError:
    """Return the error for a vendor's problem; `midway` when the answer had started."""
    after_s = problem.after_s if after_s is None else after_s
    kind = _kind(problem, midway=midway)
    how = f" (HTTP {problem.status})" if problem.status else ""
    message = subject.describe(f"{_WHAT[kind]}{how}: {problem.words}")
    if kind is RateLimitError:
        fix = f"wait {after_s:g} s" if after_s else "wait a little"
        fix = f"{fix} and try again, or use another model"
        return RateLimitError(message, after_s=after_s, fix=fix, status=problem.status or 429)
    fix = _FIX[kind].format(provider=subject.provider, url=subject.url)
    if kind is BadRequestError and problem.status == 404:
        fix = f"check the model's name, and that baseUrl ({subject.url}) is right"
    return kind(message, fix=fix, status=problem.status)


def stream_error(subject: ErrorContext, what: str) -> StreamError:
    """Return the error for an answer that cannot be read to its end."""
    return StreamError(subject.describe(what), fix=_FIX[StreamError])


def unreachable_error(subject: ErrorContext, why: str) -> UnreachableError:
    """Return the error for a service that cannot be reached."""
    fix = f"is the server at {subject.url} running, and is baseUrl right?"
    return UnreachableError(subject.describe(f"no connection to {subject.url}: {why}"), fix=fix)


def timeout_error(subject: ErrorContext, idle_s: float) -> ProviderTimeoutError:
    """Return the error for a service that sent nothing for too long."""
    said = f"nothing came from {subject.url} for {idle_s:g} s"
    return ProviderTimeoutError(subject.describe(said), fix=_FIX[ProviderTimeoutError])


def retry_after_s(headers: Mapping[str, str], now_ms: int) -> float | None:
    """Return the delay a response asks for in `retry-after-ms` or `retry-after`."""
    millis = _number(headers.get("retry-after-ms", ""))
    if millis is not None:
        return _bounded(millis / 1000)
    asked = headers.get("retry-after", "").strip()
    seconds = _number(asked)
    if seconds is not None:
        return _bounded(seconds)
    from email.utils import parsedate_to_datetime

    try:
        return _bounded(parsedate_to_datetime(asked).timestamp() - now_ms / 1000)
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_WAIT_S)


def _is_status(code: Json) -> bool:
    return str(code).isascii() and str(code).isdigit() and 400 <= int(str(code)[:9]) < 600


# Patterns, compiled at the first error. These are the vendors' messages for a request that exceeds
# the context window.
_OVERFLOW = (
    r"context[_ ]length[_ ]exceeded|exceed_context_size|context_window_exceeded"
    r"|maximum (context|prompt|model) length|exceeds? (the )?(available )?context"
    r"|(exceeds?|longer than|greater than|overflows?)\b.{0,40}\bcontext (length|window|size)"
    r"|context (the )?overflows|context window (exceeds|is full)|reached context length"
    r"|exceed\w* max(imum)? context|longer than the maximum model length"
    r"|prompt (is )?too long|input is too long|prompt exceeds max"
    r"|(input|prompt) tokens? (count )?.{0,40}exceeds?|exceeds the maximum number of tokens"
    r"|exceeded model token limit|reduce the length of the (messages|prompt|input)"
    r"|too large for model with|tokens \+ .?max_new_tokens.? must be"
    r"|prompt token count .{0,30}exceeds|request too large for .{0,200}tokens per min"
    r"|request payload size exceeds|request_too_large|max input tokens"
    r"|max_tokens_per_request|max allowed tokens per"
)
_IMAGE = (
    r"image_(file_)?too_large|invalid_image_size"
    r"|images?\b.{0,60}(too (large|big)|exceeds?|larger than|maximum (allowed )?size)"
    r"|(too (large|big)|exceeds?).{0,30}\bimage\b"
)
_FILTER = (
    r"content_filter|content_policy|responsibleaipolicy|content management policy"
    r"|input was flagged|moderation|safety system|usage polic|bio_policy|policy_violation"
    r"|content filtering policy"
)
_BILLING = (
    r"insufficient[_ ](quota|balance|credits?|funds)|billing_hard_limit|billing_not_active"
    r"|credit balance|payment required|out of credits?|requires more credits|not enough credits?"
    r"|billing_error|spend_limit|api usage limits"
    r"|billing_disabled|enable billing|requires billing|spend(ing)? (cap|limit)"
    r"|prepay(ment)? (credits|funds) (are|is) depleted"
)
_AUTH = (
    r"invalid_api_key|invalid api key|incorrect api key|api key not valid|authentication_error"
    r"|invalid_authentication|unauthenticated|api_key_invalid|api key expired"
    r"|permission_error|organization has been disabled"
    r"|expiredtoken|unrecognizedclient|security token included in the request"
)
_LIMIT = r"rate[_ -]?limit|too many requests|limit (reached|exceeded)|quota|throttl"
_LIMIT_CODE = r"rate_limit|resource_exhausted|too_many_requests"
_BUSY = (
    r"overloaded|server_error|internal_error|unavailable|api_error|at capacity|insufficient_system"
)
_INVALID = (
    r"invalid|bad_?request|tool_use_failed|not_found|badrequest|unsupported"
    r"|image_parse|image_too_small|empty_image|download_image|residency"
)
_TIMEOUT = r"\btimed? ?out\b|timeout"
_THINKING = (
    r"\b(thinking|reasoning|effort)\b.{0,60}\b(not support|unsupported|must be one of|not enabled)"
    r"|reasoning_effort.{0,60}(not support|unsupported|must be one of)"
    r"|(not support|unsupported|unrecognized)\w*\b.{0,60}(thinking|reasoning|effort)"
    r"|only works in thinking mode|not a supported thinking|thinking budget .{0,20}is invalid"
)


def _kind(problem: VendorError, *, midway: bool) -> type[ProviderError]:
    text = f"{problem.codes} {problem.words}".lower()[:4000]
    for pattern, kind in (
        (_OVERFLOW, ContextOverflowError),
        (_IMAGE, ImageTooLargeError),
        (_BILLING, BillingError),
    ):
        # "Input tokens have exceeded your rate limit" is about the rate, not the window.
        by_the_minute = kind is ContextOverflowError and "rate_limit_error" in problem.codes
        if re.search(pattern, text) and not by_the_minute:
            return kind
    if problem.status not in {401, 429} and problem.status < 500 and re.search(_FILTER, text):
        return ContentFilterError
    if "deadline_exceeded" in problem.codes:
        return ProviderTimeoutError
    if problem.status >= 400:
        left = _by_status(problem.status, text)
    else:
        left = _by_words(problem.codes, text, midway=midway)
    return (
        ThinkingUnsupportedError if left is BadRequestError and re.search(_THINKING, text) else left
    )


def _by_status(status: int, text: str) -> type[ProviderError]:
    if status == 429 and "modelnotready" in text:
        return OverloadedError  # AWS: it is being loaded
    if status == 403:
        return RateLimitError if re.search(_LIMIT, text) else AuthError
    if status in _STATUS:
        return _STATUS[status]
    if status >= 500:
        return OverloadedError
    return AuthError if re.search(_AUTH, text) else BadRequestError


_STATUS: dict[int, type[ProviderError]] = {
    401: AuthError,
    402: BillingError,
    408: ProviderTimeoutError,
    413: ContextOverflowError,
    424: OverloadedError,  # AWS: the model behind it failed
    425: OverloadedError,
    429: RateLimitError,
    499: OverloadedError,  # cancelled, but not by us
}


def _by_words(codes: str, text: str, *, midway: bool) -> type[ProviderError]:
    """Classify an error inside a stream, which has no status, by its text."""
    for pattern, where, kind in (
        (_AUTH, text, AuthError),
        (_LIMIT_CODE, codes, RateLimitError),
        (_LIMIT, text, RateLimitError),
        (_BUSY, text, OverloadedError),
        (_TIMEOUT, text, ProviderTimeoutError),
        (_INVALID, codes, BadRequestError),
    ):
        if re.search(pattern, where):
            return kind
    return StreamError if midway else BadRequestError


_WHAT: dict[type[ProviderError], str] = {
    AuthError: "the key was refused",
    BillingError: "the account has no credit",
    RateLimitError: "too many requests",
    OverloadedError: "the service cannot answer now",
    ProviderTimeoutError: "the service gave up waiting",
    StreamError: "the answer broke off",
    ContextOverflowError: "the conversation does not fit the model",
    ImageTooLargeError: "a picture is too large",
    ContentFilterError: "the service refused the content",
    BadRequestError: "the request was not accepted",
    ThinkingUnsupportedError: "the model does not think like that",
}
_FIX: dict[type[ProviderError], str] = {
    AuthError: "check the API key of provider {provider!r}",
    BillingError: "add credit to the account at {provider!r}, or use another model",
    OverloadedError: "try again in a moment, or use another model",
    ProviderTimeoutError: "try again, or use another model",
    StreamError: "try again",
    ContextOverflowError: "start afresh with /new, or use a model with a larger window",
    ImageTooLargeError: "send a smaller picture",
    ContentFilterError: "say it differently, or use another model",
    BadRequestError: "check the model's name and its params and compat settings",
    ThinkingUnsupportedError: "choose another level with /think, or use another model",
}
