"""`/tools/invoke`: call one tool of an agent, without a model, by the policy of a session.

What OpenClaw's endpoint allows by default is narrower here: tools that run commands, schedule or
steer other runs are refused too, unless `gateway.tools.allow` names them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from homarus.config.gateway_schema import HttpToolsConfig
from homarus.core.errors import ToolError, UnavailableError, UnknownNameError, UserError
from homarus.core.message import DIRECT, Address, Image, Inbound, InboundMetadata, Json, ToolResult
from homarus.core.text import one_line
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.application import json_response
from homarus.gateway.http_api.endpoint import (
    KEY_HEADER,
    MIB,
    ApiCall,
    ApiHeader,
    ApiRequest,
    ApiResponse,
    EndpointLimits,
    api_endpoint,
)
from homarus.gateway.http_api.request_key import RequestKey
from homarus.gateway.http_api.request_log import RequestLog
from homarus.gateway.run_request import resolve_session_key
from homarus.policy.tool_policy import ToolRules, find_match

if TYPE_CHECKING:
    from starlette.responses import Response

    from homarus.agent.direct_calls import DirectCall, DirectCallOutcome, DirectCalls
    from homarus.gateway.server import Gateway
    from homarus.policy.tool_call import ToolDecision
    from homarus.store.base import Transaction
    from homarus.tools.tool import Tool

CHANNEL_HEADER: Final = "x-openclaw-message-channel"
ACCOUNT_HEADER: Final = "x-openclaw-account-id"
# OpenClaw's list, and what is as dangerous: commands, jobs, sub-agents, devices.
DENIED_BY_DEFAULT: Final = (
    "sessions_spawn", "sessions_send", "gateway", "whatsapp_login",
    "exec", "process", "cron", "subagents", "nodes",
)  # fmt: skip
APPROVAL_WAIT_S: Final = 120.0
MAX_LIVE: Final = 32  # calls that are executed
_CHANNEL: Final = "webchat"


class ToolInvokeRequest(ApiRequest):
    """A call of a tool. `action` is its argument of this name, if it has one.

    Without `sessionKey`, or with `main`, it is made in the main session of the default agent. With
    `dryRun` the answer is what the policy says, and nothing is run.
    """

    # A misspelt `dryRun` must not run the tool.
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    tool: Annotated[str, Field(min_length=1, max_length=200, examples=["session_status", "ls"])]
    action: Annotated[str, Field(max_length=200)] | None = None
    args: Annotated[dict[str, Any], Field(max_length=1_000)] = Field(default_factory=dict)
    session_key: Annotated[str | None, Field(alias="sessionKey", max_length=512)] = None
    dry_run: Annotated[bool, Field(alias="dryRun")] = False


class ToolInvokeResponse(ApiResponse):
    """The result of a call: its content, and details for programs."""

    ok: Literal[True] = True
    result: dict[str, Any]


def shape_tool_error(error: ApiError) -> dict[str, Json]:
    """Return the body of an error as clients of OpenClaw's endpoint read it."""
    kinds = {401: "unauthorized", 404: "not_found", 429: "rate_limited"}
    kind = "invalid_request" if error.kind == "invalid_request_error" else error.kind
    shown: dict[str, Json] = {"type": kinds.get(error.status, kind), "message": str(error)}
    return {"ok": False, "error": {**shown, **({"code": error.reason} if error.reason else {})}}


@api_endpoint(
    "POST",
    "/tools/invoke",
    scope="write",
    request=ToolInvokeRequest,
    response=ToolInvokeResponse,
    limits=EndpointLimits(lambda _endpoints: 2 * MIB),
    headers=(
        KEY_HEADER,
        ApiHeader(CHANNEL_HEADER, "A chat service whose rules must allow the call too"),
        ApiHeader(ACCOUNT_HEADER, "The account of that chat service"),
    ),
    errors=(404, 409, 500),
    shape_error=shape_tool_error,
)
async def invoke_tool(call: ApiCall, body: ToolInvokeRequest) -> "dict[str, Json] | Response":
    """Call one tool of an agent, if the policy of the session allows it.

    With an Idempotency-Key a call is carried out once, also when the gateway restarts in between.
    """
    invocations = call.part(ToolInvocations)
    if body.dry_run:
        return await invocations.preview(call, body)
    key = call.request_key
    if key is None:
        answer = await invocations.invoke(call, body, None)
    else:
        answer = await invocations.invoke_once(call, body, key)
    return json_response(answer["body"], answer["status"])


