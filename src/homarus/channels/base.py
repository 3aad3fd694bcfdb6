"""The Channel seam: receive for as long as you live, send when told."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from homarus.core.message import Inbound, Outbound

Receive: TypeAlias = Callable[[Inbound], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a service can carry."""

    text_limit: int = 4_000
    unit: Literal["utf16", "codepoint", "byte"] = "utf16"


class Channel(Protocol):
    """One account on one chat service."""

    name: str
    capabilities: Capabilities

    async def run(self, receive: Receive) -> None:
        """Hand over what arrives, until cancelled; raise to be restarted."""
        ...

    async def send(self, message: Outbound) -> None:
        """Deliver; raises ChannelError."""
        ...
