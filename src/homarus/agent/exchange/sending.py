"""Start an exchange for one call of `sessions_send`, and wait for the first answer."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from homarus.agent.exchange.session_exchanges import SessionExchanges, StepOutcome
from homarus.agent.exchange.texts import make_body, request_text
from homarus.agent.session_lookup import (
    check_exists,
    check_reached,
    find_labelled,
    reach_of,
    resolve_main,
    resolve_session,
)
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Text
from homarus.core.session_keys import agent_id_of, normalize_agent_id
from homarus.policy.sandbox_settings import is_sandboxed
from homarus.policy.tool_call import TaintSource
from homarus.sessions.send_policy import send_policy
from homarus.store.exchanges import MAX_HOPS, ExchangeRecord, count_hops, make_exchange_id
from homarus.tools.tool import ToolContext, ToolOutput

MAX_MESSAGE_CHARS: Final = 20_000
_LATER: Final = "its answer comes as a message when it is there"


@dataclass(frozen=True, slots=True)
class SendRequest:
    """The arguments of one call."""

    message: str
    session_key: str = ""
    label: str = ""
    agent: str = ""
    timeout_s: float = 30

    @classmethod
    def from_arguments(cls, given: Mapping[str, object]) -> "SendRequest":
        """Return the request of arguments by their Python names."""
        message, key, label, agent = (
            str(given.get(name) or "") for name in ("message", "session_key", "label", "agent_id")
        )
        return cls(message, key, label, agent)


async def find_target(exchanges: SessionExchanges, ctx: ToolContext, request: SendRequest) -> str:
    """Return the key of the session that a message is for. Raises ToolError."""
    services = exchanges.services
    if request.session_key.strip():
        key = await resolve_session(services, ctx, request.session_key)
    elif request.label.strip():
        reach = reach_of(services.get_config(), ctx)
        return await find_labelled(services.store, reach, request.label, request.agent)
    elif request.agent.strip():
        return resolve_main(services, request.agent)
    else:
        raise ToolError("no session is named", fix="give sessionKey, label or agentId")
    if request.agent.strip() and agent_id_of(key) != normalize_agent_id(request.agent):
        raise ToolError(f"session {key} is not of the agent {request.agent}", fix="drop agentId")
    return key


async def send_message(
    exchanges: SessionExchanges, ctx: ToolContext, request: SendRequest
) -> ToolOutput:
    """Send the message; the result says what became of it. Raises ToolError for a wrong call."""
    if not request.message.strip() or len(request.message) > MAX_MESSAGE_CHARS:
        raise ToolError(f"message needs 1 to {MAX_MESSAGE_CHARS} characters")
    key = await find_target(exchanges, ctx, request)
    if key == ctx.session_key:
        raise ToolError("that is this session", fix="answer here instead")
    record = _make_record(exchanges, ctx, key, request)
    base: dict[str, Json] = {"runId": record.first_run, "sessionKey": key}
    try:
        await _check_allowed(exchanges, ctx, key)
    except ToolDeniedError as exc:
        return _output({"status": "forbidden", "error": str(exc), "sessionKey": key}, is_error=True)
    await check_exists(exchanges.services.store, key)
    first = await exchanges.start(record)
    has_chat = await exchanges.find_chat(key) is not None
    base["delivery"] = {
        "status": "pending" if has_chat else "skipped",
        "mode": "announce" if has_chat else "none",
    }
    if not request.timeout_s or exchanges.is_waiting_for(key, ctx.session_key):
        return _output({**base, "status": "accepted", "note": _LATER})
    async with ctx.leave_lane():
        outcome = await exchanges.wait(record, first, request.timeout_s)
    if outcome is None:
        error = f"no answer after {request.timeout_s:g} s; {_LATER}"
        return _output({**base, "status": "timeout", "error": error})
    return _outcome_output(base, outcome)


def _outcome_output(base: dict[str, Json], outcome: StepOutcome) -> ToolOutput:
    if outcome.status == "ok":
        found = {**base, "status": "ok", "reply": outcome.reply}
        return _output(found, untrusted=outcome.untrusted)
    return _output({**base, "status": "error", "error": outcome.error}, is_error=True)


async def _check_allowed(exchanges: SessionExchanges, ctx: ToolContext, key: str) -> None:
    """Raise ToolDeniedError, with the setting, for a session that must not be written to."""
    services = exchanges.services
    config, store = services.get_config(), services.store
    await check_reached(store, reach_of(config, ctx), key)
    if _hops(ctx) > MAX_HOPS:
        raise ToolDeniedError(
            f"forbidden: sessions have written to each other {MAX_HOPS} times because of one"
            " message (session.agentToAgent.maxPingPongTurns)",
            fix="answer, and let a person decide",
        )
    record = await store.session(key)
    if send_policy(config.session.send_policy, key, record.data if record else None) == "deny":
        raise ToolDeniedError(f"forbidden: session.sendPolicy denies messages to {key}")


def _hops(ctx: ToolContext) -> int:
    return count_hops(ctx.run_id)


def _make_record(
    exchanges: SessionExchanges, ctx: ToolContext, key: str, request: SendRequest
) -> ExchangeRecord:
    """Return the exchange of this call: its id is the same when the call is run again."""
    config, caller, hops = exchanges.services.get_config(), ctx.caller, _hops(ctx)
    named = json.dumps([ctx.session_key, ctx.run_id, ctx.call_id, key, request.message])
    digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    leaves_sandbox = (caller.is_sandboxed or ctx.sandbox is not None) and not is_sandboxed(
        config, agent_id_of(key), key
    )
    is_limited = not caller.is_owner or leaves_sandbox
    is_untrusted = is_limited or bool(ctx.get_taint())
    body = make_body(request.message, ctx.session_key, is_untrusted=is_untrusted)
    turns = config.session.agent_to_agent.max_ping_pong_turns
    return ExchangeRecord(
        make_exchange_id(hops, digest),
        ctx.session_key,
        key,
        request_text(ctx.session_key, body),
        request.message,
        source_run=ctx.run_id,
        source_channel=ctx.here.channel if ctx.here else "",
        max_step=max(0, min(turns, MAX_HOPS - hops)),
        is_limited=is_limited,
        is_untrusted=is_untrusted,
    )


def _output(
    found: dict[str, Json], *, is_error: bool = False, untrusted: TaintSource | None = None
) -> ToolOutput:
    text = json.dumps(found, ensure_ascii=False)
    details = {name: value for name, value in found.items() if name != "reply"}
    return ToolOutput((Text(text),), details, is_error=is_error, untrusted=untrusted)
