"""Turn the blocks of one run into outbox records for the chat its message came from.

The text of a block comes from the `ReplyBuilder`; the `message_sending` hook sees it once, before
it is split for the service. Attached files are resolved in the agent's workspace. The first record
replaces the preview message that a live reply may have shown.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from homarus.core.message import Extras, Inbound, Media, Message, Outbound, redirect_reply
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.values import Refusal
from homarus.store.journal import (
    BuildReply,
    InboxRecord,
    JournalTransaction,
    Lease,
    OutboxRecord,
)

if TYPE_CHECKING:  # imported by the first run that answers a chat
    from homarus.agent.reply.block_delivery import BlockDelivery
    from homarus.agent.reply.blocks import Block, HumanDelayTimer
    from homarus.agent.reply.builder import ReplyBuilder

log = logging.getLogger(__name__)

ReplyStatus: TypeAlias = Literal["answered", "silent"]
ResolveAttachments: TypeAlias = Callable[[Sequence[str]], Awaitable[tuple[Media, ...]]]

# How many part numbers each attempt of a run has for itself.
_NUMBERS_PER_ATTEMPT: Final = 10_000


class LiveReplyHandle(Protocol):
    """The best-effort display of a run in its chat. Only `pause` waits, for a short time."""

    def update(self, *, typing: bool | None) -> None:
        """Refresh the display; `typing` switches the typing indicator on or off."""
        ...

    async def pause(self) -> str:
        """Pause the display; return the id of the preview message, "" when there is none."""
        ...

    def resume(self, *, taken: bool) -> None:
        """Resume the display; `taken`: an outbox record replaces the preview message."""
        ...

    def close(self) -> None:
        """End the display."""
        ...


class ReplySender:
    """Builds the outbox records of one run."""

    def __init__(
        self,
        record: InboxRecord,
        lease: Lease,
        *,
        build_reply: BuildReply,
        hooks: Hooks,
        now_ms: Callable[[], int],
    ) -> None:
        self._record, self._lease, self._build_reply = record, lease, build_reply
        self._inbound = record.inbound and redirect_reply(record.inbound)
        self._hooks, self._now_ms = hooks, now_ms
        self._builder: ReplyBuilder | None = None
        self._live: LiveReplyHandle | None = None
        self._delivery: BlockDelivery | None = None
        self._attach: ResolveAttachments | None = None
        self._is_muted = False
        self._delay: HumanDelayTimer | None = None
        # No two parts have the same id, also not those of two attempts that both sent some.
        # `attempts` restarts when a person retries a message; the lease's token never does.
        self._number = (lease.token - 1) * _NUMBERS_PER_ATTEMPT if record.entry else 0
        self._due_ms = 0
        self._is_holding = self._is_preview_replaced = False

    def configure(
        self,
        builder: "ReplyBuilder | None" = None,
        live: LiveReplyHandle | None = None,
        attach: ResolveAttachments | None = None,
        *,
        is_muted: bool,
    ) -> None:
        """Set how the chat is answered. `is_muted`: it gets nothing."""
        self._builder, self._live, self._attach = builder, live, attach
        self._is_muted = is_muted
        if builder and builder.sends_on_save:
            from homarus.agent.reply.blocks import HumanDelayTimer

            self._delay = HumanDelayTimer(builder.settings.delay_ms, self._record.id)
        elif builder:
            self._number = 0  # nothing was sent before, or the same under the same numbers

    def set_delivery(self, delivery: "BlockDelivery") -> None:
        """Stream blocks: what was sent of a message is not sent again with it."""
        self._delivery = delivery

    def mark_answer(self, transaction: JournalTransaction) -> None:
        """Record whether blocks of an answer are in the outbox that is not complete."""
        if self._delivery:
            self._delivery.write_mark(transaction, self._record.id, self._lease)

    async def records_for_saved(self, messages: Sequence[Message]) -> list[OutboxRecord]:
        """Return what is sent with messages that are about to be saved."""
        builder = self._builder
        if builder is None:
            return []
        if self._delivery:
            return await self._delivery.end_messages(messages)
        return await self.make_records(
            [block for message in messages for block in builder.save(message)]
        )

    async def records_for_reply(self, reply: Message) -> tuple[ReplyStatus, list[OutboxRecord]]:
        """Return the status and the remaining records of a run by its last message."""
        if self._builder is None:
            from homarus.agent.reply.reply_cleaner import clean_message

            return "silent" if clean_message(reply).silent else "answered", []
        if self._is_muted:
            return "silent", []
        if self._delivery:
            return await self._delivery.end_run(reply)
        end = self._builder.finish(reply)
        return end.status, await self.make_records(end.blocks)

    async def records_for_error(self, text: str) -> list[OutboxRecord]:
        """Return what a chat gets of a run without an answer; `text` is the error for its user."""
        if self._builder:
            return await self.make_records(self._builder.fail(text))
        from homarus.agent.reply.blocks import Block

        return await self.make_records([Block(text, "error")] if text else [])

    async def records_for_text(self, text: str) -> list[OutboxRecord]:
        """Return a text of the program itself for the chat."""
        from homarus.agent.reply.blocks import Block

        return await self.make_records([Block(text)])

    @property
    def failed_tool(self) -> str:
        """The tool whose failure an answer without a text reports; "" for none."""
        return self._builder.failed_tool if self._builder else ""

    def on_enqueued(self) -> None:
        """Resume the live reply: the records are in the outbox."""
        if self._is_holding and self._live:
            self._live.resume(taken=self._is_preview_replaced)
        self._is_holding = self._is_preview_replaced = False

    async def make_records(self, blocks: "Sequence[Block]") -> list[OutboxRecord]:
        """Return the records of blocks; `on_enqueued` must be called when they are enqueued."""
        inbound, records = self._inbound, list[OutboxRecord]()
        if inbound is None or self._is_muted or not blocks:
            return records
        preview_id = await self._live.pause() if self._live else ""
        self._is_holding = self._live is not None
        for block in blocks:
            media = await self._attach(block.media) if self._attach and block.media else ()
            current = inbound.id if block.reply_to_current else ""
            extras = Extras(block.reply_to or current, preview_id, media, as_voice=block.as_voice)
            made = await self._make_block_records(inbound, block.text, extras)
            if any(record.extras.replaces for record in made):
                preview_id, self._is_preview_replaced = "", True
            records += self._delayed(made)
        return records

    async def _make_block_records(
        self, inbound: Inbound, text: str, extras: Extras
    ) -> Sequence[OutboxRecord]:
        run, key = self._record.id, f"{self._record.id}:{self._number}"
        outbound = await self._hooks.message_sending(Outbound(inbound.address, text, key, extras))
        if isinstance(outbound, Refusal):
            log.warning("reply %s is not sent: %s", key, outbound.reason)
            return ()
        records = self._build_reply(inbound, run, outbound.text, self._number, extras)
        self._number += len(records)
        return records

    def _delayed(self, records: Sequence[OutboxRecord]) -> Sequence[OutboxRecord]:
        """Return the records with a human-like delay before the first of them."""
        wait_s = self._delay.next_s() if self._delay and records else 0.0
        if not wait_s:
            return records
        self._due_ms = max(self._due_ms, self._now_ms()) + round(wait_s * 1000)
        return [replace(records[0], not_before_ms=self._due_ms), *records[1:]]
