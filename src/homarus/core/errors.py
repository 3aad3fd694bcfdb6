"""The exception tree. An error's class is its policy; only an adapter reads a vendor's words.

HomarusError
├── UserError              what was typed or configured is wrong: message only, exit 2
│   ├── ConfigError        says file, line, key and fix
│   ├── UnknownName        says the nearest names
│   └── MissingExtra       says the pip command
├── ProviderError          the model did not answer
│   ├── AuthFailed         → next credential
│   ├── BillingFailed      → next credential, long rest
│   ├── RateLimited        → cool down, next
│   ├── Overloaded         → retry
│   ├── ProviderTimeout    → retry, next
│   ├── Unreachable        → retry, next
│   ├── StreamBroken       → retry (malformed or cut before its end)
│   ├── ContextOverflow    → compact, retry
│   ├── ImageTooLarge      → report with the limit
│   ├── ContentFiltered    → report
│   ├── BadRequest         → stop, report
│   │   └── ThinkingRefused → think less, retry
│   └── AllFailed          → report: every model and credential was tried
├── ToolError              the text goes to the model
│   ├── ToolDenied
│   └── ToolTimeout
├── ChannelError           a chat service failed
│   ├── SendFailed         → retry when `retryable`
│   ├── MediaTooLarge      → say so, go on without the file
│   └── ChannelAuthFailed  → stop the channel, tell the owner
├── StoreError             state could not be read or written
│   ├── NotFound
│   ├── Conflict           → reload, retry
│   ├── LeaseLost          → stop: somebody else has it, or it is settled
│   ├── Corrupt            → repair
│   ├── DiskFull           → refuse new work until there is room
│   └── InUse              → another process holds this state directory
├── RunBroke               a run met a bug of ours
├── RunStopped             a limit of ours ended a run
│   ├── WentInCircles      → report: the same calls again and again
│   └── SpendCapped        → report, until the cap is raised or the day is over
├── RunStuck               a run would not stop, and was given up
└── ProtocolError          what a gateway client is told
    ├── InvalidRequest     its request is wrong
    ├── Forbidden          it may not ask for this
    ├── Unavailable        it is right, and cannot be served now
    ├── NotPaired          its device is not known
    └── AgentTimeout       its run took too long

Every message says what happened and to what; `fix` says what to do next.
"""

from collections.abc import Mapping
from typing import ClassVar


class HomarusError(Exception):
    """Base of every error raised on purpose."""

    code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 1

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
    """The configuration is wrong at a known place."""

    code = "user.config"

    def __init__(
        self, message: str, *, file: str = "", line: int = 0, key: str = "", fix: str = ""
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part)
        super().__init__(": ".join(part for part in (where, key, message) if part), fix=fix)
        self.file, self.line, self.key, self.reason = file, line, key, message


class UnknownName(UserError):
    """A name nobody knows; the nearest ones are offered."""

    code = "user.unknown_name"

    def __init__(
        self, kind: str, name: str, nearest: tuple[str, ...] = (), *, fix: str = ""
    ) -> None:
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"unknown {kind} {name!r}", fix=fix or hint)
        self.kind, self.name, self.nearest = kind, name, nearest


class MissingExtra(UserError):
    """Something needs a package that is not installed."""

    code = "user.missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs a package that is not installed",
            fix=f"run `pip install 'homarus[{extra}]'`",
        )


class ProviderError(HomarusError):
    """The model did not answer."""

    code = "provider"

    def __init__(self, message: str, *, fix: str = "", status: int = 0) -> None:
        super().__init__(message, fix=fix)
        self.status = status


class AuthFailed(ProviderError):
    """The credential was refused."""

    code = "provider.auth"


class BillingFailed(ProviderError):
    """The account behind the credential has no credit."""

    code = "provider.billing"


class RateLimited(ProviderError):
    """The provider asked us to wait."""

    code = "provider.rate_limited"

    def __init__(
        self, message: str, *, after_s: float | None = None, fix: str = "", status: int = 429
    ) -> None:
        super().__init__(message, fix=fix, status=status)
        self.after_s = after_s


class Overloaded(ProviderError):
    """The provider is up and cannot serve now."""

    code = "provider.overloaded"


class ProviderTimeout(ProviderError):
    """No answer within the deadline."""

    code = "provider.timeout"


