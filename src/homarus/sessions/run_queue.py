"""The run queue of each session: a message starts a run, steers the active one, or waits.

Everything in it is in the journal as well, so that a crash loses nothing. The queue decides what
happens to a message, by the rules of `queue_policy`:

- one run per session at a time, in the order of arrival;
- the future that `submit` returns is done when the run that answers has ended, and cancelled when
  no run will answer;
- a steering message must come from the chat that the active run replies to, and merged messages
  from one chat with the same run options: every reply goes where its question came from. The cap
  counts per chat too;
- a message that arrives after the loop's last check for steering gets a run of its own;
- before the first run, a debounce may wait for more messages of a person: they are merged into
  one question, whatever the mode;
- messages dropped by the cap (`old`, `new`), or superseded by a newer one of the same chat
  (`interrupt`), are settled as reported. With `summarize` a line of each goes into the next
  question of its chat, and it is settled with that;
- `steer-backlog` is given to the active run and answered by its own run, which alone settles it.

A run that raises is a bug: its futures fail, and the next message gets its run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import takewhile
from typing import Generic, TypeAlias, TypeVar

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound, RunOptions
from homarus.core.tasks import run_contained
from homarus.sessions.envelope import indent, sender_label
from homarus.sessions.queue_policy import (
    QueueSettings,
    apply_cap,
    collect_prompt,
    summary_line,
    summary_prompt,
)
from homarus.store.journal import InboxRecord

log = logging.getLogger(__name__)

OutcomeT = TypeVar("OutcomeT")
# The session key, the inbox records a run answers (the first names it), and the text of its
# question when that is not the first record's own. The images are those of all records.
StartRun: TypeAlias = Callable[[str, Sequence[InboxRecord], str], Awaitable[OutcomeT]]

QUEUE_FULL = "too many messages were waiting (queue cap {cap}, drop {drop})"
SUPERSEDED = "a newer message took its place (queue mode interrupt)"


@dataclass(slots=True)
class _QueuedMessages(Generic[OutcomeT]):
    """Messages that are answered together, and the future of their outcome."""

    rows: tuple[InboxRecord, ...]
    promise: asyncio.Future[OutcomeT]
    settings: QueueSettings = field(default_factory=QueueSettings)
    at_s: float = 0.0
    is_told: bool = False  # to the active run, with `steer-backlog`
    stays: bool = False  # started before: the cap does not drop it
    line: str = ""  # the summary of a dropped one
    is_paused: bool = False  # waits for more messages of its sender

    @property
    def inbound(self) -> Inbound:
        found = self.rows[0].inbound
        assert found is not None  # noqa: S101 - a row that is not settled has its message
        return found

    @property
    def chat(self) -> Address:
        return self.inbound.address

    @property
    def route(self) -> tuple[Address, RunOptions]:
        return self.inbound.address, self.inbound.options


@dataclass(slots=True)
class _ActiveRun(Generic[OutcomeT]):
    """The active run, or the one about to start."""

    items: list[_QueuedMessages[OutcomeT]]
    rows: tuple[InboxRecord, ...]
    text: str
    begun: bool = False
    dropped: bool = False

    @property
    def chat(self) -> Address:
        return self.items[0].chat

    @property
    def is_ahead(self) -> bool:
        return not self.begun and not self.dropped

    def open_promises(self) -> list[asyncio.Future[OutcomeT]]:
        return [item.promise for item in self.items if not item.promise.done()]


@dataclass(slots=True)
class _SessionQueue(Generic[OutcomeT]):
    """A session with an active run or queued messages."""

    live: _ActiveRun[OutcomeT] | None = None
    waiting: list[_QueuedMessages[OutcomeT]] = field(default_factory=list)
    overflow: dict[Address, list[_QueuedMessages[OutcomeT]]] = field(default_factory=dict)
    wake: asyncio.Future[None] | None = None  # while it debounces

    @property
    def is_paused(self) -> bool:
        return self.live is None and bool(self.waiting) and self.waiting[0].is_paused

    def of_chat(self, chat: Address) -> list[_QueuedMessages[OutcomeT]]:
        return [item for item in self.waiting if item.chat == chat]

    def everything(self) -> list[_QueuedMessages[OutcomeT]]:
        return [*(item for some in self.overflow.values() for item in some), *self.waiting]

    def stir(self) -> None:
        """Check again whether there is anything to wait for."""
        if self.wake and not self.wake.done():
            self.wake.set_result(None)


class RunQueue(Generic[OutcomeT]):
    """Decides what a new message does to its session.

    `settings` returns the queue settings of a message whose session is busy. `interrupt` stops the
    active run of a session, which must be possible as soon as `start` was called. `settle` records
    in the journal that messages are reported, and the reason.
    """

    def __init__(
        self,
        start: StartRun[OutcomeT],
        group: asyncio.TaskGroup,
        clock: Clock,
        *,
        settings: Callable[[str, InboxRecord], QueueSettings],
        interrupt: Callable[[str], object],
        settle: Callable[[Sequence[InboxRecord], str], Awaitable[None]],
    ) -> None:
        self._group: asyncio.TaskGroup = group
        self._start, self._clock = start, clock
        self._settings, self._interrupt, self._settle = settings, interrupt, settle
        self._boxes: dict[str, _SessionQueue[OutcomeT]] = {}
        self._closed = False

    def submit(
        self,
        session: str,
        row: InboxRecord,
        inline: QueueSettings | None = None,
        *,
        pause_ms: int = 0,
    ) -> asyncio.Future[OutcomeT]:
        """Queue a message; the future is done when the run that answers it has ended.

        An idle session waits `pause_ms` for more messages before its run starts.
        """
        item = self._item((row,))
        box = self._boxes.get(session)
        if pause_ms and (box is None or box.is_paused):
            item.is_paused = True
            item.settings = QueueSettings(mode="collect", debounce_ms=pause_ms)
        if box is None or self._closed:
            self._open(session, item)
            return item.promise
        if item.is_paused:
            box.waiting.append(item)
            return item.promise
        item.settings = inline or self._settings(session, row)
        if item.settings.mode == "interrupt":
            self._take_over(session, box, item)
        else:
            self._line_up(box, item)
        return item.promise

    def start_run(self, session: str, rows: Sequence[InboxRecord]) -> asyncio.Future[OutcomeT]:
        """Resume the messages of an earlier run as one run, whatever the mode."""
        item = self._item(tuple(rows))
        item.settings, item.stays = QueueSettings(mode="followup", debounce_ms=0), True
        box = self._boxes.get(session)
        if box is None or self._closed:
            self._open(session, item)
        else:
            box.waiting.append(item)
        return item.promise

    def take_steering(self, session: str) -> list[InboxRecord]:
        """Return the messages that steer the active run; it calls this after each tool call.

        The run settles them from now on. A record without an id is of `steer-backlog`: its text is
        given to the run, and a run of its own answers it.
        """
        box = self._boxes.get(session)
        if box is None or box.live is None:
            return []
        live, told = box.live, list[InboxRecord]()
        for item in box.of_chat(live.chat):
            if item.settings.mode == "steer":
                box.waiting.remove(item)
                live.items.append(item)
                told += item.rows
            elif item.settings.mode == "steer-backlog" and not item.is_told:
                item.is_told = True
                told += [replace(row, id="") for row in item.rows]
        return told

    def cancel_pending(self, session: str, run_id: str | None = None) -> tuple[InboxRecord, ...]:
        """Cancel queued messages, or one; the caller settles what is returned."""
        box = self._boxes.get(session)
        if box is None:
            return ()
        gone = [item for item in box.everything() if run_id in (None, item.rows[0].id)]
        self._forget(box, gone)
        if box.live and box.live.is_ahead and run_id in (None, box.live.rows[0].id):
            box.live.dropped = True
            gone = [*box.live.items, *gone]
        for item in gone:
            item.promise.cancel()
        box.stir()
        return _rows(gone)

    def close(self) -> None:
        """Start nothing more: queued messages stay in the journal, for the next start."""
        self._closed = True
        for box in self._boxes.values():
            self._abandon(box)

    def pending(self, session: str) -> tuple[InboxRecord, ...]:
        """Return the messages without a run, oldest first."""
        box = self._boxes.get(session)
        return _rows(box.everything()) if box else ()

    def depth(self, session: str | None = None) -> int:
        """Return how many messages wait, in one session or in all."""
        names = self._boxes if session is None else (session,)
        return sum(len(self.pending(name)) for name in names)

    def _item(self, rows: tuple[InboxRecord, ...]) -> _QueuedMessages[OutcomeT]:
        return _QueuedMessages(rows, make_result_future(), at_s=self._clock.monotonic())

    # A message for a session with an active run

    def _line_up(self, box: _SessionQueue[OutcomeT], item: _QueuedMessages[OutcomeT]) -> None:
        """Queue a message, if the cap allows it."""
        rule = item.settings
        others = [one for one in box.of_chat(item.chat) if not one.stays]
        room = apply_cap(others, rule.cap, rule.drop)
        why = QUEUE_FULL.format(cap=rule.cap, drop=rule.drop)
        if not room.takes:
            self._give_up([item], why)
            return
        self._forget(box, room.gone)
        if rule.drop == "summarize":
            kept = box.overflow.setdefault(item.chat, []) if room.gone else []
            kept.extend(_shrink(gone) for gone in room.gone)
        else:
            self._give_up(room.gone, why)
        box.waiting.append(item)

    def _take_over(
        self, session: str, box: _SessionQueue[OutcomeT], item: _QueuedMessages[OutcomeT]
    ) -> None:
        """Put a message first, in place of earlier ones of the same chat."""
        older = [*box.overflow.get(item.chat, ()), *box.of_chat(item.chat)]
        self._forget(box, older)
        box.waiting.insert(0, item)
        if box.live and box.live.is_ahead:
            box.live.dropped = True
            older = [*box.live.items, *older]
        elif box.live and box.live.begun:
            self._interrupt(session)
        self._give_up(older, SUPERSEDED)
        box.stir()

    def _forget(
        self, box: _SessionQueue[OutcomeT], gone: Iterable[_QueuedMessages[OutcomeT]]
    ) -> None:
        marks = {id(item) for item in gone}
        box.waiting[:] = [item for item in box.waiting if id(item) not in marks]
        for chat, items in list(box.overflow.items()):
            items[:] = [item for item in items if id(item) not in marks]
            if not items:
                del box.overflow[chat]

    def _give_up(self, items: Sequence[_QueuedMessages[OutcomeT]], why: str) -> None:
        """Settle messages that no run will answer, then cancel their futures."""
        if not items:
            return
        rows = _rows(items)

        async def settle() -> None:
            await run_contained("settling", lambda: self._settle(rows, why), lambda _exc: None)

        def told() -> None:
            for item in items:
                item.promise.cancel()

        self._spawn(settle, f"settle {rows[0].session}", told)

    # Runs

    def _open(self, session: str, item: _QueuedMessages[OutcomeT]) -> None:
        """Start with a message whose session is idle."""
        if self._closed:
            item.promise.cancel()  # it stays in the journal, for the next start
            return
        box = (
            _SessionQueue(None, [item])
            if item.is_paused
            else _SessionQueue(_ActiveRun([item], item.rows, ""))
        )
        self._boxes[session] = box
        drain, end = partial(self._drain, session, box), partial(self._end, session, box)
        self._spawn(drain, f"run {session}", end)

    async def _drain(self, session: str, box: _SessionQueue[OutcomeT]) -> None:
        """Start run after run, until the queue is empty."""
        try:
            if box.live is None:
                await self._quiet(box)
                box.live = self._next(box)
            while box.live:
                if not box.live.dropped:
                    await self._run(session, box.live)
                box.live = None
                if box.waiting or box.overflow:
                    await self._quiet(box)
                    box.live = self._next(box)
        finally:
            self._end(session, box)

    def _end(self, session: str, box: _SessionQueue[OutcomeT]) -> None:
        """Remove an empty queue; or, when the program ends, leave its messages in the journal."""
        if self._boxes.get(session) is box:
            del self._boxes[session]
        self._abandon(box)
        for promise in box.live.open_promises() if box.live else ():
            promise.cancel()

    async def _run(self, session: str, live: _ActiveRun[OutcomeT]) -> None:
        """Start one run and wait; its futures are done or cancelled in any case."""

        async def run() -> None:
            outcome = await self._start(session, live.rows, live.text)
            for promise in live.open_promises():
                promise.set_result(outcome)

        def failed(exc: Exception) -> None:
            for promise in live.open_promises():
                promise.set_exception(exc)

        live.begun = True
        try:
            await run_contained(f"run {session}", run, failed)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("run %s ended by a cancellation nobody asked for", session)
        finally:
            for promise in live.open_promises():
                promise.cancel()

    def _next(self, box: _SessionQueue[OutcomeT]) -> _ActiveRun[OutcomeT] | None:
        """Return the next run: one message, or several that are merged."""
        if not box.waiting:
            chat = next(iter(box.overflow), None)
            lost = box.overflow.pop(chat) if chat else []
            return _ActiveRun(lost, _rows(lost), _summary(lost)) if lost else None
        first = box.waiting[0]
        items = [first]
        if first.settings.mode == "collect":
            items = list(
                takewhile(
                    lambda one: one.settings.mode == "collect" and one.route == first.route,
                    box.waiting,
                )
            )
        del box.waiting[: len(items)]
        lost = box.overflow.pop(first.chat, [])
        return _ActiveRun([*items, *lost], _rows([*items, *lost]), _question(items, lost))

    async def _quiet(self, box: _SessionQueue[OutcomeT]) -> None:
        """Wait until no message has come for the debounce time, or the cap is reached."""
        while (wait_s := self._wait_s(box)) > 0:
            box.wake = asyncio.get_running_loop().create_future()
            timer = self._group.create_task(self._ring(wait_s, box.wake), name="quiet")
            try:
                await box.wake
            finally:
                timer.cancel()
                box.wake = None

    def _wait_s(self, box: _SessionQueue[OutcomeT]) -> float:
        if not box.waiting or box.waiting[0].settings.mode == "interrupt":
            return 0.0
        first = box.waiting[0]
        if len(same := box.of_chat(first.chat)) >= first.settings.cap:
            return 0.0
        newest = same[-1]
        return newest.at_s + newest.settings.debounce_ms / 1000 - self._clock.monotonic()

    async def _ring(self, wait_s: float, wake: asyncio.Future[None]) -> None:
        await self._clock.sleep(wait_s)
        if not wake.done():
            wake.set_result(None)

    def _abandon(self, box: _SessionQueue[OutcomeT]) -> None:
        for item in box.everything():
            item.promise.cancel()
        box.waiting.clear()
        box.overflow.clear()
        box.stir()

    def _spawn(
        self, run: Callable[[], Awaitable[None]], name: str, ended: Callable[[], None]
    ) -> None:
        """Start a task; `ended` is called even when the program is ending and it cannot start."""

        async def work() -> None:
            await run()

        coroutine = work()
        try:
            task = self._group.create_task(coroutine, name=name)
        except RuntimeError:
            coroutine.close()
            ended()
        else:
            task.add_done_callback(lambda _task: ended())


def _rows(items: Iterable[_QueuedMessages[OutcomeT]]) -> tuple[InboxRecord, ...]:
    return tuple(row for item in items for row in item.rows)


def _shrink(item: _QueuedMessages[OutcomeT]) -> _QueuedMessages[OutcomeT]:
    """Replace a dropped message by its summary line; its images go."""
    inbound = item.inbound
    pictures = len(inbound.images)
    note = f" [{pictures} picture{'' if pictures == 1 else 's'}]" if pictures else ""
    bare = replace(inbound, text="", images=(), media=())
    rows = tuple(replace(row, inbound=bare) for row in item.rows)
    who = "" if inbound.metadata.kind == "direct" else f"{sender_label(inbound)}: "
    return replace(item, rows=rows, line=who + summary_line(inbound.text) + note)


def _summary(lost: Sequence[_QueuedMessages[OutcomeT]]) -> str:
    """Return the text about dropped messages, with the lines of the newest."""
    lines = [item.line for item in lost if item.line]
    return summary_prompt(len(lost), lines[-lost[-1].settings.cap :] if lost else ())


def _said(items: Sequence[_QueuedMessages[OutcomeT]]) -> list[str]:
    """Return the text of each message, with the sender's name when there are several."""
    messages = [item.inbound for item in items]
    if len({message.sender for message in messages}) == 1:
        return [message.text for message in messages if message.text.strip() or not message.media]
    return [f"{sender_label(message)}: {indent(message.text)}" for message in messages]


def _question(
    items: Sequence[_QueuedMessages[OutcomeT]], lost: Sequence[_QueuedMessages[OutcomeT]]
) -> str:
    """Return the text of a merged question; "" when it is the first record's own."""
    if len(items) > 1 and all(item.is_paused for item in items) and not lost:
        return "\n".join(_said(items))
    if len(items) > 1:
        return collect_prompt(_said(items), _summary(lost))
    if lost:
        return f"{_summary(lost)}\n\n{items[0].inbound.text}"
    return ""


def make_result_future() -> "asyncio.Future[OutcomeT]":
    """Return a future whose exception counts as retrieved: it was logged when it happened."""
    promise: asyncio.Future[OutcomeT] = asyncio.get_running_loop().create_future()
    promise.add_done_callback(lambda done: done.cancelled() or done.exception())
    return promise
