"""Isolated turns of cron jobs and webhooks: start, end, recover.

A turn is an accepted message of the journal. One transaction accepts it, stores the record of the
turn, and writes what the caller adds. The transaction that settles the message deletes the record,
and writes what belongs to the end: the notice for the main session, and what the source of the
turn adds. So a crash leaves all of it or nothing, and the journal resumes what was accepted.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeAlias

from homarus.core.clock import Clock
from homarus.core.errors import (
    HomarusError,
    OverloadedError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    UnreachableError,
    UserError,
)
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.faults import fault_point
from homarus.core.message import Address, Inbound, InputProvenance, Message, RunOptions, Usage
from homarus.core.tasks import run_contained
from homarus.core.text import one_line
from homarus.core.untrusted import wrap_untrusted
from homarus.schedule.heartbeat_request import HeartbeatRequest, RequestHeartbeat, ignore_request
from homarus.schedule.turn import Delivery, TurnRequest, TurnSource
from homarus.schedule.turn_records import TURN_KIND, TurnEnd, decode_turn, encode_turn
from homarus.sessions.notices import MAX_NOTICE_CHARS, Notices, PlannedNotice
from homarus.sessions.run_end import RunEnd, WriteEnd, write_nothing
from homarus.store.base import Store, Transaction
from homarus.store.journal import UNSETTLED, InboxRecord
from homarus.store.slots import SlotState

CRON_LANE: Final = "cron"
NOWHERE: Final = ("agent", "", "default", "")  # the answer of a turn that no chat gets
MAX_SUMMARY_CHARS: Final = 2_000
_MAX_ERROR_CHARS: Final = 500
_MAX_WRAPPED_CHARS: Final = MAX_NOTICE_CHARS - 500  # the markers and the source need some
_ABORTED: Final = "aborted"
_TRANSIENT: Final = (
    RateLimitError, OverloadedError, ProviderTimeoutError, UnreachableError, StreamError,
)  # fmt: skip
_LABELS: Final[Mapping[TurnSource, str]] = {"cron": "Cron", "hook": "Hook"}
_CHANNELS: Final[Mapping[TurnSource, str]] = {"cron": "agent", "hook": "hook"}

OnTurnEnd: TypeAlias = Callable[[TurnEnd], AbstractAsyncContextManager[WriteEnd]]


@dataclass(frozen=True, slots=True)
class TurnServices:
    """What turns use of the rest of the program.

    `resolve_target` returns the chat (channel, chat, account, thread) that an answer is announced
    to, and raises UserError when there is none. `clean_reply` returns what people read of an
    answer, "" for one that says nothing. `submit` has an accepted message answered. `get_main_key`
    returns the key of an agent's main session.
    """

    store: Store
    clock: Clock
    notices: Notices
    submit: Callable[[str, InboxRecord], object]
    spawn: Callable[[Coroutine[Any, Any, None], str], object]
    resolve_target: Callable[[Delivery, str], Awaitable[tuple[str, str, str, str]]]
    get_main_key: Callable[[str], str]
    clean_reply: Callable[[Message], str]
    check_model: Callable[[str], str] = lambda name: name
    request_heartbeat: RequestHeartbeat = ignore_request


class TurnService:
    """Starts turns, and writes what belongs to their end in the transaction that settles them.

    `open_turns` are the ids of the turns that have not ended; the loader shares them.
    """

    def __init__(self, services: TurnServices, open_turns: set[str] | None = None) -> None:
        self._services, self._store, self._clock = services, services.store, services.clock
        self._open = open_turns if open_turns is not None else set()
        self._on_end: dict[TurnSource, OnTurnEnd] = {}

    def on_end(self, source: TurnSource, handler: OnTurnEnd) -> None:
        """Set what a source adds to the transactions that end its turns."""
        self._on_end[source] = handler

    async def start(
        self,
        request: TurnRequest,
        extra_writes: Callable[[Transaction], None] = lambda _transaction: None,
    ) -> str:
        """Accept a turn and return its run id; the same id again starts nothing.

        One transaction accepts the message, stores the turn's record and calls `extra_writes`.
        Raises UserError when the answer has no valid target, unless the delivery is best effort,
        and for a model that cannot be used.
        """
        if await self._store.journal.inbox_record(request.id):
            return request.id
        target = await self._target(request)
        model = self._services.check_model(request.model) if request.model else None
        inbound = _make_inbound(request, target, model)
        self._open.add(request.id)
        try:
            async with self._store.transaction() as transaction:
                transaction.accept(request.session_key, inbound, at_ms=request.at_ms)
                record = replace(request, delivery=_effective(request.delivery, target))
                transaction.put_record(TURN_KIND, request.id, encode_turn(record))
                extra_writes(transaction)
        except HomarusError:
            self._open.discard(request.id)
            raise
        fault_point("turn.accepted")
        self._start_task(partial(self._submit, request.session_key, request.id), request.id)
        return request.id

    async def _target(self, request: TurnRequest) -> tuple[str, str, str, str]:
        delivery = request.delivery
        if delivery.mode != "announce":
            return NOWHERE
        try:
            return await self._services.resolve_target(delivery, request.agent)
        except UserError:
            if not delivery.best_effort:
                raise
        return NOWHERE

    async def _submit(self, key: str, turn_id: str) -> None:
        """Have an accepted message answered, unless that was done before."""
        row = await self._store.journal.inbox_record(turn_id)
        if row is not None and row.state == "accepted":
            self._services.submit(key, row)

    @asynccontextmanager
    async def settling(self, end: RunEnd) -> AsyncIterator[WriteEnd]:
        """Add the end of a turn to the transaction that settles its message."""
        turn_id = next((one for one in end.ids if one in self._open), "")
        data = await self._store.record(TURN_KIND, turn_id) if turn_id else None
        if data is None:
            yield write_nothing
            return
        async with self._ending(await self._describe_end(decode_turn(data), end)) as write:
            yield write

    @asynccontextmanager
    async def _ending(self, end: TurnEnd) -> AsyncIterator[WriteEnd]:
        request, notice = end.request, self._plan_notice(end)
        add = self._on_end.get(request.source)
        async with add(end) if add else nullcontext(write_nothing) as write_more:

            def write(transaction: Transaction) -> None:
                transaction.delete_record(TURN_KIND, request.id)
                if notice:
                    notice.write(transaction)
                write_more(transaction)

            yield write
        fault_point("turn.ended")
        self._open.discard(request.id)
        if notice:
            notice.publish()
            self._wake(end, notice)

    def _plan_notice(self, end: TurnEnd) -> PlannedNotice | None:
        """Return the line for the main session about an announced turn that has something to say.

        A heartbeat takes it up only if no chat has the answer: a delivered one is not repeated.
        """
        request, text = end.request, end.summary or end.error
        if not request.summarizes or not text or end.status == "skipped":
            return None
        label = f"{_LABELS[request.source]} {one_line(request.name, 80)}"
        if request.taint:
            # The answer, and perhaps the name, repeat what others wrote.
            label = _LABELS[request.source]
            text = wrap_untrusted(one_line(text, _MAX_WRAPPED_CHARS), *request.taint[0])
        if end.status == "error":
            label += " (error)"
        source = f"{request.source}-summary:{request.id}" if end.is_delivered else request.source
        return self._services.notices.plan(
            self._services.get_main_key(request.agent),
            f"{label}: {text}",
            end.ended_ms,
            source=source,
            wake_mode="next-heartbeat" if end.is_delivered else request.wake_mode,
        )

    def _wake(self, end: TurnEnd, notice: PlannedNotice) -> None:
        request = end.request
        if request.wake_mode == "now" and not end.is_delivered:
            self._services.request_heartbeat(
                HeartbeatRequest(
                    f"{request.source}:{request.id}", request.agent, notice.session_key
                )
            )

    async def _describe_end(self, request: TurnRequest, end: RunEnd) -> TurnEnd:
        status, error, text = self._outcome(end)
        session = await self._store.session(request.session_key)
        calls = await self._store.usage_records(session=request.session_key)
        own = [*(call for call in calls if call.run == request.id), *end.usage]
        origin = end.reply.origin if end.reply else None
        last = own[-1] if own else None
        return TurnEnd(
            request,
            status,
            self._clock.now_ms(),
            summary=text[:MAX_SUMMARY_CHARS],
            error=one_line(error, _MAX_ERROR_CHARS),
            session_id=session.session_id if session else "",
            model=origin.model if origin else last.model if last else "",
            provider=origin.provider if origin else last.provider if last else "",
            usage=sum((call.usage for call in own), Usage()) if own else None,
            is_delivered=bool(text) and request.delivery.mode == "announce",
            is_retryable=isinstance(end.error, _TRANSIENT),
        )

    def _outcome(self, end: RunEnd) -> tuple[SlotState, str, str]:
        """Return status, error and answer: only a complete answer counts as one."""
        if end.reply is not None:
            origin = end.reply.origin
            if origin is None or origin.stop == "stop":
                return "ok", "", self._services.clean_reply(end.reply)
            if origin.stop == "length":
                return "error", "the answer was cut off at the length limit of the model", ""
            return "error", origin.error or f"the answer broke off ({origin.stop})", ""
        if end.error is not None:
            return "error", str(end.error), ""
        if end.reason == _ABORTED:
            return "skipped", "a person stopped the run", ""
        return "error", end.reason or "the run was interrupted", ""

    async def recover(self) -> None:
        """End the turns that no run will settle: their message was parked, or is gone."""
        for turn_id, data in (await self._store.records(TURN_KIND)).items():
            self._open.add(turn_id)
            row = await self._store.journal.inbox_record(turn_id)
            if row is not None and row.state in UNSETTLED:
                continue
            reason = (row.why if row else "") or "its message is not in the journal"
            request = decode_turn(data)
            lost = RunEnd(request.session_key, (turn_id,), reason=reason)
            async with (
                self._ending(await self._describe_end(request, lost)) as write,
                self._store.transaction() as transaction,
            ):
                write(transaction)

    def _start_task(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        task = f"turn {name}"
        self._services.spawn(run_contained(task, work, lambda _exc: None), task)


def _effective(delivery: Delivery, target: tuple[str, str, str, str]) -> Delivery:
    """Return what the end of the turn needs to know: whether a chat gets the answer."""
    if delivery.mode == "announce" and target == NOWHERE:
        return replace(delivery, mode="none")
    return delivery


def _make_inbound(
    request: TurnRequest, target: tuple[str, str, str, str], model: str | None
) -> Inbound:
    return Inbound(
        f"{request.source}:{request.id}",
        Address(_CHANNELS[request.source], ""),
        request.name,
        request.text,
        at_ms=request.at_ms,
        run_id=request.id,
        options=RunOptions(
            model=model,
            thinking=request.thinking or None,
            timeout_s=request.timeout_s or None,
            deliver_to=target,
            taint=request.taint,
            provenance=InputProvenance(
                "internal_system", request.session_key, _CHANNELS[request.source], request.source
            ),
            lane=CRON_LANE,
        ),
    )