class Unreachable(ProviderError):
    """No connection: wrong address, no network, or nobody listening."""

    code = "provider.unreachable"


class StreamBroken(ProviderError):
    """The answer began and was malformed or cut before its end."""

    code = "provider.stream"


class ContextOverflow(ProviderError):
    """The request does not fit the model's window."""

    code = "provider.context_overflow"


class ImageTooLarge(ProviderError):
    """An image is over the provider's limit."""

    code = "provider.image_too_large"


class ContentFiltered(ProviderError):
    """The provider refused the content."""

    code = "provider.content_filtered"


class BadRequest(ProviderError):
    """The provider does not accept the request as it is."""

    code = "provider.bad_request"


class ThinkingRefused(BadRequest):
    """The model does not think, or not that hard."""

    code = "provider.thinking_refused"


class AllFailed(ProviderError):
    """Every model and credential that could be tried was."""

    code = "provider.all_failed"

    def __init__(self, tried: tuple[ProviderError, ...]) -> None:
        told = "; ".join(error.message for error in tried)
        super().__init__(f"no model answered: {told}", fix=tried[-1].fix, status=tried[-1].status)
        self.tried = tried


class ToolError(HomarusError):
    """A tool failed in a way the model can act on."""

    code = "tool"


class ToolDenied(ToolError):
    """Policy or a person said no."""

    code = "tool.denied"


class ToolTimeout(ToolError):
    """A tool took longer than it may."""

    code = "tool.timeout"


class ChannelError(HomarusError):
    """A chat service failed."""

    code = "channel"


class SendFailed(ChannelError):
    """A message was not taken."""

    code = "channel.send_failed"

    def __init__(
        self, message: str, *, retryable: bool, after_s: float | None = None, fix: str = ""
    ) -> None:
        super().__init__(message, fix=fix)
        self.retryable = retryable
        self.after_s = after_s  # how long the service asked us to wait


class MediaTooLarge(ChannelError):
    """A file is larger than it may be."""

    code = "channel.media_too_large"


class ChannelAuthFailed(ChannelError):
    """The service refused our credential."""

    code = "channel.auth"


class RunBroke(HomarusError):
    """A run met a bug of ours: it is in the log, and the sender is told."""

    code = "run.broke"


class RunStuck(HomarusError):
    """A run was told to stop and did not: where it hangs is in the log."""

    code = "run.stuck"


class RunStopped(HomarusError):
    """A limit ended a run."""

    code = "run.stopped"


class WentInCircles(RunStopped):
    """The agent repeated the same tool calls and got no further."""

    code = "run.stopped.circles"


class SpendCapped(RunStopped):
    """The next model call would cost more than is allowed."""

    code = "run.stopped.spend_cap"


class StoreError(HomarusError):
    """State could not be read or written."""

    code = "store"


class NotFound(StoreError):
    """There is no such record."""

    code = "store.not_found"


class Conflict(StoreError):
    """Someone else wrote first."""

    code = "store.conflict"


class LeaseLost(StoreError):
    """Somebody else works on this now, or it is settled: what was done here does not count."""

    code = "store.lease_lost"


class Corrupt(StoreError):
    """What is stored cannot be read."""

    code = "store.corrupt"


class DiskFull(StoreError):
    """There is no room to write."""

    code = "store.disk_full"


class InUse(StoreError):
    """Another process holds this state directory."""

    code = "store.in_use"
    exit_status = 2


class ProtocolError(HomarusError):
    """What a gateway client is told; `wire` is its code on the wire."""

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
        self.close_code = close_code  # what the connection is closed with; 0: it stays open
        self.retry_after_ms = retry_after_ms


class InvalidRequest(ProtocolError):
    """The request is wrong."""

    code = "protocol.invalid_request"
    wire = "INVALID_REQUEST"
    exit_status = 2


class Forbidden(ProtocolError):
    """The client may not ask for this; the newest protocol has a word of its own for it."""

    code = "protocol.forbidden"
    wire = "FORBIDDEN"


class Unavailable(ProtocolError):
    """The request is right, and cannot be served now."""

    code = "protocol.unavailable"


class NotPaired(ProtocolError):
    """The device is not known here."""

    code = "protocol.not_paired"
    wire = "NOT_PAIRED"


class AgentTimeout(ProtocolError):
    """The run took too long."""

    code = "protocol.agent_timeout"
    wire = "AGENT_TIMEOUT"
