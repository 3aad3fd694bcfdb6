"""Cron jobs over a store and a fake clock; a test ends their turns as a run would."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from homarus.core.errors import HomarusError, UserError
from homarus.core.message import Json, Message, Origin, Text, Usage
from homarus.core.session_keys import main_key
from homarus.net.guard import NetworkPolicy
from homarus.net.guarded_fetch import FetchedResponse
from homarus.schedule.cron_runner import RunnerServices
from homarus.schedule.cron_service import CronService, CronServices
from homarus.schedule.heartbeat_request import HeartbeatRequest
from homarus.schedule.job import Misfire
from homarus.schedule.turn import Delivery
from homarus.schedule.turn_service import TurnService, TurnServices
from homarus.schedule.webhook_sender import WebhookSender, WebhookServices, WebhookSettings
from homarus.sessions.notices import Notices
from homarus.sessions.run_end import RunEnd
from homarus.store.base import Store, UsageRecord
from homarus.store.journal import InboxRecord, SettledState
from homarus.store.slots import SlotRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore

TURN = {"kind": "agentTurn", "message": "check the mail"}
EVENT = {"kind": "systemEvent", "text": "time to stretch"}
CHAT = ("telegram", "42", "default", "")


def assistant(text: str) -> Message:
    origin = Origin("fake", "acme", "m1", usage=Usage(10, 5))
    return Message("assistant", (Text(text),), 1, origin)


@dataclass(slots=True)
class Stage:
    """A cron service, and what it did."""

    store: Store
    clock: FakeClock
    path: Path
    group: asyncio.TaskGroup
    is_enabled: bool = True
    misfire: Misfire = field(default_factory=Misfire)
    targets: dict[str, tuple[str, str, str, str]] = field(default_factory=lambda: {"": CHAT})
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    submitted: list[InboxRecord] = field(default_factory=list)
    events: list[Mapping[str, Json]] = field(default_factory=list)
    heartbeats: list[HeartbeatRequest] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    posted: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    responses: list[int | HomarusError] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    notices: Notices = field(default_factory=Notices)
    turns: TurnService = field(init=False)
    webhooks: WebhookSender = field(init=False)
    cron: CronService = field(init=False)

    def __post_init__(self) -> None:
        self.turns = TurnService(
            TurnServices(
                store=self.store,
                clock=self.clock,
                notices=self.notices,
                submit=lambda _key, row: self.submitted.append(row),
                spawn=self._spawn,
                resolve_target=self._target,
                get_main_key=main_key,
                clean_reply=lambda message: "" if message.text == "NO_REPLY" else message.text,
                request_heartbeat=self.heartbeats.append,
            )
        )
        self.webhooks = WebhookSender(
            WebhookServices(
                self.store, self.clock, lambda: self.webhook, self._spawn, self._give_up, self._post
            )
        )
        runner = RunnerServices(
            store=self.store,
            clock=self.clock,
            notices=self.notices,
            turns=self.turns,
            webhooks=self.webhooks,
            resolve_agent=_resolve_agent,
            resolve_key=lambda name, agent: name or main_key(agent),
            stop_run=self._stop,
            get_misfire=lambda: self.misfire,
            get_webhook=lambda: self.webhook.url,
            get_zone=lambda: ("UTC", False),
            request_heartbeat=self.heartbeats.append,
            on_event=self.events.append,
        )
        self.cron = CronService(
            CronServices(runner, lambda: self.is_enabled, lambda: self.path, self._spawn)
        )

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        return self.group.create_task(work, name=name)

    async def _target(self, delivery: Delivery, _agent: str) -> tuple[str, str, str, str]:
        try:
            return self.targets[delivery.to]
        except KeyError:
            raise UserError("no such chat", fix="name one") from None

    async def _stop(self, key: str) -> None:
        self.stopped.append(key)

    async def _give_up(self, run_id: str, reason: str) -> None:
        self.failed.append((run_id, reason))

    async def _post(self, url: str, **given: Any) -> FetchedResponse:
        self.posted.append((url, given))
        response = self.responses.pop(0) if self.responses else 200
        if isinstance(response, HomarusError):
            raise response
        return FetchedResponse(url, response, {}, b"")

    async def add(self, schedule: Mapping[str, Json], payload: Json = None, **more: Json) -> str:
        """Add a job and return its id."""
        draft = {"name": "mail", "schedule": schedule, "payload": payload or TURN, **more}
        return (await self.cron.add(draft)).id

    async def advance(self, seconds: float) -> None:
        """Move the time, and have the timer do what is due on the way."""
        until_ms = self.clock.now_ms() + round(seconds * 1000)
        while True:
            await self.tick()
            due_ms = self.cron.next_due_ms()
            if due_ms is None or due_ms > until_ms:
                break
            await self.clock.advance(max(0.0, (due_ms - self.clock.now_ms()) / 1000))
        await self.clock.advance((until_ms - self.clock.now_ms()) / 1000)
        await self.tick()

    async def tick(self) -> None:
        """Have the timer wake, and wait until the files are written."""
        await self.cron.tick()
        await self.idle()

    async def idle(self) -> None:
        """Wait until nothing is done in the background."""
        for _ in range(20):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while tasks := [one for one in asyncio.all_tasks() if one.get_name() == _FILES]:
                await asyncio.wait(tasks, timeout=0.05)
        for _ in range(20):
            await asyncio.sleep(0)

    async def running(self) -> Sequence[SlotRecord]:
        return await self.store.slots("running")

    async def finish(
        self, text: str = "two new mails", *, error: HomarusError | None = None, reason: str = ""
    ) -> SlotRecord:
        """End the oldest run, as the journal of a run does."""
        slot = (await self.running())[0]
        reply = assistant(text) if error is None and not reason else None
        usage = (UsageRecord(slot.run_id, slot.session_key, "acme", "m1", 1, Usage(10, 5)),)
        end = RunEnd(slot.session_key, (slot.run_id,), reply, error, reason, usage)
        async with (
            self.store.journal.lease("run") as lease,
            self.turns.settling(end) as write,
            self.store.transaction() as transaction,
        ):
            transaction.mark_running([slot.run_id], lease, run=slot.run_id)
            state: SettledState = "answered" if reply else "reported"
            transaction.settle([slot.run_id], lease, state, at_ms=self.clock.now_ms())
            write(transaction)
        await self.idle()
        found = await self.store.slot(slot.job, slot.slot_ms)
        assert found is not None
        return found

    async def slots(self, job: str | None = None) -> list[tuple[int, str, str]]:
        """Return time, state and trigger of the slots, in seconds since the start."""
        rows = await self.cron.runs(job, 5_000)
        return [((one.slot_ms - START) // 1000, one.state, one.trigger) for one in rows]


START = FakeClock().now_ms()
_FILES = "files of jobs"
_BACKGROUND = {_FILES, "webhooks of jobs"}


def _resolve_agent(name: str) -> str:
    if name not in {"", "main", "ops"}:
        raise UserError(f"unknown agent {name!r}", fix="use main")
    return name or "main"


PRIVATE = NetworkPolicy(allows_private=True)


@asynccontextmanager
async def open_stage(
    tmp_path: Path, *, store: Store | None = None, clock: FakeClock | None = None
) -> AsyncIterator[Stage]:
    """Open a stage; its tasks end with it."""
    async with asyncio.TaskGroup() as group:
        stage = Stage(
            store or MemoryStore(), clock or FakeClock(), tmp_path / "cron" / "jobs.json", group
        )
        yield stage
        await stage.idle()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name() in _BACKGROUND:
                task.cancel()


def every(seconds: float) -> dict[str, Json]:
    return {"kind": "every", "everyMs": round(seconds * 1000), "anchorMs": START}


def at(seconds: float) -> dict[str, Json]:
    from homarus.schedule.absolute_time import format_iso_ms

    return {"kind": "at", "at": format_iso_ms(START + round(seconds * 1000))}
