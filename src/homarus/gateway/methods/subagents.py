"""The `subagents.*` methods: list, inspect, message and stop sub-agents.

These methods are our own: clients of OpenClaw use `/subagents` and `sessions.list`.
"""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from homarus.core.errors import UnavailableError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name

if TYPE_CHECKING:
    from homarus.agent.subagents.control import ControlResult, SubagentControl

Target = Annotated[str, Field(min_length=1, max_length=500)]
Text = Annotated[str, Field(min_length=1, max_length=4_000)]


class SubagentListParams(Params):
    """Whose sub-agents, those of all sessions by default; and how long ended ones are listed."""

    session_key: Name | None = None
    recent_minutes: Annotated[int, Field(ge=1, le=1_440)] = 30


class SubagentParams(Params):
    """Which sub-agent: a number of the list, a label, the start of a run id or session key."""

    target: Target
    session_key: Name | None = None


class SubagentLogParams(SubagentParams):
    """Which sub-agent, how many messages, and whether tool calls are among them."""

    limit: Annotated[int, Field(ge=1, le=200)] = 20
    tools: bool = False


class SubagentMessageParams(SubagentParams):
    """Which sub-agent, and what to say."""

    message: Text
    idempotency_key: Name | None = None


class SubagentSendParams(SubagentMessageParams):
    """Which sub-agent, what to ask, and how long to wait for the answer."""

    timeout_seconds: Annotated[float, Field(ge=0, le=3_600)] = 30.0


@method("subagents.list", scope="read", params=SubagentListParams, advertised=False)
async def list_(call: MethodCall, params: SubagentListParams) -> Json:
    """The active sub-agents, and those that ended lately, numbered. Ours."""
    requester = _requester(call, params.session_key)
    rows = await _control(call).list_rows(requester, params.recent_minutes)
    return {"ts": call.services.clock.now_ms(), **rows}


@method("subagents.info", scope="read", params=SubagentParams, advertised=False)
async def info(call: MethodCall, params: SubagentParams) -> Json:
    """Everything that is known of a sub-agent, as fields and as text. Ours."""
    from homarus.agent.subagents.rows import subagent_row

    control = _control(call)
    record = await control.find(_requester(call, params.session_key), params.target)
    row = subagent_row(record, call.services.clock.now_ms())
    return {"subagent": row, "text": await control.describe(record)}


@method("subagents.log", scope="read", params=SubagentLogParams, advertised=False)
async def log(call: MethodCall, params: SubagentLogParams) -> Json:
    """The newest messages of a sub-agent. Ours."""
    from homarus.agent.subagents.log import format_log

    control = _control(call)
    record = await control.find(_requester(call, params.session_key), params.target)
    lines = await control.read_log(record, params.limit, has_tools=params.tools)
    shown = [line.to_json() for line in lines]
    return {"sessionKey": record.child_key, "messages": shown, "text": format_log(lines)}


@method("subagents.kill", scope="write", params=SubagentParams, advertised=False)
async def kill(call: MethodCall, params: SubagentParams) -> Json:
    """Stop a sub-agent and those that it started, or `all`. Ours."""
    requester = _requester(call, params.session_key)
    return _shown(await _control(call).kill(requester, params.target))


@method("subagents.steer", scope="write", params=SubagentMessageParams, advertised=False)
async def steer(call: MethodCall, params: SubagentMessageParams) -> Json:
    """Have an active sub-agent go on with a message. Ours."""
    requester, seed = _requester(call, params.session_key), params.idempotency_key or ""
    return _shown(await _control(call).steer(requester, params.target, params.message, seed=seed))


@method("subagents.send", scope="write", params=SubagentSendParams, advertised=False)
async def send(call: MethodCall, params: SubagentSendParams) -> Json:
    """Ask a sub-agent something, also one that has ended, and wait for its answer. Ours."""
    result = await _control(call).send(
        _requester(call, params.session_key),
        params.target,
        params.message,
        timeout_s=params.timeout_seconds,
        seed=params.idempotency_key or "",
    )
    return _shown(result)


def _control(call: MethodCall) -> "SubagentControl":
    if call.services.subagents is None:
        raise UnavailableError("there are no sub-agents here")
    return call.services.subagents.control()


def _requester(call: MethodCall, key: str | None) -> str | None:
    return call.services.control.resolve_key(key) if key else None


def _shown(result: "ControlResult") -> dict[str, Json]:
    return {**result.details, "text": result.text}
