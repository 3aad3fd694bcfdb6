"""One mailbox per session: a message starts a run, steers the live one, waits, or takes its place.

What is here is in the journal as well, so that a crash loses nothing; here is decided what
happens to it, by the rules of `queue`:

- one run per session at a time, in the order of arrival;
- the promise `put` returns is done when the run that answers is, and cancelled when none will;
- what steers must come from the chat the live run replies to, and what is merged from the same
  chat with the same wishes: every reply goes where its question came from. Room is counted per
  chat too;
- what arrives after the loop's last look gets a run of its own;
- a person may be given a pause to go on writing in before the first run: what comes in it is one
  question, whatever the mode;
- what had no room (`old`, `new`), and what a newer message overtook (`interrupt`, in the same
  chat), is settled as reported. With `summarize` a line of it goes into the next run's question
  from its chat, and it is settled with that;
- `steer-backlog` is told to the live run and answered by its own, which alone settles it.

A run that raises is a bug: its promises fail, and the next message is taken up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import takewhile
from typing import Generic, TypeAlias, TypeVar

from homarus.core.clock import Clock
from homarus.core.message import Address, Inbound, Wishes
from homarus.core.tasks import contain
from homarus.core.value import dataclass
from homarus.sessions.envelope import indent, speaker
from homarus.sessions.queue import (
    QueueSettings,
    collect_prompt,
    make_room,
    summary_line,
    summary_prompt,
)
from homarus.store.journal import Accepted

log = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")
# The session, the rows a run answers (the first names it), and the text of its question when that
# is not the first row's own. The pictures are those of all rows.
Start: TypeAlias = Callable[[str, Sequence[Accepted], str], Awaitable[Outcome]]

NO_ROOM = "too many messages were waiting (queue cap {cap}, drop {drop})"
OVERTAKEN = "a newer message took its place (queue mode interrupt)"


@dataclass(slots=True)
class _Item(Generic[Outcome]):
    """Rows that are answered together, and what was promised to whoever brought them."""

    rows: tuple[Accepted, ...]
    promise: asyncio.Future[Outcome]
    settings: QueueSettings = field(default_factory=QueueSettings)
    at_s: float = 0.0
    is_told: bool = False  # a backlog's, once the live run knows it
    stays: bool = False  # begun before: it is not for want of room that it goes
    line: str = ""  # of one that had no room
    is_paused: bool = False  # its sender may still be writing

    @property
    def inbound(self) -> Inbound:
        found = self.rows[0].inbound
        assert found is not None  # noqa: S101 - a row that is not settled has its message
        return found

    @property
    def chat(self) -> Address:
        return self.inbound.address

    @property
    def route(self) -> tuple[Address, Wishes]:
        return self.inbound.address, self.inbound.wishes


@dataclass(slots=True)
class _Live(Generic[Outcome]):
    """The run under way, or about to be."""

    items: list[_Item[Outcome]]
    rows: tuple[Accepted, ...]
    text: str
    begun: bool = False
    dropped: bool = False

    @property
    def chat(self) -> Address:
        return self.items[0].chat

    @property
    def is_ahead(self) -> bool:
        return not self.begun and not self.dropped

    def open_promises(self) -> list[asyncio.Future[Outcome]]:
        return [item.promise for item in self.items if not item.promise.done()]


@dataclass(slots=True)
class _Box(Generic[Outcome]):
    """A session that has something to do."""

    live: _Live[Outcome] | None = None
    waiting: list[_Item[Outcome]] = field(default_factory=list)
    overflow: dict[Address, list[_Item[Outcome]]] = field(default_factory=dict)
    wake: asyncio.Future[None] | None = None  # while it waits for quiet

    @property
    def is_paused(self) -> bool:
        return self.live is None and bool(self.waiting) and self.waiting[0].is_paused

    def of_chat(self, chat: Address) -> list[_Item[Outcome]]:
        return [item for item in self.waiting if item.chat == chat]

    def everything(self) -> list[_Item[Outcome]]:
        return [*(item for some in self.overflow.values() for item in some), *self.waiting]

    def stir(self) -> None:
        """Look again whether there is anything to wait for."""
        if self.wake and not self.wake.done():
            self.wake.set_result(None)


class Inbox(Generic[Outcome]):
    """Decides what a new message does to its session.

    `settings` is asked for a message that finds its session busy. `interrupt` stops the live run
    of a session; it must find it as soon as `start` was called. `settle` notes in the journal
    that messages are reported, and why.
    """

    def __init__(
        self,
        start: Start[Outcome],
        group: asyncio.TaskGroup,
        clock: Clock,
        *,
        settings: Callable[[str, Accepted], QueueSettings],
        interrupt: Callable[[str], object],
        settle: Callable[[Sequence[Accepted], str], Awaitable[None]],
    ) -> None:
        self._group: asyncio.TaskGroup = group
        self._start, self._clock = start, clock
        self._settings, self._interrupt, self._settle = settings, interrupt, settle
        self._boxes: dict[str, _Box[Outcome]] = {}
        self._closed = False

    def put(
        self,
        session: str,
        row: Accepted,
        inline: QueueSettings | None = None,
        *,
        pause_ms: int = 0,
    ) -> asyncio.Future[Outcome]:
        """Take a message; the future is done when the run that answers it is.

        `pause_ms`: an idle session waits that long for more of the kind before it begins.
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

    def begin(self, session: str, rows: Sequence[Accepted]) -> asyncio.Future[Outcome]:
        """Have rows answered by one run, whatever the mode: what an earlier one was answering."""
        item = self._item(tuple(rows))
        item.settings, item.stays = QueueSettings(mode="followup", debounce_ms=0), True
        box = self._boxes.get(session)
        if box is None or self._closed:
            self._open(session, item)
        else:
            box.waiting.append(item)
        return item.promise

    def take(self, session: str) -> list[Accepted]:
        """What steers the live run, asked after each tool call and before it ends.

        The run answers for it from now on. A row without an id is a backlog's: words to be told,
        that are answered by a run of their own.
        """
        box = self._boxes.get(session)
        if box is None or box.live is None:
            return []
        live, told = box.live, list[Accepted]()
        for item in box.of_chat(live.chat):
            if item.settings.mode == "steer":
                box.waiting.remove(item)
                live.items.append(item)
                told += item.rows
            elif item.settings.mode == "steer-backlog" and not item.is_told:
                item.is_told = True
                told += [replace(row, id="") for row in item.rows]
        return told

    def drop(self, session: str, run_id: str | None = None) -> tuple[Accepted, ...]:
        """Give up what has not begun, or one message of it. The caller settles what comes back."""
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
        """Start nothing more: what waits stays in the journal, for the next start."""
        self._closed = True
        for box in self._boxes.values():
            self._abandon(box)

    def waiting(self, session: str) -> tuple[Accepted, ...]:
        """What no run has taken up, oldest first."""
        box = self._boxes.get(session)
        return _rows(box.everything()) if box else ()

    def depth(self, session: str | None = None) -> int:
        """How many messages wait, in one session or in all."""
        names = self._boxes if session is None else (session,)
        return sum(len(self.waiting(name)) for name in names)

    def _item(self, rows: tuple[Accepted, ...]) -> _Item[Outcome]:
        return _Item(rows, make_promise(), at_s=self._clock.monotonic())

    # A message that finds its session busy

    def _line_up(self, box: _Box[Outcome], item: _Item[Outcome]) -> None:
        """Wait for a turn, if there is room."""
        rule = item.settings
        others = [one for one in box.of_chat(item.chat) if not one.stays]
        room = make_room(others, rule.cap, rule.drop)
        why = NO_ROOM.format(cap=rule.cap, drop=rule.drop)
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

    def _take_over(self, session: str, box: _Box[Outcome], item: _Item[Outcome]) -> None:
        """Go first, instead of what the same chat asked before."""
        older = [*box.overflow.get(item.chat, ()), *box.of_chat(item.chat)]
        self._forget(box, older)
        box.waiting.insert(0, item)
        if box.live and box.live.is_ahead:
            box.live.dropped = True
            older = [*box.live.items, *older]
        elif box.live and box.live.begun:
            self._interrupt(session)
        self._give_up(older, OVERTAKEN)
        box.stir()

    def _forget(self, box: _Box[Outcome], gone: Iterable[_Item[Outcome]]) -> None:
        marks = {id(item) for item in gone}
        box.waiting[:] = [item for item in box.waiting if id(item) not in marks]
        for chat, items in list(box.overflow.items()):
            items[:] = [item for item in items if id(item) not in marks]
            if not items:
                del box.overflow[chat]

    def _give_up(self, items: Sequence[_Item[Outcome]], why: str) -> None:
        """Settle what no run will answer; then those who wait for it are told."""
        if not items:
            return
        rows = _rows(items)

        async def settle() -> None:
            await contain("settling", lambda: self._settle(rows, why), lambda _exc: None)

        def told() -> None:
            for item in items:
                item.promise.cancel()

        self._spawn(settle, f"settle {rows[0].session}", told)

    # Runs

    def _open(self, session: str, item: _Item[Outcome]) -> None:
        """Begin with a message that finds its session idle."""
        if self._closed:
            item.promise.cancel()  # it stays in the journal, for the next start
            return
        box = _Box(None, [item]) if item.is_paused else _Box(_Live([item], item.rows, ""))
        self._boxes[session] = box
        drain, end = partial(self._drain, session, box), partial(self._end, session, box)
        self._spawn(drain, f"run {session}", end)

    async def _drain(self, session: str, box: _Box[Outcome]) -> None:
        """Run after run, until nothing waits."""
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

    def _end(self, session: str, box: _Box[Outcome]) -> None:
        """Nothing waits; or the program is ending, and what does stays in the journal."""
        if self._boxes.get(session) is box:
            del self._boxes[session]
        self._abandon(box)
        for promise in box.live.open_promises() if box.live else ():
            promise.cancel()

    async def _run(self, session: str, live: _Live[Outcome]) -> None:
        """One run; whatever becomes of it, its promises are kept or cancelled."""

        async def run() -> None:
            outcome = await self._start(session, live.rows, live.text)
            for promise in live.open_promises():
                promise.set_result(outcome)

        def failed(exc: Exception) -> None:
            for promise in live.open_promises():
                promise.set_exception(exc)

        live.begun = True
        try:
            await contain(f"run {session}", run, failed)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("run %s ended by a cancellation nobody asked for", session)
        finally:
            for promise in live.open_promises():
                promise.cancel()

    def _next(self, box: _Box[Outcome]) -> _Live[Outcome] | None:
        """The next question: one message, or several that are collected."""
        if not box.waiting:
            chat = next(iter(box.overflow), None)
            lost = box.overflow.pop(chat) if chat else []
            return _Live(lost, _rows(lost), _summary(lost)) if lost else None
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
        return _Live([*items, *lost], _rows([*items, *lost]), _question(items, lost))

    async def _quiet(self, box: _Box[Outcome]) -> None:
        """Wait until nobody has said anything for a while; not when there is no more room."""
        while (wait_s := self._wait_s(box)) > 0:
            box.wake = asyncio.get_running_loop().create_future()
            timer = self._group.create_task(self._ring(wait_s, box.wake), name="quiet")
            try:
                await box.wake
            finally:
                timer.cancel()
                box.wake = None

    def _wait_s(self, box: _Box[Outcome]) -> float:
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

    def _abandon(self, box: _Box[Outcome]) -> None:
        for item in box.everything():
            item.promise.cancel()
        box.waiting.clear()
        box.overflow.clear()
        box.stir()

    def _spawn(
        self, run: Callable[[], Awaitable[None]], name: str, ended: Callable[[], None]
    ) -> None:
        """Work aside. `ended` is called even when it never began, as the program was ending."""

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


