"""The Channel seam: receive for as long as you live, send when told.

A channel translates between its service and our values, and states what the service can do. All
that must not be got wrong twice is core's: acceptance into the journal, splitting, order, retry
and receipts (intake.py, deliver.py).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from homarus.core.message import Inbound, Json, Outbound
from homarus.core.value import dataclass

# Tells the service that a message was received.
Acknowledge: TypeAlias = Callable[[], Awaitable[None]]


class Receive(Protocol):
    """What a channel is given: where it hands over what arrives, and where it left off."""

    async def __call__(
        self,
        inbound: Inbound,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        """Returns when the message is in the journal: then, not before, the service may be told.

        `cursor` says how far the channel has read with this message; it is stored in the same
        commit. `acknowledge` is called once the message is kept and before it is answered; a
        service that is told by what is read next, or by our answer, needs none. Raises StoreError
        when the message cannot be kept: then the service must offer it again.
        """
        ...

    async def cursor(self) -> Mapping[str, Json] | None:
        """How far this channel had read, from the last message that was kept."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a service can carry.

    `idempotent`: the same key sent twice is one message there, so an unknown outcome is
    resolved by sending again.
    """

    text_limit: int = 4_000
    unit: Literal["utf16", "codepoint", "byte"] = "utf16"
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """The service's own id for what it took; "" when it gives none."""

    message_id: str = ""


class Channel(Protocol):
    """One account on one chat service."""

    name: str
    account: str
    capabilities: Capabilities

    async def run(self, receive: Receive) -> None:
        """Hand over what arrives, until cancelled; raise to be restarted."""
        ...

    async def send(self, message: Outbound) -> Receipt:
        """Deliver under `message.key`. SendFailed says whether another try makes sense.

        Any other error, a timeout or a lost connection: it is not known whether it arrived.
        """
        ...


@runtime_checkable
class LooksUp(Protocol):
    """A service that can be asked whether something arrived."""

    async def look_up(self, message: Outbound) -> Receipt | None:
        """The receipt of what was sent under this key; None when it never arrived."""
        ...
