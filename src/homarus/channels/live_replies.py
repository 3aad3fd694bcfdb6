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
from homarus.store.chat_records import ChatRecord

if TYPE_CHECKING:  # imported only for channels that can show something
    from homarus.channels.live_reply import CurrentText, LiveReply
    from homarus.channels.stored_acks import StoredAcks
    from homarus.channels.typing_indicator import TypingIndicator

MAX_ACKS: Final = 1_000

# The running account of a channel name and account id.
FindChannel: TypeAlias = Callable[[str, str], Channel | None]


@dataclass(frozen=True, slots=True)
class _AckReaction:
    """A reaction that confirms receipt of a message."""

    to: Address
    message_id: str
    task: asyncio.Task[None] | None  # None: an earlier process added it


class LiveReplies:
    """Show live replies and ack reactions. Its tasks belong to the program's task group.

    `open_acks` opens what remembers the reactions that are to be removed.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        clock: Clock,
        *,
        channel: FindChannel,
        config: Callable[[], Config],
        open_acks: "Callable[[], StoredAcks] | None" = None,
    ) -> None:
        self._group: asyncio.TaskGroup = group
        self._clock, self._channel, self._config = clock, channel, config
        self._open_acks = open_acks
        self._stored_acks: StoredAcks | None = None
        self._acks: OrderedDict[tuple[Address, str], _AckReaction] = OrderedDict()
        self._acked_by_run: OrderedDict[str, list[tuple[Address, str]]] = OrderedDict()

    def start(
        self,
        messages: Sequence[Inbound],
        run: str,
        current_text: "CurrentText",
        typing_interval_s: float,
    ) -> "LiveReply | None":
        """Start to show the run that answers these messages; None if nothing can be shown."""
        to = messages[0].address
        channel = self._channel(to.channel, to.account)
        if channel is None:
            return None
        from homarus.channels.live_reply import LiveReply, make_preview
        from homarus.config.channels import common_settings

        self._track_acks(run, messages)
        settings = common_settings(self._config(), to.channel, to.account)
        preview = make_preview(channel, to, run, settings)
        typing = self._typing(channel, to, typing_interval_s)
        if preview is None and typing is None:
            return None
        live_reply = LiveReply(
            channel, to, self._clock, settings,
            current_text=current_text, preview=preview, typing=typing, on_close=self._close,
        )  # fmt: skip
        live_reply.task = self._spawn(f"showing {run}", live_reply.run)
        return live_reply if live_reply.task else None

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

        reaction = self._spawn(
            "reaction",
            lambda: best_effort("reaction", lambda: channel.react(to, message_id, emoji)),
        )
        if reaction:
            self._acks[to, message_id] = _AckReaction(to, message_id, reaction)
            while len(self._acks) > MAX_ACKS:
                self._acks.popitem(last=False)

    def encode_ack(self, inbound: Inbound, session: str) -> tuple[ChatRecord, ...]:
        """Return what is to be stored with a message, so that its reaction is removed later."""
        acks = self._find_stored_acks()
        to = inbound.address
        if acks is None or not isinstance(self._channel(to.channel, to.account), SupportsReactions):
            return ()
        return (acks.encode(inbound, session),)

    def on_delivered(self, key: str) -> None:
        """Remove the reactions to the messages that a delivered record answers."""
        messages = self._acked_by_run.pop(key.rpartition(":")[0], ())
        if not self._config().messages.remove_ack_after_reply:
            return
        for message_ref in messages:
            if ack := self._acks.pop(message_ref, None):
                self._remove_reaction(ack)
        if acks := self._find_stored_acks():
            self._spawn("reactions of an earlier start", lambda: self._remove_left(acks))

    def _find_stored_acks(self) -> "StoredAcks | None":
        """Return what remembers reactions, None where they stay."""
        if not self._config().messages.remove_ack_after_reply:
            return None
        if self._stored_acks is None and self._open_acks:
            self._stored_acks = self._open_acks()
        return self._stored_acks

    async def _remove_left(self, acks: "StoredAcks") -> None:
        for to, message_id in await acks.take_answered():
            self._remove_reaction(_AckReaction(to, message_id, None))

    def _remove_reaction(self, ack: _AckReaction) -> None:
        channel = self._channel(ack.to.channel, ack.to.account)
        if channel is None or not isinstance(channel, SupportsReactions):
            return
        from homarus.channels.live_reply import best_effort

        async def remove() -> None:
            if ack.task:
                await asyncio.wait([ack.task])
            await best_effort("reaction", lambda: channel.react(ack.to, ack.message_id, ""))
            if acks := self._find_stored_acks():
                await acks.forget((ack.to, ack.message_id))

        self._spawn("reaction", remove)

    def _track_acks(self, run: str, messages: Sequence[Inbound]) -> None:
        refs = [(message.address, message.id) for message in messages]
        if acked := [message_ref for message_ref in refs if message_ref in self._acks]:
            self._acked_by_run[run] = acked
            while len(self._acked_by_run) > MAX_ACKS:
                self._acked_by_run.popitem(last=False)

    def _close(self, live_reply: "LiveReply") -> None:
        task = live_reply.task
        if task is None:
            return

        async def clear() -> None:
            await live_reply.pause()  # the first send of a preview must not be lost
            task.cancel()
            await asyncio.wait([task])
            await live_reply.remove_preview()

        live_reply.update(typing=False)
        if self._spawn(f"end of {task.get_name()}", clear) is None:
            task.cancel()

    def _spawn(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None] | None:
        """Start a background task; None when the program is ending."""
        coroutine: Coroutine[None, None, None] = run_contained(name, work, lambda _exc: None)
        try:
            return self._group.create_task(coroutine, name=name)
        except RuntimeError:
            coroutine.close()
            return None
