"""Deliver the blocks of an answer while the model writes it.

A `BlockDelivery` belongs to one run. Its task enqueues blocks as soon as they are ready, each time
in a transaction of its own; what is left of a message is enqueued in the transaction that saves the
message. The journal records that blocks of an unfinished answer are in the outbox
(`UNFINISHED_ANSWER`). When such an answer starts again, in this process or after a crash, its chat
gets a notice before any other text. Blocks that are in the outbox are delivered, before the notice;
blocks that are not yet there are dropped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Literal, TypeVar

from homarus.agent.reply.block_stream import BlockStream
from homarus.agent.reply.blocks import Block
from homarus.agent.reply.builder import ReplyBuilder
from homarus.agent.reply.wording import ANSWER_RESTARTED
from homarus.core.clock import Clock
from homarus.core.event import AttemptFailed, EventData
from homarus.core.message import Message
from homarus.core.tasks import run_contained, task_group
from homarus.store.journal import UNFINISHED_ANSWER, JournalTransaction, Lease, OutboxRecord

T = TypeVar("T")


class BlockDelivery:
    """Enqueues the blocks of one run. `make_records` makes the records, `enqueue` commits them."""

    def __init__(
        self,
        builder: ReplyBuilder,
        stream: BlockStream,
        clock: Clock,
        *,
        make_records: Callable[[Sequence[Block]], Awaitable[list[OutboxRecord]]],
        enqueue: Callable[[Sequence[OutboxRecord]], Awaitable[None]],
    ) -> None:
        self._builder, self._stream, self._clock = builder, stream, clock
        self._make_records, self._enqueue = make_records, enqueue
        self._lock = asyncio.Lock()  # records are made and enqueued in the order of their blocks
        self._changed, self._seen_count = asyncio.Event(), 0
        self._taken: list[Block] = []  # of which no records are made
        self._unwritten: list[OutboxRecord] = []  # made, and perhaps not committed
        self._is_open = False  # blocks of an answer that is not complete are in the outbox
        self._was_marked = False  # the journal may say so
        self._has_restarted = False  # since the blocks of the unfinished answer were sent

    async def run_during(self, work: Coroutine[None, None, T]) -> T:
        """Deliver blocks while `work` runs, and return its result."""
        async with task_group() as group:
            delivering = group.create_task(self._run())
            try:
                return await work
            finally:
                delivering.cancel()

    def on_event(self, data: EventData) -> None:
        """Wake the task when the event has changed what is to be sent; the builder has read it."""
        if isinstance(data, AttemptFailed):
            self._has_restarted = True
            self._changed.set()
        elif self._stream.change_count != self._seen_count:
            self._seen_count = self._stream.change_count
            self._changed.set()

    async def end_messages(self, messages: Sequence[Message]) -> list[OutboxRecord]:
        """Return what is left to send of messages that are about to be saved."""
        async with self._lock:
            blocks = [block for message in messages for block in self._builder.save(message)]
            return await self._finish(messages, blocks)

    async def end_run(
        self, reply: Message
    ) -> tuple[Literal["answered", "silent"], list[OutboxRecord]]:
        """Return the status of the run and what is left to send, by its last message."""
        async with self._lock:
            end = self._builder.finish(reply)
            return end.status, await self._finish([reply], end.blocks)

    def write_mark(self, transaction: JournalTransaction, run: str, lease: Lease) -> None:
        """Record whether blocks of an unfinished answer are in the outbox."""
        if self._is_open:
            self._was_marked = True
            transaction.call_started(run, lease, UNFINISHED_ANSWER)
        elif self._was_marked:
            transaction.call_ended(run, lease, UNFINISHED_ANSWER)

    async def _run(self) -> None:
        while True:
            await self._wait()
            await run_contained("the delivery of blocks", self._deliver, lambda _exc: None)

    async def _wait(self) -> None:
        """Wait until something has changed, or a block has waited long enough for more text."""
        due_s = self._stream.due_s
        if due_s is None:
            await self._changed.wait()
        elif not self._changed.is_set():
            async with asyncio.TaskGroup() as group:
                timer = group.create_task(self._wake_at(due_s))
                await self._changed.wait()
                timer.cancel()
        self._changed.clear()

    async def _wake_at(self, due_s: float) -> None:
        await self._clock.sleep(max(0.0, due_s - self._clock.monotonic()))
        self._changed.set()

    async def _deliver(self) -> None:
        """Enqueue what is ready."""
        async with self._lock:
            self._unwritten += await self._make_records(self._take_notice())
            self._taken += self._builder.take_streamed()
            if made := await self._make_records(self._taken):
                self._is_open = True
            self._taken, self._unwritten = [], [*self._unwritten, *made]
            if self._unwritten:
                await self._enqueue(self._unwritten)
                self._unwritten = []

    async def _finish(
        self, messages: Sequence[Message], blocks: Sequence[Block]
    ) -> list[OutboxRecord]:
        """Return the records of the last blocks of messages, after those not yet committed."""
        self._has_restarted = self._has_restarted or self._stream.has_diverged
        self._stream.has_diverged = False
        notice = self._take_notice() if blocks else []
        made = await self._make_records([*self._taken, *notice, *blocks])
        records, self._unwritten, self._taken = [*self._unwritten, *made], [], []
        for message in messages:
            if message.role == "assistant":
                self._end_answer(message, has_text=any(block.kind == "text" for block in blocks))
        return records

    def _end_answer(self, message: Message, *, has_text: bool) -> None:
        """Note whether an answer is complete; the text after one that is not starts again."""
        is_cut = message.origin is not None and message.origin.stop in {"aborted", "error"}
        self._is_open = is_cut and (self._is_open or has_text)
        self._has_restarted = is_cut

    def _take_notice(self) -> list[Block]:
        """Return the notice that the answer starts again, if the chat has a part of it."""
        is_due, self._has_restarted = self._is_open and self._has_restarted, False
        if not is_due:
            return []
        self._is_open = False
        return [Block(ANSWER_RESTARTED, "notice")]
