"""Run the slots of jobs: claim them, start their turns, and write their ends.

A slot is claimed in the transaction that accepts its turn, or that stores its notice; it ends in
the transaction that settles the turn. The caller holds the lock of the jobs.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID, uuid5

from homarus.core.clock import Clock
from homarus.core.errors import HomarusError, UserError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.core.session_keys import cron_key, is_hook
from homarus.core.untrusted import wrap_untrusted
from homarus.schedule.current_time import current_time_line
from homarus.schedule.heartbeat_request import HeartbeatRequest, RequestHeartbeat, ignore_request
from homarus.schedule.job import AgentTurnPayload, CronJob, Misfire, SystemEventPayload
from homarus.schedule.job_end import JobEnd, end_job, with_next_run
from homarus.schedule.job_records import StoredJob, delete_job, put_job
from homarus.schedule.job_slots import JobSlots, slots_of
from homarus.schedule.run_log import encode_event
from homarus.schedule.slot_plan import SkippedSlots, SlotPlan, plan_slots
from homarus.schedule.turn import Delivery, TurnRequest
from homarus.schedule.turn_records import TurnEnd
from homarus.schedule.turn_service import TurnService
from homarus.schedule.webhook_sender import WebhookSender
from homarus.sessions.notices import Notices, PlannedNotice
from homarus.sessions.run_end import WriteEnd, write_nothing
from homarus.store.base import Store, Transaction
from homarus.store.slots import SlotRecord, SlotState, SlotTrigger

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S: Final = 600.0
STUCK_MS: Final = 2 * 3_600_000
_NAMESPACE: Final = UUID("0c1f7a5e-8f6c-4a55-9d2b-2d6e54f7b9a1")
_ANNOUNCE: Final = Delivery("announce")


@dataclass(frozen=True, slots=True)
class RunnerServices:
    """What the runner uses of the rest of the program.

    `resolve_agent` returns the id of the agent that a job names, "" for the default one, and raises
    UserError for one that does not exist. `resolve_key` returns the session of an agent that a job
    names, "" for the main one. `stop_run` stops the runs of a session. `zone` and `uses_12_hours`
    say how times are shown to the model. `on_event` gets the payload of each event `cron`.
    """

    store: Store
    clock: Clock
    notices: Notices
    turns: TurnService
    webhooks: WebhookSender
    resolve_agent: Callable[[str], str]
    resolve_key: Callable[[str, str], str]
    stop_run: Callable[[str], Awaitable[object]]
    get_misfire: Callable[[], Misfire]
    get_webhook: Callable[[], str] = str
    get_zone: Callable[[], tuple[str, bool]] = lambda: ("", False)
    request_heartbeat: RequestHeartbeat = ignore_request
    on_event: Callable[[Mapping[str, Json]], None] = lambda _event: None
    on_ended: Callable[[Sequence[SlotRecord]], None] = lambda _slots: None


class CronRunner:
    """Starts and ends slots; `jobs` are the jobs by their id, which it keeps as they are stored."""

    def __init__(self, services: RunnerServices, jobs: dict[str, StoredJob]) -> None:
        self._services, self._jobs = services, jobs
        self._store, self._clock = services.store, services.clock

    def misfire_of(self, job: CronJob) -> Misfire:
        """Return what happens with missed slots of a job."""
        return job.misfire or self._services.get_misfire()

    async def run_due(self, stored: StoredJob) -> str | None:
        """Start the slot of a job that is due, and record those that are skipped.

        Returns the run id of a slot that was started, "" for one without a turn, None for none.
        Raises UserError for a schedule that is not valid.
        """
        now_ms, timing = self._clock.now_ms(), stored.timing
        if timing.retry_ms and timing.retry_ms <= now_ms:
            fault_point("cron.due")
            retry_ms = timing.retry_ms
            return await self._start(stored, SlotPlan(now_ms, retry_ms), "retry", timing.attempt)
        if timing.retry_ms:
            return None
        slots = slots_of(stored.job)
        plan = plan_slots(slots, timing, now_ms, self.misfire_of(stored.job))
        plan = await self._without_rows(slots, plan)
        if plan.run_ms is None:
            await self._record_skipped(stored, plan)
            return None
        fault_point("cron.due")
        return await self._start(stored, plan, plan.trigger, 1)

    async def _without_rows(self, slots: JobSlots, plan: SlotPlan) -> SlotPlan:
        """Return the plan without slots that have a row: the clock was set back over them."""
        found = [await self._first_without_row(slots, one) for one in plan.skipped]
        plan = replace(plan, skipped=tuple(one for one in found if one))
        if plan.run_ms is not None and await self._store.slot(slots.job_id, plan.run_ms):
            return replace(plan, run_ms=None)
        return plan

    async def _first_without_row(
        self, slots: JobSlots, skipped: SkippedSlots
    ) -> SkippedSlots | None:
        """Return skipped slots from the first one on that has no row; None if all have one."""
        while row := await self._store.slot(slots.job_id, skipped.slot_ms):
            next_ms = slots.first(max(row.slot_ms, row.until_ms))
            if next_ms is None or next_ms > skipped.until_ms:
                return None
            skipped = replace(skipped, slot_ms=next_ms, count=max(1, skipped.count - row.count))
        return skipped

    async def _record_skipped(self, stored: StoredJob, plan: SlotPlan) -> None:
        """Write the rows of skipped slots; a one-time job whose slot was missed is over."""
        if not plan.skipped and plan.cursor_ms <= stored.timing.cursor_ms:
            return
        now_ms, job = self._clock.now_ms(), stored.job
        moved = replace(stored, timing=replace(stored.timing, cursor_ms=plan.cursor_ms))
        if plan.skipped:
            reason = plan.skipped[-1].row_reason
            moved = moved.with_state(last_status="skipped", last_error=reason)
            if job.kind == "at":
                moved = replace(moved, job=replace(moved.job, enabled=False))
        end = with_next_run(moved, now_ms, self.misfire_of(job))
        rows = _skipped_rows(stored.id, plan.skipped, now_ms, end.next_run_ms)
        if rows or end.stored != stored:
            await self._save(end, lambda transaction: _claim(transaction, rows), stored)
        self._report_ended(rows)

    async def run_now(self, stored: StoredJob) -> str:
        """Start a job by hand, at a slot of its own; return the run id, "" without a turn."""
        slot_ms = self._clock.now_ms()
        while await self._store.slot(stored.id, slot_ms):
            slot_ms += 1
        return await self._start(stored, SlotPlan(stored.timing.cursor_ms, slot_ms), "manual", 1)

    # Start

    async def _start(
        self, stored: StoredJob, plan: SlotPlan, trigger: SlotTrigger, attempt: int
    ) -> str:
        """Claim a slot and start its work, in one transaction. Raises ConflictError."""
        assert plan.run_ms is not None  # noqa: S101 - the caller has a slot
        now_ms, job = self._clock.now_ms(), stored.job
        cursor_ms = max(plan.cursor_ms, stored.timing.cursor_ms if trigger == "manual" else 0)
        started = replace(
            stored,
            timing=replace(
                stored.timing, cursor_ms=cursor_ms, started_ms=now_ms, retry_ms=0, attempt=attempt
            ),
        ).with_state(running_at_ms=now_ms)
        slot = SlotRecord(job.id, plan.run_ms, trigger, attempt=attempt, started_ms=now_ms)
        skipped = _skipped_rows(job.id, plan.skipped, now_ms, plan.run_ms)
        problem, run_id = await self._find_webhook_problem(job), ""
        is_reachable = not problem
        try:
            if is_reachable:
                agent = self._services.resolve_agent(job.agent)
                run_id = await self._start_payload(started, slot, agent, skipped)
        except UserError as exc:
            problem = str(exc)
        if problem:
            failed = replace(slot, state="error", reason=problem, ended_ms=now_ms)
            await self._end_at_once(started, failed, skipped, is_posted=is_reachable)
        fault_point("cron.claimed")
        self._report_ended(skipped)
        return run_id

    async def _find_webhook_problem(self, job: CronJob) -> str:
        """Return why the webhook of a turn cannot be used; "" if it can, or need not be."""
        delivery = job.delivery
        is_turn = isinstance(job.payload, AgentTurnPayload)
        if is_turn and delivery and delivery.mode == "webhook" and not delivery.best_effort:
            try:
                await self._services.webhooks.resolve_url(delivery.to)
            except UserError as exc:
                return str(exc)
        return ""

    async def _start_payload(
        self, started: StoredJob, slot: SlotRecord, agent: str, skipped: Sequence[SlotRecord]
    ) -> str:
        """Leave the notice of a job, or start its turn; return the run id, "" without a turn."""
        payload = started.job.payload
        if isinstance(payload, SystemEventPayload):
            await self._leave_notice(started, slot, agent, payload, skipped)
            return ""
        return await self._start_turn(started, slot, agent, payload, skipped)

    async def _leave_notice(
        self,
        started: StoredJob,
        slot: SlotRecord,
        agent: str,
        payload: SystemEventPayload,
        skipped: Sequence[SlotRecord],
    ) -> None:
        """Leave the text of a system event for its session, and end the slot with it."""
        job = started.job
        key = self._services.resolve_key(job.session_key, agent)
        notice = self._services.notices.plan(
            key, payload.text, slot.started_ms, source=f"cron:{job.id}", wake_mode=job.wake_mode
        )
        ended = replace(
            slot, state="ok", ended_ms=slot.started_ms, session_key=key, summary=payload.text
        )
        await self._end_at_once(started, ended, skipped, notice)
        notice.publish()
        if job.wake_mode == "now":
            self._services.request_heartbeat(HeartbeatRequest(f"cron:{job.id}", agent, key))

    async def _end_at_once(
        self,
        started: StoredJob,
        slot: SlotRecord,
        skipped: Sequence[SlotRecord],
        notice: PlannedNotice | None = None,
        *,
        is_posted: bool = True,
    ) -> None:
        """Write a slot that ends in the moment in which it is claimed."""
        now_ms, misfire = self._clock.now_ms(), self.misfire_of(started.job)
        end = end_job(started, slot, now_ms, misfire, is_retryable=False)
        slot = replace(slot, next_run_ms=end.next_run_ms)
        write_webhook = await self._plan_webhook(started.job, slot) if is_posted else write_nothing

        def write(transaction: Transaction) -> None:
            _claim(transaction, [*skipped, slot])
            if notice:
                notice.write(transaction)
            write_webhook(transaction)

        await self._save(end, write, started)
        self._services.on_event(encode_event(replace(slot, state="running"), "started"))
        self._report_ended([slot])
        if write_webhook is not write_nothing:
            self._services.webhooks.wake()

    async def _start_turn(
        self,
        started: StoredJob,
        slot: SlotRecord,
        agent: str,
        payload: AgentTurnPayload,
        skipped: Sequence[SlotRecord],
    ) -> str:
        job = started.job
        run_id = str(uuid5(_NAMESPACE, f"{job.id}\n{slot.slot_ms}"))
        key = cron_key(agent, job.id, run_id)
        delivery = job.delivery or _ANNOUNCE
        slot = replace(slot, run_id=run_id, session_key=key)
        running = replace(started, running_slot_ms=slot.slot_ms).with_state(next_run_at_ms=0)

        def write(transaction: Transaction) -> None:
            _claim(transaction, [*skipped, slot])
            put_job(transaction, running)

        request = TurnRequest(
            run_id,
            "cron",
            job.name,
            agent,
            key,
            self._text(job, payload, slot.started_ms),
            slot.started_ms,
            model=payload.model,
            thinking=payload.thinking,
            timeout_s=payload.timeout_s or DEFAULT_TIMEOUT_S,
            delivery=delivery,
            summarizes=delivery.mode == "announce",
            wake_mode=job.wake_mode,
            taint=job.creator.taint,
        )
        await self._services.turns.start(request, write)
        self._jobs[job.id] = running
        self._services.on_event(encode_event(slot, "started"))
        return run_id

    def _text(self, job: CronJob, payload: AgentTurnPayload, at_ms: int) -> str:
        """Return the message of a turn: the job, what to do, and the time."""
        zone, uses_12_hours = self._services.get_zone()
        line = current_time_line(at_ms, zone, uses_12_hours=uses_12_hours)
        text = f"[cron:{job.id} {job.name}] {payload.message}"
        if is_hook(job.session_key) and not payload.is_unsafe_content_allowed:
            text = wrap_untrusted(text, "hook", job.name)
        return f"{text}\n{line}"

    # End

    @asynccontextmanager
    async def ending(self, end: TurnEnd) -> AsyncIterator[WriteEnd]:
        """Add the end of a slot to the transaction that settles its turn."""
        slot = await self._find_slot(end.request.id)
        if slot is None:
            yield write_nothing
            return
        stored = self._jobs.get(slot.job)
        slot = replace(
            slot,
            state=end.status,
            reason=end.error,
            ended_ms=max(end.ended_ms, slot.started_ms),
            session_id=end.session_id,
            summary=end.summary,
            model=end.model,
            provider=end.provider,
            usage=end.usage,
        )
        job_end = self._end_job(stored, slot, is_retryable=end.is_retryable)
        slot = replace(slot, next_run_ms=job_end.next_run_ms)
        write_webhook = await self._plan_webhook(stored.job, slot) if stored else write_nothing

        def write(transaction: Transaction) -> None:
            transaction.end_slot(slot)
            _put_or_delete(transaction, job_end, stored)
            write_webhook(transaction)

        yield write
        fault_point("cron.ended")
        self._apply(job_end, stored)
        self._report_ended([slot])
        if write_webhook is not write_nothing:
            self._services.webhooks.wake()

    def _end_job(self, stored: StoredJob | None, slot: SlotRecord, *, is_retryable: bool) -> JobEnd:
        if stored is None or stored.running_slot_ms != slot.slot_ms:
            return JobEnd(stored)  # removed, or ended as stuck
        now_ms, misfire = self._clock.now_ms(), self.misfire_of(stored.job)
        try:
            return end_job(stored, slot, now_ms, misfire, is_retryable=is_retryable)
        except UserError as exc:  # the schedule was edited while it ran
            failed = replace(stored, running_slot_ms=0)
            return JobEnd(failed.with_state(running_at_ms=0, last_error=str(exc)))

    async def _find_slot(self, run_id: str) -> SlotRecord | None:
        running = await self._store.slots("running")
        return next((one for one in running if one.run_id == run_id), None)

    async def _plan_webhook(self, job: CronJob, slot: SlotRecord) -> WriteEnd:
        """Return what stores the delivery of a result to a webhook, if the job has one."""
        delivery, url = job.delivery, ""
        if delivery and delivery.mode == "webhook":
            url = delivery.to or self._services.get_webhook()
        elif job.definition.get("notify") is True:  # the older way to ask for it
            url = self._services.get_webhook()
        if not url or not (slot.summary or slot.reason):
            return write_nothing
        name = slot.run_id or str(uuid5(_NAMESPACE, f"{job.id}\n{slot.slot_ms}"))
        event, webhooks = encode_event(slot), self._services.webhooks
        return lambda transaction: webhooks.write(transaction, name, url, event)

    async def end_stuck(self, stored: StoredJob, reason: str) -> None:
        """End a slot whose run does not end, or that has none; its run is stopped."""
        slot = await self._store.slot(stored.id, stored.running_slot_ms)
        now_ms = self._clock.now_ms()
        if slot is None or not slot.is_running:
            idle = replace(stored, running_slot_ms=0).with_state(running_at_ms=0)
            end = with_next_run(idle, now_ms, self.misfire_of(stored.job))
            await self._save(end, lambda _transaction: None, stored)
            return
        slot = replace(slot, state="error", reason=reason, ended_ms=max(now_ms, slot.started_ms))
        end = self._end_job(stored, slot, is_retryable=False)
        slot = replace(slot, next_run_ms=end.next_run_ms)
        await self._save(end, lambda transaction: transaction.end_slot(slot), stored)
        self._report_ended([slot])
        log.warning("job %s: %s", stored.id, reason)
        if slot.session_key:
            try:
                await self._services.stop_run(slot.session_key)
            except HomarusError as exc:
                log.warning("the run of job %s could not be stopped: %s", stored.id, exc)

    # Writes

    async def _save(self, end: JobEnd, write: WriteEnd, stored: StoredJob) -> None:
        """Write the job after a change, with other writes. Raises ConflictError."""
        async with self._store.transaction() as transaction:
            write(transaction)
            _put_or_delete(transaction, end, stored)
        self._apply(end, stored)

    def _apply(self, end: JobEnd, stored: StoredJob | None) -> None:
        if stored is None:
            return
        if end.stored is None:
            self._jobs.pop(stored.id, None)
            self._services.on_event({"jobId": stored.id, "action": "removed"})
        else:
            self._jobs[stored.id] = end.stored

    def _report_ended(self, slots: Sequence[SlotRecord]) -> None:
        for slot in slots:
            self._services.on_event(encode_event(slot))
            if slot.state == "skipped":
                log.warning("job %s: the slot at %d was skipped: %s", *_described(slot))
            elif slot.state == "error":
                log.warning("job %s: the slot at %d failed: %s", *_described(slot))
        if slots:
            self._services.on_ended(slots)


def _described(slot: SlotRecord) -> tuple[str, int, str]:
    return slot.job, slot.slot_ms, slot.reason


def _claim(transaction: Transaction, slots: Sequence[SlotRecord]) -> None:
    for slot in slots:
        transaction.claim_slot(slot)


def _put_or_delete(transaction: Transaction, end: JobEnd, stored: StoredJob | None) -> None:
    if stored is None:
        return
    if end.stored is None:
        delete_job(transaction, stored.id)
    else:
        put_job(transaction, end.stored)


def _skipped_rows(
    job: str, skipped: Sequence[SkippedSlots], now_ms: int, next_run_ms: int
) -> list[SlotRecord]:
    state: SlotState = "skipped"
    return [
        SlotRecord(
            job,
            one.slot_ms,
            state=state,
            reason=one.row_reason,
            ended_ms=now_ms,
            next_run_ms=next_run_ms,
            count=one.count,
            until_ms=one.until_ms,
        )
        for one in skipped
    ]
