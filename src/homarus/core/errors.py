"""The exception tree: the class of an error decides how it is handled.

HomarusError
├── UserError                    wrong input or config: message only, exit status 2
│   ├── ConfigError              names file, line, key and fix
│   ├── UnknownNameError         names the closest names
│   ├── ApprovalError            an answer to an approval is refused
│   │   ├── UnknownApprovalError
│   │   ├── AmbiguousApprovalError
│   │   ├── ApprovalResolvedError
│   │   ├── ApprovalExpiredError
│   │   └── ForeignApprovalError
│   ├── SpawnRefusedError        a sub-agent may not be started
│   └── MissingExtraError        names the pip command
├── ProviderError                a model call failed
│   ├── AuthError                → next credential
│   ├── BillingError             → next credential, long cooldown
│   ├── RateLimitError           → cooldown, next target
│   ├── OverloadedError          → retry
│   ├── ProviderTimeoutError     → retry, next target
│   ├── UnreachableError         → retry, next target
│   ├── StreamError              → retry (malformed or cut off)
│   ├── AnswerTooLongError       → stop, report: the answer does not end
│   ├── ContextOverflowError     → compact, retry
│   ├── ImageTooLargeError       → report with the limit
│   ├── ContentFilterError       → report
│   ├── BadRequestError          → stop, report
│   │   └── ThinkingUnsupportedError → lower the thinking level, retry
│   └── AllAttemptsFailedError   → report: every model and credential was tried
├── ToolError                    its text is sent to the model
│   ├── ToolDeniedError
│   │   ├── SandboxError         there is no sandbox as the settings demand it
│   │   └── BlockedUrlError      the network guard refuses where a URL leads
│   ├── ToolTimeoutError
│   ├── PageError                a page of the browser refuses or fails
│   ├── BrowserGoneError         the browser has ended
│   └── FetchError               a server of the internet could not be reached, or misbehaves
├── ChannelError                 a chat service failed
│   ├── SendError                → retry when `retryable`
│   ├── MediaTooLargeError       → report, continue without the file
│   └── ChannelAuthError         → stop the channel, notify the owner
├── StoreError                   state could not be read or written
│   ├── NotFoundError
│   ├── ConflictError            → reload, retry
│   ├── LeaseLostError           → stop: another worker has it, or it is settled
│   ├── CorruptDataError         → repair
│   ├── DiskFullError            → refuse new work until there is space
│   └── StateInUseError          → another process uses this state directory
├── RunCrashedError              a bug of ours ended a run
├── RunLimitError                a limit ended a run
│   ├── ToolLoopError            → report: the same calls were repeated
│   └── SpendLimitError          → report, until the limit is raised or the day ends
├── RunSuspendedError            → end the run; an approval resumes it
├── RunStuckError                a run ignored its cancellation and was abandoned
└── ProtocolError                the error response to a gateway client
    ├── InvalidRequestError      the request is invalid
    ├── ForbiddenError           the client lacks the scope
    ├── UnavailableError         the request is valid and cannot be served now
    ├── NotPairedError           the device is not paired
    └── AgentTimeoutError        the run took too long

The message says what happened and to what, `fix` what to do about it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class HomarusError(Exception):
    """The base of every error that is raised deliberately."""

    code: ClassVar[str] = "internal"
    exit_status: int = 1
    payload: Any = None  # the result of the run that failed, as the method `agent` returns it

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} ({self.fix})" if self.fix else self.message


class UserError(HomarusError):
    """What was typed or configured is wrong."""

    code = "user"
    exit_status = 2


class ConfigError(UserError):
    """The configuration is wrong in a known file, line and key."""

    code = "user.config"

    def __init__(
        self, message: str, *, file: str = "", line: int = 0, key: str = "", fix: str = ""
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part)
        super().__init__(": ".join(part for part in (where, key, message) if part), fix=fix)
        self.file, self.line, self.key, self.reason = file, line, key, message


class UnknownNameError(UserError):
    """An unknown name; the closest known ones are offered."""

    code = "user.unknown_name"

    def __init__(
        self, kind: str, name: str, nearest: tuple[str, ...] = (), *, fix: str = ""
    ) -> None:
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"unknown {kind} {name!r}", fix=fix or hint)
        self.kind, self.name, self.nearest = kind, name, nearest


class SpawnRefusedError(UserError):
    """A sub-agent may not be started: what OpenClaw calls forbidden."""

    code = "user.spawn_refused"


class MissingExtraError(UserError):
    """Something needs a package that is not installed."""

    code = "user.missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        from homarus.core.installation import extra_command

        super().__init__(
            f"{what} needs a package that is not installed", fix=f"run `{extra_command(extra)}`"
        )


class ProviderError(HomarusError):
    """A model call failed."""

    code = "provider"

    def __init__(self, message: str, *, fix: str = "", status: int = 0) -> None:
        super().__init__(message, fix=fix)
        self.status = status


class AuthError(ProviderError):
    """The credential was refused."""

    code = "provider.auth"


class BillingError(ProviderError):
    """The account behind the credential has no credit."""

    code = "provider.billing"


class RateLimitError(ProviderError):
    """The provider asked us to wait."""

    code = "provider.rate_limited"

    def __init__(
        self, message: str, *, after_s: float | None = None, fix: str = "", status: int = 429
    ) -> None:
        super().__init__(message, fix=fix, status=status)
        self.after_s = after_s


class OverloadedError(ProviderError):
    """The provider is reachable and overloaded."""

    code = "provider.overloaded"


class ProviderTimeoutError(ProviderError):
    """The provider did not answer within the deadline."""

    code = "provider.timeout"


class UnreachableError(ProviderError):
    """The connection failed: wrong address, no network, or no server."""

    code = "provider.unreachable"


class StreamError(ProviderError):
    """The response was malformed, or cut off before its end."""

    code = "provider.stream"


class AnswerTooLongError(ProviderError):
    """The answer is longer than any model's limit: it would not end."""

    code = "provider.answer_too_long"


