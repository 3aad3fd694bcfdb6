"""Show runs in their chats while they are under way, and add reactions.

All of this is best effort, so it bypasses the outbox: each request has a short timeout, a failure
is logged at debug level, and only the answer waits for it, briefly. What must arrive is an outbox
record.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from homarus.channels.base import Channel, SupportsReactions, SupportsTyping
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound
from homarus.core.tasks import run_contained

if TYPE_CHECKING:  # imported only for channels that can show something
    from homarus.channels.live_reply import CurrentText, LiveReply
    from homarus.channels.typing_indicator import TypingIndicator

MAX_ACKS: Final = 1_000

# The running account of a channel name and account id.
FindChannel: TypeAlias = Callable[[str, str], Channel | None]


@dataclass(frozen=True, slots=True)
class _AckReaction:
    """A reaction that confirms receipt of a message."""

    to: Address
    message_id: str
    given: asyncio.Task[None]


class LiveReplies:
    """Show live replies and ack reactions. Its tasks belong to the program's task group."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        clock: Clock,
        *,
        channel: FindChannel,
        config: Callable[[], Config],
    ) -> None:
        self._group: asyncio.TaskGroup = group
        self._clock, self._channel, self._config = clock, channel, config
        self._acks: OrderedDict[tuple[Address, str], _AckReaction] = OrderedDict()
        self._asked: OrderedDict[str, list[tuple[Address, str]]] = OrderedDict()  # by run

    def start(
        self, asked: Sequence[Inbound], run: str, look: "CurrentText", typing_interval_s: float
    ) -> "LiveReply | None":
        """Start to show the run that answers these messages; None if nothing can be shown."""
        to = asked[0].address
        channel = self._channel(to.channel, to.account)
        if channel is None:
            return None
        from homarus.channels.live_reply import LiveReply, make_preview
        from homarus.config.channels import common_settings

        self._remember(run, asked)
        settings = common_settings(self._config(), to.channel, to.account)
        sketch = make_preview(channel, to, run, settings)
        typing = self._typing(channel, to, typing_interval_s)
        if sketch is None and typing is None:
            return None
        showing = LiveReply(
            channel, to, self._clock, settings,
            look=look, sketch=sketch, typing=typing, end=self._end,
        )  # fmt: skip
        showing.task = self._spawn(f"showing {run}", showing.run)
        return showing if showing.task else None

    def _typing(self, channel: Channel, to: Address, interval_s: float) -> "TypingIndicator | None":
        from homarus.channels.typing_indicator import TypingIndicator

        if not isinstance(channel, SupportsTyping):
            return None
        interval_s = min(interval_s, max(1.0, channel.capabilities.typing_s * 0.8))
        return TypingIndicator(
            lambda: channel.show_typing(to, on=True), self._clock, interval_s=interval_s
        )

    def add_ack_reaction(self, inbound: Inbound, emoji: str) -> None:
        """Confirm receipt of a message by a reaction."""
        to, message_id = inbound.address, inbound.id
        channel = self._channel(to.channel, to.account)
        if channel is None or not emoji or not isinstance(channel, SupportsReactions):
            return
        from homarus.channels.live_reply import best_effort

        given = self._spawn(
            "reaction",
            lambda: best_effort("reaction", lambda: channel.react(to, message_id, emoji)),
        )
        if given:
            self._acks[to, message_id] = _AckReaction(to, message_id, given)
            while len(self._acks) > MAX_ACKS:
                self._acks.popitem(last=False)

    def on_delivered(self, key: str) -> None:
        """Remove the reactions to the messages that a delivered record answers."""
        asked = self._asked.pop(key.rpartition(":")[0], ())
        if not asked or not self._config().messages.remove_ack_after_reply:
            return
        for place in asked:
            if ack := self._acks.pop(place, None):
                self._remove_reaction(ack)

    def _remove_reaction(self, ack: _AckReaction) -> None:
        channel = self._channel(ack.to.channel, ack.to.account)
        if channel is None or not isinstance(channel, SupportsReactions):
            return
        from homarus.channels.live_reply import best_effort

        async def take_back() -> None:
            await asyncio.wait([ack.given])
            await best_effort("reaction", lambda: channel.react(ack.to, ack.message_id, ""))

        self._spawn("reaction", take_back)

    def _remember(self, run: str, asked: Sequence[Inbound]) -> None:
        places = [(one.address, one.id) for one in asked]
        if heard := [place for place in places if place in self._acks]:
            self._asked[run] = heard
            while len(self._asked) > MAX_ACKS:
                self._asked.popitem(last=False)

    def _end(self, showing: "LiveReply") -> None:
        task = showing.task
        if task is None:
            return

        async def clear() -> None:
            await showing.pause()  # the first send of a preview must not be lost
            task.cancel()
            await asyncio.wait([task])
            await showing.remove_preview()

        showing.update(typing=False)
        if self._spawn(f"end of {task.get_name()}", clear) is None:
            task.cancel()

    def _spawn(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None] | None:
        """Start a background task; None when the program is ending."""
        aside: Coroutine[None, None, None] = run_contained(name, work, lambda _exc: None)
        try:
            return self._group.create_task(aside, name=name)
        except RuntimeError:
            aside.close()
            return None