class ToolInvocations:
    """The calls of tools by clients of one gateway.

    An answer is what the request log keeps: `status` and `body` of the response.
    """

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._live = 0
        self._by_key: dict[str, tuple[str, asyncio.Future[dict[str, Json]]]] = {}

    async def preview(self, call: ApiCall, body: ToolInvokeRequest) -> dict[str, Json]:
        """Return what the policy says about a call."""
        calls = self._direct_calls()
        try:
            decision = await calls.preview(self._direct_call(call, body, None))
        except (ToolError, UserError) as exc:
            raise _as_tool_error(exc) from None
        return {"ok": True, "dryRun": True, "result": _describe(body.tool, decision)}

    async def invoke_once(
        self, call: ApiCall, body: ToolInvokeRequest, key: RequestKey
    ) -> dict[str, Json]:
        """Call the tool unless a request with the same key did; then return its answer."""
        if live := self._by_key.get(key.id):
            key.check_same(live[0])
            return await asyncio.shield(live[1])
        future: asyncio.Future[dict[str, Json]] = asyncio.get_running_loop().create_future()
        self._by_key[key.id] = key.digest, future
        try:
            answer = await call.part(RequestLog).find(key)
            answer = answer or await self.invoke(call, body, key)
            future.set_result(answer)
        except BaseException as exc:
            future.set_exception(_for_others(exc))
            future.exception()  # another request need not wait for it
            raise
        finally:
            del self._by_key[key.id]
        return answer

    async def invoke(
        self, call: ApiCall, body: ToolInvokeRequest, key: RequestKey | None
    ) -> dict[str, Json]:
        """Call the tool and return the answer; raises ApiError for what cannot be called."""
        if self._live >= MAX_LIVE:
            raise ApiError(503, "too many calls of tools at once", after_s=1)
        self._live += 1
        try:
            outcome = await self._direct_calls().run(self._direct_call(call, body, key))
        except (ToolError, UserError) as exc:
            raise _as_tool_error(exc) from None
        finally:
            self._live -= 1
        error = _find_error(outcome)
        body_json: Json = {"ok": True, "result": encode_result(outcome.result)}
        answer: dict[str, Json] = {
            "status": error.status if error else 200,
            "body": shape_tool_error(error) if error else body_json,
        }
        if key is not None and outcome.was_started:
            await call.part(RequestLog).record_end(key, answer)
        return answer

    def _direct_calls(self) -> "DirectCalls":
        get = self._gateway.services.get_direct_calls
        if get is None:
            raise UnavailableError("tools cannot be called here")
        return get()

    def _direct_call(
        self, call: ApiCall, body: ToolInvokeRequest, key: RequestKey | None
    ) -> "DirectCall":
        from homarus.agent.direct_calls import DirectCall

        log = call.part(RequestLog)
        config = call.services.loaded.config.gateway.tools

        def on_start(transaction: "Transaction") -> None:
            if key is not None:
                log.record_start(transaction, key)

        session_key = resolve_session_key(call.method_call, body.session_key or None)
        return DirectCall(
            session_key,
            body.tool,
            {"action": body.action, **body.args} if body.action else body.args,
            _inbound(call, session_key),
            APPROVAL_WAIT_S,
            chat=_named_chat(call),
            get_rules=lambda tool: http_rules(tool, config),
            on_start=on_start,
            # A client with a key may come back for the answer.
            wait_gone=None if key else _wait_gone(call),
        )


def http_rules(tool: "Tool", config: HttpToolsConfig) -> Sequence[ToolRules]:
    """Return the rule that refuses a tool to clients of HTTP; none for other tools."""
    declared = tool.declaration
    if find_match(declared, tuple(config.deny)):
        return (ToolRules(deny=(tool.name,), origin="gateway.tools.deny"),)
    is_denied = find_match(declared, DENIED_BY_DEFAULT)
    if is_denied and not find_match(declared, tuple(config.allow)):
        origin = "the tools that HTTP does not reach, unless gateway.tools.allow names them"
        return (ToolRules(deny=(tool.name,), origin=origin),)
    return ()


def encode_result(result: ToolResult) -> dict[str, Json]:
    """Return a tool's result as clients read it."""
    content: list[Json] = [
        {"type": "image", "data": part.data, "mimeType": part.mime}
        if isinstance(part, Image)
        else {"type": "text", "text": part.text}
        for part in result.content
    ]
    return {"content": content, "details": dict(result.details or {})}


def _inbound(call: ApiCall, session_key: str) -> Inbound:
    """Return the message that the call stands for: from the client, with its authority."""
    is_owner = call.caller.may("admin")
    return Inbound(
        id=f"http-{call.id}",
        address=Address(_CHANNEL, session_key),
        sender=call.caller.device_id or call.caller.client_id,
        text="",
        at_ms=call.services.clock.now_ms(),
        authority="owner" if is_owner else "authorised",
        metadata=DIRECT if is_owner else InboundMetadata(is_limited=True),
    )


def _named_chat(call: ApiCall) -> Address | None:
    """Return the chat service that the headers name; its rules only narrow what is allowed."""
    channel, account = call.header(CHANNEL_HEADER).lower(), call.header(ACCOUNT_HEADER)
    if not channel:
        if account:
            message = f"{ACCOUNT_HEADER} needs {CHANNEL_HEADER}"
            raise ApiError(400, message, param=ACCOUNT_HEADER)
        return None
    if channel not in call.services.loaded.config.channels:
        raise ApiError(400, f"there is no channel {one_line(channel, 40)!r}", param=CHANNEL_HEADER)
    return Address(channel, "", account)


def _wait_gone(call: ApiCall) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        while (await call.receive())["type"] != "http.disconnect":
            pass

    return wait


def _describe(tool: str, decision: "ToolDecision") -> dict[str, Json]:
    return {
        "tool": tool,
        "decision": decision.action,
        "reason": decision.reason,
        "layer": decision.layer,
    }


def _as_tool_error(exc: ToolError | UserError) -> ApiError:
    """Return the error of a call that was never decided: an unknown tool, a setting, arguments."""
    if isinstance(exc, UnknownNameError):
        return ApiError(404, exc.message, fix=exc.fix)
    return ApiError(400, exc.message, fix=exc.fix, kind="tool_error")


def _find_error(outcome: "DirectCallOutcome") -> ApiError | None:
    text = outcome.result.text
    match outcome.status:
        case "done":
            return None
        case "denied":
            return ApiError(404, f"Tool not available: {text}", reason="tool_denied")
        case "unapproved":
            return ApiError(403, text, kind="tool_error", reason="approval_required")
        case "failed":
            return ApiError(400, text, kind="tool_error")
        case "fault":
            return ApiError(500, text, kind="tool_error")


def _for_others(exc: BaseException) -> Exception:
    """Return what other requests with the same key get when the first one fails."""
    if isinstance(exc, Exception):
        return exc
    return UnavailableError("the earlier request with this Idempotency-Key was cut off")
