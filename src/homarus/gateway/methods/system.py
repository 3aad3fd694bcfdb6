"""Methods for health, presence, system events and wake-ups."""

from typing import Annotated, Literal

from pydantic import Field

from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.gateway import health as pictures
from homarus.gateway.channel_status import summary_lines
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import MessageText, Name, Names, Seconds
from homarus.gateway.run_request import RunRequest, start_run
from homarus.gateway.session_rows import index_path, resolve_session_defaults, status_row
from homarus.tools.sandbox.sandbox_status import encode_sandboxes

_RECENT = 10
_HIDDEN = "[hidden]"


class HealthParams(Params):
    """Whether to probe."""

    probe: bool = False


@method("health", scope="read", params=HealthParams)
async def health(call: MethodCall, params: HealthParams) -> Json:
    """How things are: sessions, agents, channels. At most a minute old, fresh with `probe`."""
    cached = call.gateway.health
    age_ms = call.services.clock.now_ms() - int(cached.get("ts", 0))
    monitor = call.gateway.monitor
    problem = await call.gateway.disk.check(call.services.store)
    same = cached.get("ok") is (not monitor.is_stalled and not problem)
    if cached and same and not params.probe and 0 <= age_ms < pictures.FRESH_MS:
        return dict(cached)
    found = await pictures.collect_health(call.services, monitor, problem)
    call.gateway.update_health(found)
    return found


@method("status", scope="read", params=NoParams)
async def status(call: MethodCall, _params: NoParams) -> Json:
    """Sessions, heartbeats, notices, lanes, sandboxes, and what is not built.

    Paths are for admins. A sandbox that was not measured yet has no level.
    """
    services, config = call.services, call.services.loaded.config
    known, default = agent_ids(config), default_agent_id(config)
    by_agent = [await _sessions_of(call, agent) for agent in known]
    recent = sorted(
        (row for one in by_agent for row in one["recent"]), key=lambda row: -row["updatedAt"]
    )
    defaults = await resolve_session_defaults(services)
    paths = [one["path"] for one in by_agent]
    notices = call.services.notices.pending(services.control.resolve_key(agent=default))
    return {
        "heartbeat": {
            "defaultAgentId": default,
            "agents": [{"agentId": agent, **pictures.heartbeat_status()} for agent in known],
        },
        "channelSummary": summary_lines(services.channels.status()),
        "queuedSystemEvents": [notice.text for notice in notices],
        "sessions": {
            "paths": paths if call.caller.may("admin") else [],
            "count": sum(one["count"] for one in by_agent),
            "defaults": {"model": defaults.model, "contextTokens": defaults.window},
            "recent": recent[:_RECENT],
            "byAgent": by_agent,
        },
        "loop": pictures.loop_lag(call.gateway.monitor),
        "lanes": {
            name: {"active": inside, "waiting": waiting, "width": width}
            for name, (inside, waiting, width) in services.lanes.snapshot().items()
        },
        "sandboxes": encode_sandboxes(config, services.find_sandbox_report),
        "notBuilt": {
            "count": len(call.gateway.unimplemented),
            "methods": sorted(call.gateway.unimplemented),
        },
        **({"configProblem": why} if (why := call.gateway.config_problem) else {}),
    }


async def _sessions_of(call: MethodCall, agent: str) -> dict[str, Json]:
    services = call.services
    defaults, now_ms = await resolve_session_defaults(services, agent), services.clock.now_ms()
    records = await services.store.sessions(agent=agent, limit=_RECENT)
    return {
        "agentId": agent,
        "path": index_path(services, agent) if call.caller.may("admin") else _HIDDEN,
        "count": await services.store.count_sessions(agent=agent),
        "recent": [status_row(record, defaults, now_ms) for record in records],
    }


@method("system-presence", scope="read", params=NoParams)
async def presence(call: MethodCall, _params: NoParams) -> Json:
    """Who is connected, or was a moment ago."""
    return call.gateway.presence.entries()


class EventParams(Params):
    """A system event and its target."""

    text: Annotated[str, Field(min_length=1, max_length=10_000)]
    device_id: Name | None = None
    instance_id: Name | None = None
    host: Name | None = None
    ip: Name | None = None
    mode: Name | None = None
    version: Name | None = None
    platform: Name | None = None
    device_family: Name | None = None
    model_identifier: Name | None = None
    last_input_seconds: Seconds | None = None
    reason: Name | None = None
    roles: Names | None = None
    scopes: Names | None = None
    tags: Names | None = None


@method("system-event", scope="admin", params=EventParams)
async def event(call: MethodCall, params: EventParams) -> Json:
    """Tell of a device (`Node: …`), which is then listed, or leave a notice for the agent."""
    text = params.text.strip()
    if not text:
        raise InvalidRequestError("text required")
    if text.startswith("Node:"):
        who = params.device_id or params.instance_id or params.host or params.ip or text
        call.gateway.presence.update(who, params.model_dump(by_alias=True, exclude_none=True))
        call.gateway.broadcast_presence()
    else:
        call.services.notices.add(
            call.services.control.resolve_key(), text, call.services.clock.now_ms()
        )
    return {"ok": True}


class WakeParams(Params):
    """A text and when to deliver it."""

    mode: Literal["now", "next-heartbeat"]
    text: MessageText


@method("wake", scope="write", params=WakeParams)
async def wake(call: MethodCall, params: WakeParams) -> Json:
    """Leave a notice for the main session; with `now`, the agent is asked about it at once."""
    if not params.text.strip():
        return {"ok": False}
    key = call.services.control.resolve_key()
    call.services.notices.add(key, params.text, call.services.clock.now_ms())
    if params.mode == "now":
        await start_run(call, RunRequest(key, "", channel="wake"))
    return {"ok": True}


@method("last-heartbeat", scope="read", params=NoParams)
async def last_heartbeat(_call: MethodCall, _params: NoParams) -> Json:
    """The last heartbeat; none has happened."""
    return None
