"""How a run without an answer is reported to clients of the HTTP API, in OpenAI's shape."""

from typing import Final

from homarus.agent.run import RunOutcome
from homarus.core.errors import (
    AllAttemptsFailedError,
    BadRequestError,
    ContentFilterError,
    ContextOverflowError,
    HomarusError,
    ImageTooLargeError,
    ProviderTimeoutError,
    RateLimitError,
    SpendLimitError,
)
from homarus.gateway.http_api.api_error import ApiError, as_api_error

INVALID: Final = "invalid_request_error"
# Programs repeat a request by themselves after these; what is reported here must not be.
_NOT_RETRIED: Final = 422


def outcome_error(outcome: RunOutcome) -> ApiError | None:
    """Return the error of a run; None for one that answered."""
    if outcome.status == "aborted":
        return stopped_error()
    if outcome.error is None:
        return None
    return run_error(outcome.error)


def run_error(exc: HomarusError) -> ApiError:
    """Return the error of a failed run; of several attempts, that of the last one."""
    if isinstance(exc, AllAttemptsFailedError) and exc.tried:
        limited = next((one for one in exc.tried if isinstance(one, RateLimitError)), None)
        return _model_error(limited or exc.tried[-1], str(exc))
    return _model_error(exc, str(exc))


def _model_error(exc: HomarusError, message: str) -> ApiError:
    match exc:
        case ContextOverflowError():
            return ApiError(400, message, kind=INVALID, reason="context_length_exceeded")
        case ContentFilterError():
            return ApiError(400, message, kind=INVALID, reason="content_filter")
        case BadRequestError() | ImageTooLargeError():
            return ApiError(400, message, kind=INVALID, reason=exc.code)
        case ProviderTimeoutError():
            return ApiError(504, message, reason=exc.code)
        case SpendLimitError():
            return ApiError(429, message, kind="insufficient_quota", reason="insufficient_quota")
        case RateLimitError():
            after_s = max(1, round(exc.after_s or 0))
            return ApiError(429, message, after_s=after_s, reason="rate_limit_exceeded")
    found = as_api_error(exc)
    return ApiError(
        found.status, message, kind=found.kind, reason=found.reason, after_s=found.after_s
    )


def stopped_error() -> ApiError:
    """Return the error of a run that a person stopped, or a newer message."""
    return ApiError(
        _NOT_RETRIED, "the run was stopped before it had answered", kind="run_stopped",
        reason="run_stopped",
    )  # fmt: skip


def suspended_error(run_id: str, session_key: str, approvals: tuple[str, ...]) -> ApiError:
    """Return the error of a run that waits for a person to approve a call."""
    named = f" {', '.join(approvals)}" if approvals else ""
    return ApiError(
        403,
        f"run {run_id} waits for the approval{named} of a person, and goes on when it is answered;"
        f" its answer is then in the session {session_key}",
        kind="approval_required",
        reason="approval_pending",
        fix="answer it (homarus approvals list), then repeat the request with the same"
        " Idempotency-Key",
    )
