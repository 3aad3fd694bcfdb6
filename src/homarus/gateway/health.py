"""The health summary that `health` returns and that clients receive every minute."""

from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.core.loop_monitor import LoopMonitor
from homarus.core.message import Json
from homarus.gateway.channel_status import encode_channels_status
from homarus.gateway.services import GatewayServices
from homarus.gateway.session_rows import index_path

FRESH_MS = 60_000
_RECENT = 5


async def collect_health(services: GatewayServices, monitor: LoopMonitor) -> dict[str, Json]:
    """Return counts and the newest sessions, without reading transcripts or calling services.

    It is not `ok` while, and for a minute after, the event loop was blocked.
    """
    started = services.clock.monotonic()
    config = services.loaded.config
    default = default_agent_id(config)
    rows = [
        await _agent(services, agent, is_default=agent == default) for agent in agent_ids(config)
    ]
    own = next(row for row in rows if row["isDefault"])
    return {
        "ok": not monitor.is_stalled,
        "ts": services.clock.now_ms(),
        "durationMs": round((services.clock.monotonic() - started) * 1000),
        **_channels(services),
        "heartbeatSeconds": 0,
        "defaultAgentId": default,
        "agents": rows,
        "sessions": own["sessions"],
        "loop": loop_lag(monitor),
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


def heartbeat_status() -> dict[str, Json]:
    """Return an agent's heartbeat as `status` shows it; none is implemented yet."""
    return {"enabled": False, "every": "disabled", "everyMs": None}


async def _agent(services: GatewayServices, agent: str, *, is_default: bool) -> dict[str, Json]:
    now_ms = services.clock.now_ms()
    records = await services.store.sessions(agent=agent, limit=_RECENT)
    return {
        "agentId": agent,
        "isDefault": is_default,
        "heartbeat": {**heartbeat_status(), "prompt": "", "target": "last", "ackMaxChars": 30},
        "sessions": {
            "path": index_path(services, agent),
            "count": await services.store.count_sessions(agent=agent),
            "recent": [
                {"key": r.key, "updatedAt": r.updated_ms, "age": now_ms - r.updated_ms}
                for r in records
            ],
        },
    }