class ContextOverflowError(ProviderError):
    """The request exceeds the model's context window."""

    code = "provider.context_overflow"


class ImageTooLargeError(ProviderError):
    """An image is over the provider's limit."""

    code = "provider.image_too_large"


class ContentFilterError(ProviderError):
    """The provider refused the content."""

    code = "provider.content_filtered"


class BadRequestError(ProviderError):
    """The provider rejected the request as invalid."""

    code = "provider.bad_request"


class ThinkingUnsupportedError(BadRequestError):
    """The model does not support this thinking level."""

    code = "provider.thinking_refused"


class AllAttemptsFailedError(ProviderError):
    """Every model and credential was tried, and all failed."""

    code = "provider.all_failed"

    def __init__(self, tried: tuple[ProviderError, ...]) -> None:
        reasons = "; ".join(error.message for error in tried)
        super().__init__(
            f"no model answered: {reasons}", fix=tried[-1].fix, status=tried[-1].status
        )
        self.tried = tried


class ToolError(HomarusError):
    """A tool failed in a way the model can act on."""

    code = "tool"


class ToolDeniedError(ToolError):
    """The tool policy or a person refused the call."""

    code = "tool.denied"


class ToolTimeoutError(ToolError):
    """A tool call exceeded its timeout."""

    code = "tool.timeout"


class SandboxError(ToolDeniedError):
    """There is no sandbox of the kind that the settings demand; the command was not run."""

    code = "tool.sandbox"


class BlockedUrlError(ToolDeniedError):
    """A URL leads to a place that the network guard refuses."""

    code = "tool.blocked_url"


class PageError(ToolError):
    """A page of the browser did not do what was requested; the message may have its text."""

    code = "tool.page"


class BrowserGoneError(ToolError):
    """The browser or the tab ended while it was used."""

    code = "tool.browser_gone"


class FetchError(ToolError):
    """A server of the internet could not be reached, or its answer is refused."""

    code = "tool.fetch"


class ChannelError(HomarusError):
    """A chat service failed."""

    code = "channel"


