"""Values that hooks receive and return besides messages and tool calls."""

from homarus.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HookContext:
    """The context of a hook call; fields that do not apply are empty."""

    agent: str = ""
    session_key: str = ""
    run_id: str = ""
    workspace: str = ""
    channel: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Returned by a hook to refuse an action; the requester gets the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class HookFailure:
    """A hook that failed: how often, and its last error."""

    plugin: str
    hook: str
    count: int
    last_error: str
