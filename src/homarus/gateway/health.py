"""The health summary that `health` returns and that clients receive every minute."""

from homarus.config.resolve import agents, default_agent
from homarus.core.message import Json
from homarus.core.pulse import Pulse
from homarus.gateway.lines import describe
from homarus.gateway.rows import index_path
from homarus.gateway.services import GatewayServices

FRESH_MS = 60_000
_RECENT = 5


async def look(host: GatewayServices, pulse: Pulse) -> dict[str, Json]:
    """Return counts and the newest sessions, without reading transcripts or calling services.

    It is not `ok` while, and for a minute after, the event loop was blocked.
    """
    started = host.clock.monotonic()
    config = host.loaded.config
    default = default_agent(config)
    rows = [await _agent(host, agent, is_default=agent == default) for agent in agents(config)]
    own = next(row for row in rows if row["isDefault"])
    return {
        "ok": not pulse.is_red,
        "ts": host.clock.now_ms(),
        "durationMs": round((host.clock.monotonic() - started) * 1000),
        **_channels(host),
        "heartbeatSeconds": 0,
        "defaultAgentId": default,
        "agents": rows,
        "sessions": own["sessions"],
        "loop": loop_figures(pulse),
    }


def _channels(host: GatewayServices) -> dict[str, Json]:
    """Return every channel and its accounts, as of the last probe."""
    told = describe(host, {}, host.clock.now_ms())
    for name, row in told["channels"].items():
        accounts = {each["accountId"]: each for each in told["channelAccounts"][name]}
        told["channels"][name] = {**row, "accounts": accounts}
    return {key: told[key] for key in ("channels", "channelOrder", "channelLabels")}


def loop_figures(pulse: Pulse) -> dict[str, Json]:
    """Return the lag of the event loop in the last minutes, and how often it was blocked."""
    return {
        "lagP99Ms": round(pulse.p99_ms, 1),
        "lagMaxMs": round(pulse.max_ms, 1),
        "stalls": pulse.stalls,
    }


def heartbeat() -> dict[str, Json]:
    """Return an agent's heartbeat as `status` shows it; none is implemented yet."""
    return {"enabled": False, "every": "disabled", "everyMs": None}


async def _agent(host: GatewayServices, agent: str, *, is_default: bool) -> dict[str, Json]:
    now_ms = host.clock.now_ms()
    records = await host.store.sessions(agent=agent, limit=_RECENT)
    return {
        "agentId": agent,
        "isDefault": is_default,
        "heartbeat": {**heartbeat(), "prompt": "", "target": "last", "ackMaxChars": 30},
        "sessions": {
            "path": index_path(host, agent),
            "count": await host.store.count_sessions(agent=agent),
            "recent": [
                {"key": r.key, "updatedAt": r.updated_ms, "age": now_ms - r.updated_ms}
                for r in records
            ],
        },
    }
