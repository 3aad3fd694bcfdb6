"""The request for a heartbeat: what jobs, webhooks, clients and the timer have in common."""

from collections.abc import Callable
from typing import TypeAlias

from homarus.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A heartbeat that is due now.

    `reason` names what caused it: `interval`, `manual`, `cron:<job id>`, `hook:<name>`,
    `exec-event`, `retry`. Without an agent it is the default agent, without a session its main
    session.
    """

    reason: str
    agent: str = ""
    session_key: str = ""


# Returns at once: requests of the same agent that come together start one heartbeat.
RequestHeartbeat: TypeAlias = Callable[[HeartbeatRequest], None]


def ignore_request(_request: HeartbeatRequest) -> None:
    """Start no heartbeat."""
