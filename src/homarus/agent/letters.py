"""Letters: what one run sends to the chat its message came from, as parcels.

Words are taken from the run's shape, seen by hooks once and whole, and packed as the chat's
service takes them; files are looked for where the agent may have them. What is being shown there
of the answer while it grows is replaced by its first parcel.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from homarus.agent.reply.text import parse_reply
from homarus.core.message import NO_EXTRAS, Extras, Inbound, Media, Message, Outbound
from homarus.core.value import dataclass
from homarus.plugins.caller import Hooks
from homarus.plugins.values import Refusal
from homarus.store.journal import Accepted, Lease, Parcel

if TYPE_CHECKING:  # for who is answered in a chat
    from homarus.agent.reply.blocks import Block, Pace
    from homarus.agent.reply.shaping import Shape

log = logging.getLogger(__name__)

Result: TypeAlias = Literal["answered", "silent"]
Attach: TypeAlias = Callable[[Sequence[str]], Awaitable[tuple[Media, ...]]]

# The numbers that one attempt of a run has for itself.
_ROOM: Final = 10_000


class Pack(Protocol):
    """A reply for a message's sender as parcels, counted from `first`; none where none is due."""

    def __call__(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> Sequence[Parcel]: ...


class Show(Protocol):
    """A run as its chat sees it while it goes on. Only `hold` waits, and not for long."""

    def note(self, *, typing: bool | None) -> None:
        """Something happened; the typing sign is wanted (again), or no longer."""
        ...

    async def hold(self) -> str:
        """Show no more for now; the message that shows the answer so far, "" when none does."""
        ...

    def release(self, *, taken: bool) -> None:
        """Go on; `taken`: what was sent replaces that message."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


@dataclass(frozen=True, slots=True)
class Telling:
    """How a run is told to its chat. `mute`: nothing may be sent there."""

    shape: "Shape | None" = None
    show: Show | None = None
    attach: Attach | None = None
    mute: bool = False


class Letters:
    """The parcels of one run."""

    def __init__(
        self, row: Accepted, lease: Lease, *, pack: Pack, hooks: Hooks, now_ms: Callable[[], int]
    ) -> None:
        self._row, self._pack, self._hooks, self._now_ms = row, pack, hooks, now_ms
        self._telling = Telling()
        self._pace: Pace | None = None
        # Counts all parts: no two have the same id, also of two attempts when one has sent some.
        # Attempts are counted anew when a person has a message tried again; leases are not.
        self._number = (lease.token - 1) * _ROOM if row.entry else 0
        self._due_ms = 0
        self._held = self._taken = False

    def begin(self, telling: Telling) -> None:
        """It is known how the chat is told."""
        self._telling, shape = telling, telling.shape
        if shape and shape.posts:
            from homarus.agent.reply.blocks import Pace

            self._pace = Pace(shape.manner.delay_ms, self._row.id)
        elif shape:
            self._number = 0  # nothing was sent before, or the same under the same numbers

    async def save(self, messages: Sequence[Message]) -> list[Parcel]:
        """What is sent with messages that are about to be saved."""
        shape = self._telling.shape
        blocks = [block for message in messages for block in shape.save(message)] if shape else []
        return await self._write(blocks)

    async def finish(self, reply: Message) -> tuple[Result, list[Parcel]]:
        """The last message of the run, before it is saved."""
        shape = self._telling.shape
        if shape is None:
            return "silent" if parse_reply(reply.text).silent else "answered", []
        if self._telling.mute:
            return "silent", []
        ending = shape.finish(reply)
        return ending.outcome, await self._write(ending.blocks)

    async def fail(self, told: str) -> list[Parcel]:
        """There is no answer: the sender is told why."""
        shape = self._telling.shape
        if shape:
            return await self._write(shape.fail(told))
        from homarus.agent.reply.blocks import Block

        return await self._write([Block(told, "error")] if told else [])

    def posted(self) -> None:
        """What was written is in the outbox."""
        if self._held and self._telling.show:
            self._telling.show.release(taken=self._taken)
        self._held = self._taken = False

    async def _write(self, blocks: "Sequence[Block]") -> list[Parcel]:
        inbound, telling, parcels = self._row.inbound, self._telling, list[Parcel]()
        if inbound is None or telling.mute or not blocks:
            return parcels
        shown = await telling.show.hold() if telling.show else ""
        self._held = telling.show is not None
        for block in blocks:
            media = await telling.attach(block.media) if telling.attach and block.media else ()
            current = inbound.id if block.reply_to_current else ""
            extras = Extras(block.reply_to or current, shown, media, as_voice=block.as_voice)
            written = await self._letter(inbound, block.text, extras)
            if any(parcel.extras.replaces for parcel in written):
                shown, self._taken = "", True
            parcels += self._paced(written)
        return parcels

    async def _letter(self, inbound: Inbound, text: str, extras: Extras) -> Sequence[Parcel]:
        run, key = self._row.id, f"{self._row.id}:{self._number}"
        sent = await self._hooks.message_sending(Outbound(inbound.address, text, key, extras))
        if isinstance(sent, Refusal):
            log.warning("letter %s is not sent: %s", key, sent.reason)
            return ()
        parcels = self._pack(inbound, run, sent.text, self._number, extras)
        self._number += len(parcels)
        return parcels

    def _paced(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """With a pause before the first of them, as people make between two messages."""
        wait_s = self._pace.next_s() if self._pace and parcels else 0.0
        if not wait_s:
            return parcels
        self._due_ms = max(self._due_ms, self._now_ms()) + round(wait_s * 1000)
        return [replace(parcels[0], not_before_ms=self._due_ms), *parcels[1:]]
