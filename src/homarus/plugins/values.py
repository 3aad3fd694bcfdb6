"""What hooks are told beside messages and calls, and how they say no."""

from homarus.core.value import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """Where something happens: what is not known there is empty."""

    agent: str = ""
    session_key: str = ""
    run_id: str = ""
    workspace: str = ""
    channel: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A hook's no: this is not done. The reason goes to whoever asked for it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A hook that went wrong: how often, and what it was the last time."""

    plugin: str
    hook: str
    count: int
    last: str