def _rows(items: Iterable[_Item[Outcome]]) -> tuple[Accepted, ...]:
    return tuple(row for item in items for row in item.rows)


def _shrink(item: _Item[Outcome]) -> _Item[Outcome]:
    """What is kept of a message that had no room: a line; its pictures go."""
    inbound = item.inbound
    pictures = len(inbound.images)
    note = f" [{pictures} picture{'' if pictures == 1 else 's'}]" if pictures else ""
    bare = replace(inbound, text="", images=(), media=())
    rows = tuple(replace(row, inbound=bare) for row in item.rows)
    who = "" if inbound.occasion.kind == "direct" else f"{speaker(inbound)}: "
    return replace(item, rows=rows, line=who + summary_line(inbound.text) + note)


def _summary(lost: Sequence[_Item[Outcome]]) -> str:
    """About those that had no room, with the lines of the newest."""
    lines = [item.line for item in lost if item.line]
    return summary_prompt(len(lost), lines[-lost[-1].settings.cap :] if lost else ())


def _said(items: Sequence[_Item[Outcome]]) -> list[str]:
    """What each message says; of several people, each says who, and none for another."""
    messages = [item.inbound for item in items]
    if len({message.sender for message in messages}) == 1:
        return [message.text for message in messages if message.text.strip() or not message.media]
    return [f"{speaker(message)}: {indent(message.text)}" for message in messages]


def _question(items: Sequence[_Item[Outcome]], lost: Sequence[_Item[Outcome]]) -> str:
    """The words of a question; "" when they are the first row's own."""
    if len(items) > 1 and all(item.is_paused for item in items) and not lost:
        return "\n".join(_said(items))
    if len(items) > 1:
        return collect_prompt(_said(items), _summary(lost))
    if lost:
        return f"{_summary(lost)}\n\n{items[0].inbound.text}"
    return ""


def make_promise() -> "asyncio.Future[Outcome]":
    """A future whose failure was logged when it happened: nobody need be waiting for it."""
    promise: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    promise.add_done_callback(lambda done: done.cancelled() or done.exception())
    return promise