class SendError(ChannelError):
    """A message could not be sent."""

    code = "channel.send_failed"

    def __init__(
        self, message: str, *, retryable: bool, after_s: float | None = None, fix: str = ""
    ) -> None:
        super().__init__(message, fix=fix)
        self.retryable = retryable
        self.after_s = after_s  # how long the service asked us to wait


class MediaTooLargeError(ChannelError):
    """A file exceeds the size limit."""

    code = "channel.media_too_large"


class ChannelAuthError(ChannelError):
    """The service refused our credential."""

    code = "channel.auth"


class RunCrashedError(HomarusError):
    """A bug of ours ended a run: the log has the details, and the sender is notified."""

    code = "run.broke"


class RunStuckError(HomarusError):
    """A run ignored its cancellation and was abandoned: the log has its stack."""

    code = "run.stuck"


class RunLimitError(HomarusError):
    """A limit ended a run."""

    code = "run.stopped"


class ToolLoopError(RunLimitError):
    """The agent repeated the same tool calls without progress."""

    code = "run.stopped.circles"


class RunSuspendedError(HomarusError):
    """A run ends without an outcome: it is resumed when an approval is answered or expires."""

    code = "run.suspended"


class ApprovalError(UserError):
    """An answer to an approval is refused."""

    code = "user.approval"


class UnknownApprovalError(ApprovalError):
    """No approval has this id, or an id that starts so."""

    code = "user.approval.unknown"


class AmbiguousApprovalError(ApprovalError):
    """Several approvals have an id that starts so."""

    code = "user.approval.ambiguous"


class ApprovalResolvedError(ApprovalError):
    """The approval was answered or cancelled before."""

    code = "user.approval.resolved"


class ApprovalExpiredError(ApprovalError):
    """The approval expired before this answer."""

    code = "user.approval.expired"


class ForeignApprovalError(ApprovalError):
    """The approval is not for this approver to answer."""

    code = "user.approval.foreign"


class SpendLimitError(RunLimitError):
    """The next model call would exceed the spend limit."""

    code = "run.stopped.spend_cap"


class StoreError(HomarusError):
    """State could not be read or written."""

    code = "store"


class NotFoundError(StoreError):
    """There is no such record."""

    code = "store.not_found"


class ConflictError(StoreError):
    """Another writer changed the data first."""

    code = "store.conflict"


class LeaseLostError(StoreError):
    """The lease was lost to another worker, or the record is settled: discard this work."""

    code = "store.lease_lost"


class CorruptDataError(StoreError):
    """The stored data is corrupt."""

    code = "store.corrupt"


class DiskFullError(StoreError):
    """The disk is full."""

    code = "store.disk_full"


class StateInUseError(StoreError):
    """Another process uses this state directory."""

    code = "store.in_use"
    exit_status = 2


class ProtocolError(HomarusError):
    """An error response to a gateway client; `wire` is its code in the protocol."""

    code = "protocol"
    wire: ClassVar[str] = "UNAVAILABLE"

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, object] | None = None,
        fix: str = "",
        close_code: int = 0,
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(message, fix=fix)
        self.details = details
        self.close_code = close_code  # the WebSocket close code; 0 keeps the connection open
        self.retry_after_ms = retry_after_ms


class InvalidRequestError(ProtocolError):
    """The request is invalid."""

    code = "protocol.invalid_request"
    wire = "INVALID_REQUEST"
    exit_status = 2


class ForbiddenError(ProtocolError):
    """The client lacks the scope for this; only the newest protocol has a code for it."""

    code = "protocol.forbidden"
    wire = "FORBIDDEN"


class UnavailableError(ProtocolError):
    """The request is valid and cannot be served now."""

    code = "protocol.unavailable"


class NotPairedError(ProtocolError):
    """The device is not paired."""

    code = "protocol.not_paired"
    wire = "NOT_PAIRED"


class AgentTimeoutError(ProtocolError):
    """The run took too long."""

    code = "protocol.agent_timeout"
    wire = "AGENT_TIMEOUT"
