"""Exchanges between sessions: each message is an accepted one of its session, each step durable.

A step is: save the record with the text of its message, accept the message, wait until its run is
settled, read the answer from the transcript. A process that was killed anywhere in between repeats
the step, and the journal recognises the message. The last step's answer goes to the chat of the
target: its outbox records are saved in the transaction that removes the exchange.

A session that waits for another's answer has no place in a lane. It does not wait for one that
waits for itself, directly or by others: that answer comes as a message of the next step.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from homarus.agent.commands.context import CommandServices
from homarus.agent.exchange.loader import Spawn
from homarus.agent.exchange.texts import announce_text, is_end, is_unannounced, make_body, turn_text
from homarus.agent.reply.reply_cleaner import clean_message
from homarus.agent.taint import find_session_taint, recent_messages
from homarus.core.errors import HomarusError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.lanes import NESTED_LANE
from homarus.core.message import (
    NO_OUTBOX_CHANNELS,
    Address,
    Inbound,
    InboundMetadata,
    InputProvenance,
    Json,
    Outbound,
    RunOptions,
)
from homarus.core.tasks import run_contained
from homarus.plugins.values import Refusal
from homarus.policy.tool_call import TaintSource
from homarus.sessions.control import ABORTED
from homarus.sessions.last_route import last_chat
from homarus.sessions.run_queue import make_result_future
from homarus.sessions.send_policy import send_policy
from homarus.sessions.transcript import decode_message
from homarus.store.exchanges import KIND, ExchangeRecord, decode_exchange, encode_exchange
from homarus.store.journal import UNSETTLED, InboxRecord, OutboxRecord

log = logging.getLogger(__name__)

CHANNEL: Final = "agent"  # no adapter: the answers go back to the session
TOOL: Final = "sessions_send"
_RETRY_S: Final = 5.0
_POLL_S: Final = 1.0
_CONNECT_TIMEOUT_S: Final = 120.0  # how long the chat's account may need after a start
_RECENT_ENTRIES: Final = 64


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How a step ended; `reply` is what the session answered, `error` why it did not."""

    status: Literal["ok", "error", "aborted"]
    reply: str = ""
    error: str = ""
    untrusted: TaintSource | None = None


