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
from homarus.gateway.session_rows import index_path, resolve_session_defaults, status_row
from homarus.schedule.heartbeat_request import HeartbeatRequest
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
    """Sessions, heartbeats, jobs, notices, lanes, sandboxes, and what is not built.

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
            "agents": [
                {"agentId": agent, **pictures.heartbeat_status(services, agent)} for agent in known
            ],
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
        "cron": await _cron_status(call),
        "notBuilt": {
            "count": len(call.gateway.unimplemented),
            "methods": sorted(call.gateway.unimplemented),
        },
        **({"hooks": hooks.encode()} if (hooks := call.gateway.hook_counters) else {}),
        **({"configProblem": why} if (why := call.gateway.config_problem) else {}),
    }


async def _cron_status(call: MethodCall) -> dict[str, Json]:
    """Return how many jobs there are and when the next is due; without jobs, nothing is loaded."""
    schedules = call.services.schedules
    if schedules is None or not await schedules.has_jobs():
        is_enabled = call.services.loaded.config.cron.enabled
        return {"enabled": is_enabled, "jobs": 0, "nextWakeAtMs": None}
    from homarus.schedule.cron_answers import encode_status

    found = encode_status(await schedules().status())
    return {name: found[name] for name in ("enabled", "jobs", "nextWakeAtMs")}


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
        services = call.services
        key, now_ms = services.control.resolve_key(), services.clock.now_ms()
        await services.notices.save(services.store, key, text, now_ms)
    return {"ok": True}


class WakeParams(Params):
    """A text and when to deliver it."""

    mode: Literal["now", "next-heartbeat"]
    text: MessageText


@method("wake", scope="write", params=WakeParams)
async def wake(call: MethodCall, params: WakeParams) -> Json:
    """Leave a notice for the main session; with `now`, a heartbeat takes it up at once.

    `delayedBy`, which OpenClaw does not have, says why no heartbeat takes it up now.
    """
    text, services = params.text.strip(), call.services
    if not text:
        return {"ok": False}
    key, now_ms = services.control.resolve_key(), services.clock.now_ms()
    await services.notices.save(services.store, key, text, now_ms, wake_mode=params.mode)
    if params.mode == "now":
        delay = services.heartbeats.find_delay(key)
        services.heartbeats.request(HeartbeatRequest("wake", session_key=key))
        return {"ok": True, **({"delayedBy": delay} if delay else {})}
    return {"ok": True}


@method("last-heartbeat", scope="read", params=NoParams)
async def last_heartbeat(call: MethodCall, _params: NoParams) -> Json:
    """The last heartbeat since the start, as its event had it; null if there was none."""
    last = call.services.heartbeats.last
    return dict(last) if last else None


class SwitchParams(Params):
    """Whether heartbeats run."""

    enabled: bool


@method("set-heartbeats", scope="admin", params=SwitchParams)
async def set_heartbeats(call: MethodCall, params: SwitchParams) -> Json:
    """Switch the heartbeats of all agents on or off; it holds across restarts."""
    await call.services.heartbeats.switch(is_on=params.enabled)
    return {"ok": True, "enabled": params.enabled}
