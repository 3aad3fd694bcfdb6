"""When heartbeats run: one timer for all agents, and the requests for one at once.

The scheduler decides whether a heartbeat has anything to do. Only then is what runs it imported: an
agent without content in HEARTBEAT.md and without notices costs a comparison of times, and a `stat`
of that file each time its heartbeat is due.

The next heartbeat is due an interval after the last one by the wall clock, also across a restart or
a suspend: then one is run, not all that were missed. One that is due outside of the active hours
runs when they begin. The timer sleeps a minute at most, so that a clock that was set is noticed.

A heartbeat that fails gives its notices back. While they wait, it is run again after a minute and
then after increasing times, five times at most; after that they wait for the next interval.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
from homarus.config.heartbeat_settings import (
    CHECKLIST,
    HeartbeatSettings,
    heartbeat_agent_ids,
    resolve_heartbeat,
)
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.clock import Clock
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import FileStamp, stat_stamp
from homarus.core.lanes import Lanes
from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of, is_cron, is_hook, is_subagent
from homarus.core.silent_reply import is_blank_checklist
from homarus.schedule.heartbeat_request import HeartbeatRequest
from homarus.schedule.wakeable_sleep import WakeableSleep
from homarus.sessions.control import SessionControl
from homarus.sessions.notices import Notices
from homarus.store.base import Store
from homarus.store.journal import InboxRecord

if TYPE_CHECKING:  # imported by the first heartbeat that has something to do
    from homarus.schedule.heartbeat_runner import HeartbeatRunner

log = logging.getLogger(__name__)

RECORD_KIND: Final = "heartbeat"  # of an agent: when its last one was
SWITCH_KIND: Final = "heartbeats"  # whether they are switched on
COALESCE_S: Final = 0.25
RETRY_S: Final = 1.0
MAX_SLEEP_S: Final = 60.0
_ERROR_RETRY_S: Final = 5.0
# After how long a request is tried again that waits for a run, or for the active hours.
_WAITS_S: Final = {"requests-in-flight": RETRY_S, "quiet-hours": MAX_SLEEP_S}
# After how long the notices of a heartbeat that failed are tried again.
_FAILED_RETRIES_S: Final = (60.0, 120.0, 240.0, 480.0, 960.0)
_MAX_CHECKLIST_BYTES: Final = 1 << 20
_RETRY: Final = "retry"
_PRIORITIES: Final = {_RETRY: 0, "interval": 1, "manual": 3, "exec-event": 3}
_WRONG_SESSION: Final = (
    "agent %s has no heartbeat: heartbeat.session names %s; name a session of agent %s, or none"
)
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]


@dataclass(frozen=True, slots=True)
class HeartbeatServices:
    """What heartbeats are given from outside. `get_accounts` returns the accounts of channels."""

    store: Store
    clock: Clock
    control: SessionControl[Any]
    notices: Notices
    lanes: Lanes
    paths: Paths
    get_config: Callable[[], Config]
    get_accounts: Callable[[], Sequence[tuple[str, str]]]
    find_traits: FindTraits
    spawn: Spawn


@dataclass(slots=True)
class _PendingRequest:
    """A request that is due at a time of the monotonic clock."""

    request: HeartbeatRequest
    due_s: float
    is_interval: bool = False  # the agent's interval is over
    told: str = ""  # the reason why it waits, which was published


class HeartbeatScheduler:
    """Starts the heartbeats of all agents. Built once, by app.py; the gateway runs it.

    `listeners` get the payload of every `heartbeat` event; `last` is that of the last one.
    """

    def __init__(self, services: HeartbeatServices) -> None:
        self._services, self._clock = services, services.clock
        self._pending: dict[tuple[str, str], _PendingRequest] = {}  # by agent and session
        self._last_ms: dict[str, int] = {}
        self._failures: dict[str, int] = {}  # in a row, by session
        self._checklists: dict[Path, tuple[FileStamp | None, bool]] = {}
        self._settings: dict[str, HeartbeatSettings] = {}
        self._config: Config | None = None  # whose settings those are
        self._sleep = WakeableSleep(services.clock)
        self._runner: HeartbeatRunner | None = None
        self.is_switched_on = True
        self.listeners: list[Callable[[Mapping[str, Json]], None]] = []
        self.last: Mapping[str, Json] | None = None

    # From outside

    def request(self, request: HeartbeatRequest) -> None:
        """Have a heartbeat run at once; requests that come together start one."""
        agent = request.agent or default_agent_id(self._services.get_config())
        key = agent, request.session_key
        self._add(key, request, self._clock.monotonic() + COALESCE_S)

    def find_delay(self, session_key: str, agent: str = "") -> str:
        """Return why a heartbeat about a session would not run now, "" if it would.

        `switched-off` and `no-heartbeat` last until a person changes that; the others pass.
        """
        agent = agent or default_agent_id(self._services.get_config())
        settings = self.settings_of(agent)
        if not self.is_switched_on:
            return "switched-off"
        key = self._resolve_session(settings, HeartbeatRequest("wake", agent, session_key))
        if not settings.is_enabled or agent_id_of(key) != agent:
            return "no-heartbeat"
        if not settings.is_active_at(self._clock.now_ms()):
            return "quiet-hours"
        return "requests-in-flight" if self.is_busy(settings, key) else ""

    def wake(self) -> None:
        """Check at once what is due: the config may have changed."""
        self._sleep.wake()

    async def switch(self, *, is_on: bool) -> None:
        """Switch all heartbeats on or off, also for the next start of the program."""
        async with self._services.store.transaction() as transaction:
            transaction.put_record(SWITCH_KIND, "switch", {"enabled": is_on})
        if is_on and not self.is_switched_on:
            self._request_urgent()
        self.is_switched_on = is_on
        self.wake()

    def settings_of(self, agent: str) -> HeartbeatSettings:
        """Return the heartbeat of an agent by the config in use."""
        config = self._services.get_config()
        if config is not self._config:
            self._config, self._settings = config, {}
        if agent not in self._settings:
            self._settings[agent] = resolve_heartbeat(config, agent)
        return self._settings[agent]

    def follow(self, record: InboxRecord, outcome: "asyncio.Future[Any]") -> None:
        """Report the end of a heartbeat that an earlier process started."""
        if record.inbound and record.inbound.is_heartbeat:
            self._get_runner().follow(record, outcome)

    def publish(self, payload: Mapping[str, Json]) -> None:
        """Record the last heartbeat, and give it to the listeners."""
        self.last = payload
        for listener in tuple(self.listeners):
            listener(payload)

    # The timer

    async def run(self) -> None:
        """Start heartbeats when they are due, until cancelled."""
        await self._load()
        while True:
            self._add_due()
            await self._start_pending()
            await self._sleep.sleep(self._next_s())

    async def _load(self) -> None:
        """Load what an earlier process left: the switch, the last times, urgent notices."""
        services = self._services
        switch = await services.store.record(SWITCH_KIND, "switch")
        self.is_switched_on = switch is None or switch.get("enabled") is not False
        for agent, data in (await services.store.records(RECORD_KIND)).items():
            self._last_ms.setdefault(agent, int(data.get("at", 0)))
        self._request_urgent()

    def _request_urgent(self) -> None:
        """Request heartbeats about the notices that are to be taken up at once."""
        notices = self._services.notices
        for key in notices.sessions():
            urgent = [one for one in notices.pending(key) if one.wake_mode == "now"]
            if urgent:
                self.request(HeartbeatRequest(urgent[-1].source or "wake", agent_id_of(key), key))

    def _add_due(self) -> None:
        """Add a request for each agent whose interval is over."""
        now_ms = self._clock.now_ms()
        for agent in heartbeat_agent_ids(self._services.get_config()):
            settings = self.settings_of(agent)
            if not settings.is_enabled:
                continue
            last_ms = self._last_ms.setdefault(agent, now_ms)
            if last_ms > now_ms:  # the clock was set back
                last_ms = self._last_ms[agent] = now_ms
            if now_ms >= last_ms + settings.every_ms and (agent, "") not in self._pending:
                request = HeartbeatRequest("interval", agent)
                self._add((agent, ""), request, self._clock.monotonic())

    def _add(self, key: tuple[str, str], request: HeartbeatRequest, due_s: float) -> None:
        found = self._pending.setdefault(key, _PendingRequest(request, due_s))
        found.due_s, found.told = min(found.due_s, due_s), ""
        found.is_interval |= request.reason == "interval"
        if _priority(request.reason) >= _priority(found.request.reason):
            found.request = request
        self.wake()

    def _next_s(self) -> float:
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        waits = [each.due_s - now_s for each in self._pending.values()]
        for agent, last_ms in self._last_ms.items():
            every_ms = self.settings_of(agent).every_ms
            if every_ms and (agent, "") not in self._pending:  # one that waits is due already
                waits.append((last_ms + every_ms - now_ms) / 1000)
        return max(0.0, min([MAX_SLEEP_S, *waits]))

    # One heartbeat

    async def _start_pending(self) -> None:
        now_s = self._clock.monotonic()
        due = [(key, each) for key, each in self._pending.items() if each.due_s <= now_s]
        for key, pending in due:
            if pending.request.reason == _RETRY and not self._services.notices.may_wake(key[1]):
                del self._pending[key]  # a message or another heartbeat has taken its notices
                continue
            try:
                reason = await self._start(key[0], pending)
            except HomarusError as exc:  # of the store: the request must not be lost
                log.warning("the heartbeat of agent %s could not start: %s", key[0], exc)
                pending.due_s = self._clock.monotonic() + _ERROR_RETRY_S
                continue
            if wait_s := _WAITS_S.get(reason):
                pending.due_s = self._clock.monotonic() + wait_s
                if pending.told == reason:
                    continue
                pending.told = reason
            else:
                del self._pending[key]
                if pending.is_interval and reason != "not-due":
                    self._last_ms[key[0]] = self._clock.now_ms()
            if reason:
                self.publish(self._skipped(reason))

    async def _start(self, agent: str, pending: _PendingRequest) -> str:
        """Start a heartbeat; return the reason why there is none, "" if there is one."""
        services, settings = self._services, self.settings_of(agent)
        now_ms = self._clock.now_ms()
        if not self.is_switched_on or not settings.is_enabled:
            return "disabled"
        if not settings.is_active_at(now_ms):
            return "quiet-hours"
        if pending.request.reason == "interval" and now_ms < self._due_ms(settings):
            return "not-due"  # the interval was changed meanwhile
        key = self._resolve_session(settings, pending.request)
        if agent_id_of(key) != agent:
            log.warning(_WRONG_SESSION, agent, key, agent)
            return "disabled"
        if self.is_busy(settings, key):
            return "requests-in-flight"
        if not services.notices.may_wake(key) and self._is_blank(agent):
            return "empty-heartbeat-file"
        return await self._get_runner().start(settings, key, is_interval=pending.is_interval)

    def _end(self, key: str, has_failed: bool) -> None:  # noqa: FBT001 - a callback
        """Count the failures of a session in a row; request a retry if it has notices."""
        if not has_failed:
            self._failures.pop(key, None)
            return
        count = self._failures[key] = self._failures.get(key, 0) + 1
        if count <= len(_FAILED_RETRIES_S) and self._services.notices.may_wake(key):
            agent = agent_id_of(key)
            due_s = self._clock.monotonic() + _FAILED_RETRIES_S[count - 1]
            self._add((agent, key), HeartbeatRequest(_RETRY, agent, key), due_s)

    def _due_ms(self, settings: HeartbeatSettings) -> int:
        return self._last_ms.get(settings.agent, 0) + settings.every_ms

    def _resolve_session(self, settings: HeartbeatSettings, request: HeartbeatRequest) -> str:
        """Return the session that a heartbeat is about: the requested, configured or main one.

        Sessions of sub-agents, jobs and hooks end with their work: they have no heartbeats.
        """
        key, agent = request.session_key, settings.agent
        if key and agent_id_of(key) == agent and not (is_subagent(key) or is_cron(key)):
            return key if not is_hook(key) else self._services.control.resolve_key(agent=agent)
        return self._services.control.resolve_key(settings.session or None, agent)

    def is_busy(self, settings: HeartbeatSettings, key: str) -> bool:
        """Return whether a run works in the session, or a person's run waits for its turn."""
        control, keys = self._services.control, (key, run_session(settings, key))
        return self._services.lanes.depth("main") > 0 or any(map(control.is_busy, keys))

    def _is_blank(self, agent: str) -> bool:
        """Return whether HEARTBEAT.md is absent or has no content; it is read once it changed."""
        config, paths = self._services.get_config(), self._services.paths
        file = resolve_agent_settings(config, paths, agent).workspace / CHECKLIST
        stamp = stat_stamp(file)
        known = self._checklists.get(file)
        if known is None or known[0] != stamp:
            known = self._checklists[file] = (stamp, stamp is None or _is_blank_file(file))
        return known[1]

    def _get_runner(self) -> "HeartbeatRunner":
        if self._runner is None:
            from homarus.schedule.heartbeat_runner import HeartbeatRunner

            self._runner = HeartbeatRunner(self._services, self.publish, self.is_busy, self._end)
        return self._runner

    def _skipped(self, reason: str) -> dict[str, Json]:
        return {"ts": self._clock.now_ms(), "status": "skipped", "reason": reason}


def run_session(settings: HeartbeatSettings, key: str) -> str:
    """Return the session that a heartbeat about a session runs in."""
    return f"{key}:heartbeat" if settings.is_isolated else key


def _priority(reason: str) -> int:
    return 3 if reason.startswith("hook:") else _PRIORITIES.get(reason, 2)


def _is_blank_file(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            text = stream.read(_MAX_CHECKLIST_BYTES).decode("utf-8", "replace")
    except OSError:
        return True
    return is_blank_checklist(text.removeprefix("\ufeff"))
