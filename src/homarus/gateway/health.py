"""The health summary that `health` returns and that clients receive every minute.

A health request writes to the disk: a disk that died while nothing was written shows only so.
Nothing is written without a request.
"""

import asyncio
from typing import Final

from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.config.heartbeat_settings import DEFAULT_PROMPT
from homarus.core.clock import Clock
from homarus.core.errors import StoreError
from homarus.core.loop_monitor import LoopMonitor
from homarus.core.message import Json
from homarus.gateway.channel_status import encode_channels_status
from homarus.gateway.services import GatewayServices
from homarus.gateway.session_rows import index_path
from homarus.store.base import Store

FRESH_MS = 60_000
PROBE_INTERVAL_S: Final = 5.0
PROBE_TIMEOUT_S: Final = 2.0
_RECENT = 5


class DiskProbe:
    """Whether the store can write. One write at a time, and at most one each few seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: asyncio.Future[None] | None = None
        self._next_at_s = clock.monotonic()
        self.problem = ""  # as of the last probe

    async def check(self, store: Store) -> str:
        """Write, unless that was done a moment ago; return what is wrong, "" for nothing.

        A write that hangs is not waited for longer than PROBE_TIMEOUT_S, and not repeated.
        """
        if self._pending is None:
            if self._clock.monotonic() < self._next_at_s:
                return self.problem
            self._next_at_s = self._clock.monotonic() + PROBE_INTERVAL_S
            try:
                self._pending = asyncio.wrap_future(store.probe_disk())
            except StoreError as exc:  # it was closed, as after a disk failure
                self.problem = exc.message
                return self.problem
            self._pending.add_done_callback(self._end)
        pending = self._pending
        await asyncio.wait([pending], timeout=PROBE_TIMEOUT_S)
        if not pending.done():
            self.problem = f"a write takes longer than {PROBE_TIMEOUT_S:.0f} s"
        return self.problem

    def _end(self, done: asyncio.Future[None]) -> None:
        self._pending = None
        error = None if done.cancelled() else done.exception()
        self.problem = str(error) if error else ""


async def collect_health(
    services: GatewayServices, monitor: LoopMonitor, disk_problem: str = ""
) -> dict[str, Json]:
    """Return counts and the newest sessions, without reading transcripts or calling services.

    It is not `ok` while, and for a minute after, the event loop was blocked, and while the disk
    cannot be written.
    """
    started = services.clock.monotonic()
    config = services.loaded.config
    default = default_agent_id(config)
    rows = [
        await _agent(services, agent, is_default=agent == default) for agent in agent_ids(config)
    ]
    own = next(row for row in rows if row["isDefault"])
    return {
        "ok": not monitor.is_stalled and not disk_problem,
        "ts": services.clock.now_ms(),
        "durationMs": round((services.clock.monotonic() - started) * 1000),
        **_channels(services),
        "heartbeatSeconds": round((own["heartbeat"]["everyMs"] or 0) / 1000),
        "defaultAgentId": default,
        "agents": rows,
        "sessions": own["sessions"],
        "loop": loop_lag(monitor),
        "disk": {"ok": not disk_problem, **({"problem": disk_problem} if disk_problem else {})},
    }


def _channels(services: GatewayServices) -> dict[str, Json]:
    """Return every channel and its accounts, as of the last probe."""
    status = encode_channels_status(services, {}, services.clock.now_ms())
    for name, row in status["channels"].items():
        accounts = {each["accountId"]: each for each in status["channelAccounts"][name]}
        status["channels"][name] = {**row, "accounts": accounts}
    return {key: status[key] for key in ("channels", "channelOrder", "channelLabels")}


def loop_lag(monitor: LoopMonitor) -> dict[str, Json]:
    """Return the lag of the event loop in the last minutes, and how often it was blocked."""
    return {
        "lagP99Ms": round(monitor.p99_lag_ms, 1),
        "lagMaxMs": round(monitor.max_lag_ms, 1),
        "stalls": monitor.stalls,
    }


def heartbeat_status(services: GatewayServices, agent: str) -> dict[str, Json]:
    """Return an agent's heartbeat as `status` shows it."""
    heartbeats = services.heartbeats
    settings = heartbeats.settings_of(agent)
    is_on = settings.is_enabled and heartbeats.is_switched_on
    return {
        "enabled": is_on,
        "every": settings.every if is_on else "disabled",
        "everyMs": settings.every_ms if is_on else None,
    }


def _heartbeat(services: GatewayServices, agent: str) -> dict[str, Json]:
    settings = services.heartbeats.settings_of(agent)
    return {
        **heartbeat_status(services, agent),
        "prompt": settings.prompt or DEFAULT_PROMPT,
        "target": settings.target,
        **({"model": settings.model} if settings.model else {}),
        "ackMaxChars": settings.ack_max_chars,
    }


async def _agent(services: GatewayServices, agent: str, *, is_default: bool) -> dict[str, Json]:
    now_ms = services.clock.now_ms()
    records = await services.store.sessions(agent=agent, limit=_RECENT)
    return {
        "agentId": agent,
        "isDefault": is_default,
        "heartbeat": _heartbeat(services, agent),
        "sessions": {
            "path": index_path(services, agent),
            "count": await services.store.count_sessions(agent=agent),
            "recent": [
                {"key": r.key, "updatedAt": r.updated_ms, "age": now_ms - r.updated_ms}
                for r in records
            ],
        },
    }
