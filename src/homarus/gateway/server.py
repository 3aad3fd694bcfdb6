"""The gateway: every connection, the events for all of them, and their shared state.

It exists as soon as the port is open; the services behind it start a little later. A
client that connects in between is challenged at once and greeted when they are ready.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from homarus import __version__
from homarus.config.heartbeat_settings import resolve_visibility
from homarus.core.clock import Clock, SystemClock
from homarus.core.diagnostics import WebhookFailed, WebhookProcessed, WebhookReceived
from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.loop_monitor import LoopMonitor
from homarus.core.message import Json
from homarus.core.retry import Backoff
from homarus.core.session_keys import agent_id_of
from homarus.core.tasks import run_contained, supervise, task_group
from homarus.core.text import one_line
from homarus.gateway import frames
from homarus.gateway.config_watch import ConfigWatcher
from homarus.gateway.connection import POLICY, RESTART, Connection
from homarus.gateway.device_records import VOIDED_REASON, describe_pending
from homarus.gateway.events import BUS_SIZE, EventBroadcaster
from homarus.gateway.frames import TICK_S
from homarus.gateway.handshake import AuthenticatedClient, ConnectionAuthenticator
from homarus.gateway.health import FRESH_MS, DiskProbe, collect_health
from homarus.gateway.hello import hello
from homarus.gateway.idempotency import IdempotencyCache
from homarus.gateway.method import Caller, Method, MethodTable, Scope
from homarus.gateway.node_calls import NodeCalls
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.presence import PresenceList
from homarus.gateway.run_tracker import RunTracker
from homarus.gateway.services import GatewayServices
from homarus.gateway.session_rows import newest_session_row
from homarus.gateway.session_subscriptions import SessionSubscriptions
from homarus.gateway.usage_cache import UsageCache

if TYPE_CHECKING:  # imported when a client starts one
    from homarus.gateway.hooks.refusal import HookCounters
    from homarus.gateway.wizard.session import WizardSession
    from homarus.store.approvals import ApprovalRecord

log = logging.getLogger(__name__)

DRAIN_S = 10.0
TOOL_RESULTS = "tool-results"  # a client's capability: tool events with the output of the tool
_BACKOFF = Backoff(first_s=0.05, max_s=5.0)
# The scope that an event needs, by the prefix of its name; any other is for every client.
_EVENT_SCOPES: tuple[tuple[str, Scope], ...] = (
    ("exec.approval.", "approvals"),
    ("question.", "approvals"),
    ("device.pair.", "pairing"),
    ("node.pair.", "pairing"),
    ("tick", "none"),
    ("shutdown", "none"),
    ("", "read"),
)


@dataclass(slots=True)
class GatewayCounters:
    """Counters since the start, for `/metrics`."""

    connections: int = 0
    refused: int = 0
    requests: int = 0
    events: int = 0
    dropped: int = 0


class Gateway:
    """The connections and what they share. Created once per process."""

    def __init__(
        self,
        *,
        authenticator: ConnectionAuthenticator,
        methods: MethodTable,
        unimplemented: Mapping[str, str],
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.authenticator, self.methods, self.unimplemented = authenticator, methods, unimplemented
        authenticator.devices.on_event = self._on_device_event
        authenticator.devices.on_token_voided = self._drop_device
        self.ready = asyncio.Event()
        self.stopping = False
        self.counts = GatewayCounters()
        self.hook_counters: HookCounters | None = None  # with the first request to a webhook
        self.started_ms = self.clock.now_ms()
        self.presence = PresenceList(self.clock, __version__)
        self.runs, self.answers = RunTracker(self.clock), IdempotencyCache(self.clock)
        self.sessions = SessionSubscriptions(
            self.send,
            load_row=self._load_session_row,
            get_store=lambda: self.services.store,
            now_ms=self.clock.now_ms,
            add_key=self.runs.add_message_key,
        )
        self.events = EventBroadcaster(
            self, self.clock, later=self._later, verbose=self._is_verbose, sessions=self.sessions,
            find_ack_max_chars=self._find_ack_max_chars,
        )  # fmt: skip
        self.usage, self.node_calls = UsageCache(), NodeCalls()
        self.health: Mapping[str, Json] = {}
        self.monitor, self.disk = LoopMonitor(), DiskProbe(self.clock)
        self.config_problem = ""  # why the file on disk is not the config in use
        self.config_watcher: ConfigWatcher | None = None  # of the config
        self.wizard: WizardSession | None = None  # the last one that a client started
        self._connections: dict[str, Connection] = {}
        self._seq = 0
        self._health_version = 1
        self._services: GatewayServices | None = None
        self._group: asyncio.TaskGroup | None = None

    @property
    def services(self) -> GatewayServices:
        """Return the services; raises UnavailableError until they have started."""
        if self._services is None:
            raise UnavailableError("the gateway is starting", retry_after_ms=500)
        return self._services

    @property
    def uptime_ms(self) -> int:
        return self.clock.now_ms() - self.started_ms

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Return the authenticated connections."""
        return tuple(self._connections.values())

    @property
    def state_version(self) -> dict[str, int]:
        return {"presence": self.presence.version, "health": self._health_version}

    async def run(self, services: GatewayServices, *, is_background: bool = True) -> None:
        """Serve with these services until cancelled.

        Without `is_background` nothing runs by itself: what an earlier process left is not
        resumed, and no job, heartbeat or channel is started.
        """
        with services.bus.subscribe(BUS_SIZE) as subscription:
            async with task_group() as group:
                self._group = group
                if services.schedules:
                    services.schedules.add_listener(self._on_cron_event)
                if is_background:  # before a new message could be taken for an old one
                    await self._recover(services)
                self._services = services
                services.approval_ports.reach.append(self._has_approver)
                heartbeats = services.heartbeats
                heartbeats.listeners.append(self._broadcast_heartbeat)
                heartbeats.listeners.append(self._count_heartbeat)
                self.ready.set()
                try:
                    if is_background:
                        group.create_task(self._supervise("tick", self._tick))
                        group.create_task(self.monitor.run(), name="pulse")
                        group.create_task(self._supervise("schedule", services.run_schedule))
                        group.create_task(self._supervise("heartbeats", heartbeats.run))
                    await self._supervise("events", lambda: self.events.follow(subscription))
                finally:
                    services.approval_ports.reach.remove(self._has_approver)
                    heartbeats.listeners.remove(self._broadcast_heartbeat)
                    heartbeats.listeners.remove(self._count_heartbeat)
                    self._services = self._group = None

    async def _recover(self, services: GatewayServices) -> None:
        """Resume what an earlier process left; a client that asks again finds its run active."""
        for row, outcome in await services.recover():
            self.runs.track(row.id, row.session, outcome, lambda _outcome: None)

    async def _supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Restart a task that every client depends on after an exception, which is logged."""
        await supervise(name, run, clock=self.clock, backoff=_BACKOFF)

    def authenticate(
        self, params: Json, connection: Connection
    ) -> tuple[AuthenticatedClient, dict[str, Json]]:
        """Authenticate a client and return its hello; raises when it is refused."""
        if self.stopping:
            raise UnavailableError("the gateway is shutting down", retry_after_ms=2_000)
        request = RequestInfo.from_scope(connection.scope)
        accepted = self.authenticator.authenticate(params, request, connection.nonce, connection.id)
        return accepted, hello(self, accepted)

    def method(self, name: str) -> Method:
        """Return the method of this name."""
        if known := self.methods.get(name):
            return known
        if reason := self.unimplemented.get(name):
            raise UnavailableError(f"{name}: {reason}")
        raise InvalidRequestError(f"unknown method: {name}")

    def broadcast(
        self,
        event: str,
        payload: Json,
        *,
        drop_if_slow: bool = False,
        newest: Mapping[str, Json] | None = None,
    ) -> None:
        """Send an event, with the next number, to every client with the scope for it.

        `newest` are additional fields for clients of the newest protocol.
        """
        self._seq += 1
        version = self.state_version if event in {"presence", "health"} else None
        scope = next(scope for start, scope in _EVENT_SCOPES if event.startswith(start))
        receivers = [c for c in self._connections.values() if c.caller and c.caller.may(scope)]
        if not receivers:
            return
        text = frames.event_frame(event, payload, self._seq, version)
        newest_text = ""
        self.counts.events += len(receivers)
        for connection in receivers:
            wants_more = newest is not None and connection.is_newest
            if wants_more and not newest_text:
                newest_text = frames.event_frame(
                    event, {**payload, **(newest or {})}, self._seq, version
                )
            connection.send_event(newest_text if wants_more else text, drop_if_slow=drop_if_slow)

    def send(
        self, conn_id: str, event: str, payload: Json, *, newest: Mapping[str, Json] | None = None
    ) -> None:
        """Send an event without a number to one client."""
        if connection := self._connections.get(conn_id):
            self.counts.events += 1
            if newest is not None and connection.is_newest:
                payload = {**payload, **newest}
            connection.send_event(frames.event_frame(event, payload))

    def _broadcast_heartbeat(self, payload: Mapping[str, Json]) -> None:
        self.broadcast("heartbeat", payload)

    def _count_heartbeat(self, payload: Mapping[str, Json]) -> None:
        if metrics := self.services.get_event_metrics():
            metrics.on_heartbeat(payload)

    def _find_ack_max_chars(self, key: str) -> int | None:
        """Return how long an acknowledgement may be; None if clients are shown heartbeats."""
        config = self.services.loaded.config
        if resolve_visibility(config, "").shows_ok:
            return None
        return self.services.heartbeats.settings_of(agent_id_of(key)).ack_max_chars

    def _has_approver(self, _record: "ApprovalRecord") -> bool:
        """Return whether a person who may answer approvals is at a connected client."""
        return any(c.caller and c.caller.is_approver for c in self._connections.values())

    def start(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that outlives its request; its failure is logged."""
        if self._group is None:
            raise UnavailableError("the gateway is starting", retry_after_ms=500)
        self._group.create_task(run_contained(name, run, lambda _exc: None), name=name)

    def subscribe_run(self, run_id: str, caller: Caller) -> None:
        """Subscribe the caller to the tool events of a run that it started or joined."""
        if "tool-events" in caller.caps:
            self._note_result_receiver(caller)
            self.events.subscribe_tools(run_id, caller.conn_id)

    def _note_result_receiver(self, caller: Caller) -> None:
        if TOOL_RESULTS in caller.caps and caller.may("read"):
            self.events.add_result_receiver(caller.conn_id)

    def catch_up(self, session_key: str, caller: Caller) -> None:
        """Send the caller, after its response, the text so far of the session's active runs."""
        if tools := "tool-events" in caller.caps:
            self._note_result_receiver(caller)
        send_text = partial(self.events.catch_up, session_key, caller.conn_id, tools=tools)
        asyncio.get_running_loop().call_soon(send_text)

    def update_health(self, health: Mapping[str, Json]) -> None:
        """Save and broadcast a new health summary."""
        self.health = health
        self._health_version += 1
        self.broadcast("health", dict(health), drop_if_slow=True)

    @asynccontextmanager
    async def track_webhook(self, name: str) -> AsyncIterator[list[str]]:
        """Publish what becomes of a request to a webhook; it failed if errors are added."""
        errors = list[str]()
        diagnostics = self._services.diagnostics if self._services else None
        if diagnostics is None or not diagnostics.is_active:
            yield errors
            return
        started_s = self.clock.monotonic()
        diagnostics.publish(WebhookReceived(name))
        try:
            yield errors
        except RequestBlockedError as exc:
            errors.append(str(exc))
            raise
        finally:
            for error in errors:
                diagnostics.publish(WebhookFailed(name, one_line(error, 160)))
        if errors:
            return
        duration_ms = round((self.clock.monotonic() - started_s) * 1000)
        diagnostics.publish(WebhookProcessed(name, duration_ms))

    def broadcast_presence(self) -> None:
        """Broadcast a change of the presence list."""
        self.broadcast("presence", {"presence": self.presence.entries()}, drop_if_slow=True)

    def register_client(self, connection: Connection, caller: Caller) -> None:
        """Register an authenticated client."""
        self._connections[connection.id] = connection
        self.counts.connections += 1
        log.info(
            "client connected: %s %s (%s) from %s", caller.client_id, caller.version, caller.mode,
            caller.ip or "here",
        )  # fmt: skip
        if self.presence.join(caller):
            self.broadcast_presence()
        self.start("health", self._refresh_health)

    def unregister_client(self, connection: Connection, caller: Caller) -> None:
        """Remove a client that disconnected."""
        self._connections.pop(connection.id, None)
        self.events.leave(connection.id)
        self.sessions.leave(connection.id)
        if caller.role == "node":
            self.node_calls.leave(connection.id)
        if self.presence.leave(caller) and not self.stopping:
            self.broadcast_presence()

    def disconnect(self, matches: Callable[[Caller], bool], reason: str) -> int:
        """Close the connections of these clients at once and return their number."""
        known = [c for c in self._connections.values() if c.caller and matches(c.caller)]
        for connection in known:
            connection.abort(POLICY, reason)
        return len(known)

    def _on_cron_event(self, event: Mapping[str, Json]) -> None:
        """Send what happened to a scheduled job."""
        self.broadcast("cron", dict(event))
        if self._services and (metrics := self._services.get_event_metrics()):
            metrics.on_cron(event)

    def _on_device_event(self, event: str, payload: Json) -> None:
        """Send an event of the device registry, and show a request that waits at the terminal."""
        self.broadcast(event, payload)
        if event == "device.pair.requested":
            # A program of this machine gets a further role at once: then nothing waits.
            asyncio.get_running_loop().call_soon(self._report_pending, payload)

    def _report_pending(self, entry: dict[str, Json]) -> None:
        pending = self.authenticator.devices.listing()["pending"]
        if any(each["requestId"] == entry["requestId"] for each in pending):
            log.warning("%s", describe_pending(entry))

    def _drop_device(self, device_id: str, role: str, except_conn_id: str) -> None:
        """Disconnect the clients of a voided device token, except one connection."""

        def is_affected(caller: Caller) -> bool:
            same = caller.device_id == device_id and caller.role == role
            return same and caller.conn_id != except_conn_id

        self.disconnect(is_affected, VOIDED_REASON)

    async def stop(self, reason: str, *, restart_ms: int | None = None) -> None:
        """Announce the shutdown, let active runs end, close every connection."""
        self.stopping = True
        expected: dict[str, Json] = {} if restart_ms is None else {"restartExpectedMs": restart_ms}
        self.broadcast("shutdown", {"reason": reason, **expected})
        if self._services is not None:
            await self._wait_for_runs(self._services)
        self.close_all()

    def close_all(self) -> None:
        """Close every connection once its buffer is sent."""
        for connection in self.connections:
            connection.close(RESTART, "service restart")

    async def _wait_for_runs(self, services: GatewayServices) -> None:
        """Wait for active runs, and until their last event is on its way to the clients.

        A run that takes longer is not stopped, which would be its outcome: the end of the process
        interrupts it, and the next start resumes it.
        """
        deadline_s = self.clock.monotonic() + DRAIN_S
        if self._has_active_runs(services):
            fault_point("drain.begun")
        while self._has_active_runs(services) and self.clock.monotonic() < deadline_s:
            await self.clock.sleep(0.05)
        for run_id in services.control.active_runs():
            message = "run %s did not end within %.0f s: the next start goes on with it"
            log.warning(message, run_id, DRAIN_S)

    def _has_active_runs(self, services: GatewayServices) -> bool:
        control = services.control
        return bool(control.active_runs()) or any(
            run.run_id not in control.suspended_runs(run.session_key) for run in self.events.live()
        )

    async def _tick(self) -> None:
        while True:
            await self.clock.sleep(TICK_S)
            self.broadcast("tick", {"ts": self.clock.now_ms()}, drop_if_slow=True)
            if self._connections:
                await self._refresh_health()

    async def _refresh_health(self) -> None:
        """Collect the health summary again when it is old."""
        if not 0 <= self.clock.now_ms() - int(self.health.get("ts", 0)) < FRESH_MS:
            problem = self.disk.problem  # a disk that sleeps is not woken
            self.update_health(await collect_health(self.services, self.monitor, problem))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        async def wait() -> None:
            await self.clock.sleep(seconds)
            call()

        if self._group is not None:
            self._group.create_task(wait())

    async def _load_session_row(self, session_key: str) -> dict[str, Json] | None:
        record = await self.services.store.session(session_key)
        return await newest_session_row(self.services, record) if record else None

    async def _is_verbose(self, session_key: str) -> bool:
        record = await self.services.store.session(session_key)
        return record is not None and record.data.get("verboseLevel") == "full"


def memory_bytes() -> int:
    """Return the memory of this process; 0 where the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - not a file
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