class SessionExchanges:
    """The exchanges of a program that have not ended."""

    def __init__(
        self,
        services: CommandServices,
        get_accounts: Callable[[], Sequence[tuple[str, str]]],
        spawn: Spawn,
    ) -> None:
        self.services, self._store = services, services.store
        self._journal, self._control = services.store.journal, services.control
        self._clock, self._get_accounts, self._spawn = services.clock, get_accounts, spawn
        self._running: dict[str, asyncio.Future[StepOutcome]] = {}  # the outcome of the first step
        self._waits: list[tuple[str, str]] = []  # a session that waits, and for which

    async def start(self, record: ExchangeRecord) -> asyncio.Future[StepOutcome]:
        """Start an exchange, once for its id; the future has the outcome of its first step.

        When this returns, the exchange is saved: its message will be accepted.
        """
        if running := self._running.get(record.id):
            return running
        first = self._running[record.id] = make_result_future()
        try:
            if await self._store.record(KIND, record.id) is None:
                if row := await self._journal.inbox_record(record.first_run):
                    del self._running[record.id]  # it has ended
                    first.set_result(await self._read(row))
                    return first
                await self._save(record)
                fault_point("exchange.saved")
        except BaseException:
            self._running.pop(record.id, None)
            raise
        self._start_driver(record.id, first)
        return first

    async def wait(
        self, record: ExchangeRecord, first: "asyncio.Future[StepOutcome]", timeout_s: float
    ) -> StepOutcome | None:
        """Wait for the outcome of the first step; None when it does not come in time."""
        edge = record.source, record.target
        self._waits.append(edge)
        try:
            await asyncio.wait([first], timeout=timeout_s)
        finally:
            self._waits.remove(edge)
        return first.result() if first.done() and not first.cancelled() else None

    def is_waiting_for(self, session: str, other: str) -> bool:
        """Return whether a session waits for another, directly or because of a third."""
        reached, pending = {session}, [session]
        while pending:
            current = pending.pop()
            found = {to for waiting, to in self._waits if waiting == current} - reached
            reached |= found
            pending += found
        return other in reached

    async def recover(self, found: Mapping[str, Mapping[str, Json]]) -> None:
        """Continue the exchanges that an earlier process left."""
        for exchange_id in found:
            if exchange_id not in self._running:
                first = self._running[exchange_id] = make_result_future()
                self._start_driver(exchange_id, first)

    async def find_chat(self, key: str) -> Address | None:
        """Return the chat of a session that an announcement may be sent to."""
        record, config = await self._store.session(key), self.services.get_config()
        chat = last_chat(record.data) if record else Address("", "")
        if record is None or not chat.chat or chat.channel in NO_OUTBOX_CHANNELS:
            return None
        accounts = {channel for channel, _ in self._get_accounts()}
        if chat.channel not in accounts | set(config.channels):
            return None
        rules = config.session.send_policy
        if send_policy(rules, key, record.data, channel=chat.channel) == "deny":
            return None
        return chat

    # The steps

    def _start_driver(self, exchange_id: str, first: "asyncio.Future[StepOutcome]") -> None:
        name = f"exchange {exchange_id}"

        def end(_task: object = None) -> None:
            self._running.pop(exchange_id, None)
            first.cancel()

        work = run_contained(name, lambda: self._drive(exchange_id, first), lambda _exc: None)
        if task := self._spawn(work, name):
            task.add_done_callback(end)
        else:
            end()

    async def _drive(self, exchange_id: str, first: "asyncio.Future[StepOutcome]") -> None:
        """Take step after step until the exchange ends, or the program does."""
        while not self._control.is_closed:
            try:
                await self._take_steps(exchange_id, first)
            except StoreError as exc:
                log.warning("exchange %s could not go on yet: %s", exchange_id, exc)
                await self._clock.sleep(_RETRY_S)
            else:
                return

    async def _take_steps(self, exchange_id: str, first: "asyncio.Future[StepOutcome]") -> None:
        data = await self._store.record(KIND, exchange_id)
        record = decode_exchange(exchange_id, data) if data is not None else None
        if record and record.step_run != record.first_run:
            row = await self._journal.inbox_record(record.first_run)
            _resolve(first, await self._read(row) if row else StepOutcome("error"))
        while record:
            outcome = await self._run_step(record)
            if outcome is None:
                return  # the program ends; the next one takes this step again
            _resolve(first, outcome)
            if record.phase == "announce":
                await self._announce(record, outcome)
                return
            following = await self._make_next(record, outcome)
            if following is None:
                await self._end(record)
                return
            await self._save(following)
            fault_point("exchange.advanced")
            record = following

    async def _run_step(self, record: ExchangeRecord) -> StepOutcome | None:
        """Have the message of a step answered; None when the program ends before."""
        key, run = record.receiver, record.step_run
        if await self._journal.inbox_record(run) is None:
            accepted = (await self._control.accept(key, self._make_inbound(record))).record
            fault_point("exchange.accepted")
            self._control.submit(key, accepted)
        while not self._control.is_closed:
            row = await self._journal.inbox_record(run)
            if row is None:
                return StepOutcome("error", error="its message was removed")
            if row.state not in UNSETTLED:
                return await self._read(row)
            if pending := self._control.find_pending(key, run):
                await asyncio.wait([pending])
            else:
                await self._clock.sleep(_POLL_S)
        return None

    def _make_inbound(self, record: ExchangeRecord) -> Inbound:
        source = InputProvenance("inter_session", record.sender, record.source_channel, TOOL)
        return Inbound(
            record.step_run,
            Address(CHANNEL, record.sender),
            record.sender,
            record.text,
            at_ms=self._clock.now_ms(),
            options=RunOptions(lane=NESTED_LANE, provenance=source),
            run_id=record.step_run,
            metadata=InboundMetadata(is_limited=record.is_limited),
        )

    async def _read(self, row: InboxRecord) -> StepOutcome:
        """Return the outcome of a settled message."""
        if row.state in {"answered", "silent"}:
            reply = await self._read_reply(row)
            return StepOutcome("ok", reply, untrusted=await self._find_taint(row.session))
        if row.why == ABORTED:
            return StepOutcome("aborted", error="its run was stopped")
        return StepOutcome("error", error=row.why or f"its message is {row.state}")

    async def _read_reply(self, row: InboxRecord) -> str:
        entries = await self._store.entries(row.session_id, limit=_RECENT_ENTRIES, newest=True)
        if all(entry.id != row.reply for entry in entries):
            entries = await self._store.entries(row.session_id)
        found = next((decode_message(each) for each in entries if each.id == row.reply), None)
        return clean_message(found).text.strip() if found else ""

    async def _find_taint(self, key: str) -> TaintSource | None:
        try:
            messages = (await self._control.load(key)).messages
            return find_session_taint(key, recent_messages(messages))
        except StoreError:
            raise
        except HomarusError:  # its agent was removed meanwhile
            return TaintSource("session", key)

    async def _make_next(
        self, record: ExchangeRecord, outcome: StepOutcome
    ) -> ExchangeRecord | None:
        """Return the next step; None when the exchange ends with this one."""
        if outcome.status != "ok" or await self._was_stopped(record):
            return None
        is_untrusted = record.is_untrusted or outcome.untrusted is not None
        record = replace(record, is_untrusted=is_untrusted)
        ended = is_end(outcome.reply)
        reply = record.reply if ended else outcome.reply
        if ended or record.step >= record.max_step:
            return await self._make_announcement(replace(record, reply=reply))
        sender, step = record.receiver, record.step + 1
        body = make_body(reply, sender, is_untrusted=is_untrusted)
        return replace(
            record,
            step=step,
            reply=reply,
            text=turn_text(sender, step, record.max_step, body),
            is_limited=record.is_limited or is_untrusted,
        )

    async def _make_announcement(self, record: ExchangeRecord) -> ExchangeRecord | None:
        chat = await self.find_chat(record.target)
        if chat is None or not record.reply:
            return None
        request, reply = (
            make_body(text, record.source, is_untrusted=record.is_untrusted, quoted=True)
            for text in (record.request, record.reply)
        )
        text = announce_text(record.source, chat.channel, request, reply)
        is_limited = record.is_limited or record.is_untrusted
        return replace(record, phase="announce", text=text, is_limited=is_limited)

    async def _was_stopped(self, record: ExchangeRecord) -> bool:
        """Return whether a person stopped the run that started the exchange."""
        row = await self._journal.inbox_record(record.source_run) if record.source_run else None
        return row is not None and row.why == ABORTED

    async def _announce(self, record: ExchangeRecord, outcome: StepOutcome) -> None:
        """Send what the target says about the exchange to its chat, and end the exchange."""
        chat = await self.find_chat(record.target)
        records: Sequence[OutboxRecord] = ()
        if chat and outcome.status == "ok" and not is_unannounced(outcome.reply):
            await self._wait_for_account(chat)
            outbound = await self.services.hooks.message_sending(
                Outbound(chat, outcome.reply, record.step_run)
            )
            if isinstance(outbound, Refusal):
                log.warning("%s is not announced: %s", record.id, outbound.reason)
            else:
                reply = self.services.build_reply
                records = reply(Inbound("", chat, "", ""), record.step_run, outbound.text)
        await self._end(record, records)

    async def _end(self, record: ExchangeRecord, records: Sequence[OutboxRecord] = ()) -> None:
        async with self._store.transaction() as transaction:
            transaction.delete_record(KIND, record.id)
            transaction.enqueue(*records)
        fault_point("exchange.ended")
        if records:
            self.services.on_enqueued()

    async def _wait_for_account(self, chat: Address) -> None:
        deadline_s = self._clock.monotonic() + _CONNECT_TIMEOUT_S
        while (chat.channel, chat.account) not in self._get_accounts():
            if self._clock.monotonic() > deadline_s:
                return
            await self._clock.sleep(_POLL_S)

    async def _save(self, record: ExchangeRecord) -> None:
        async with self._store.transaction() as transaction:
            transaction.put_record(KIND, record.id, encode_exchange(record))


def _resolve(first: "asyncio.Future[StepOutcome]", outcome: StepOutcome) -> None:
    if not first.done():
        first.set_result(outcome)
