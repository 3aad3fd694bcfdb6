"""A turn that no person's message started: of a cron job or a webhook, in a session of its own.

The turn is an accepted message of the journal like any other: it is answered exactly once, or its
failure is recorded. What happens at its end (delivery, summary, run log) is stored with it and
written in the transaction that settles it.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.sessions.notices import WakeMode
from homarus.store.base import Transaction

TurnSource: TypeAlias = Literal["cron", "hook"]
DeliveryMode: TypeAlias = Literal["none", "announce", "webhook"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where the answer of a turn goes.

    `channel` is `last` for the last chat of the agent's main session; `to` is a chat, or the
    address of a webhook. Without `best_effort`, a turn whose answer has no valid target fails
    before it starts.
    """

    mode: DeliveryMode = "none"
    channel: str = "last"
    to: str = ""
    account: str = ""
    thread: str = ""
    best_effort: bool = False


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn to start.

    `id` is that of its inbox record and its run: the same id starts one turn, however often it is
    requested. `name` is shown to people. `taint` is kind and origin of the untrusted content in
    `text`. With `summarizes`, a line about the answer is left for the agent's main session, which
    `wake_mode` says when to look at.
    """

    id: str
    source: TurnSource
    name: str
    agent: str
    session_key: str
    text: str
    at_ms: int
    model: str = ""
    thinking: str = ""
    timeout_s: float = 0.0
    delivery: Delivery = Delivery()
    summarizes: bool = True
    wake_mode: WakeMode = "now"
    taint: tuple[tuple[str, str], ...] = ()


# Returns the run id once the turn is stored, together with what the function writes.
StartTurn: TypeAlias = Callable[[TurnRequest, Callable[[Transaction], None]], Awaitable[str]]
