"""`policy.*`: what the rules say about the tool calls of a session, without a run."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from homarus.channels.registry import find_traits
from homarus.core.errors import InvalidRequestError, UserError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name

if TYPE_CHECKING:
    from homarus.agent.policy_explanation import PolicyExplanation


class PolicyListParams(Params):
    """The session, by default an agent's main one; and a sender, without which it is the owner."""

    session_key: Name | None = None
    agent_id: Name | None = None
    channel: Name | None = None
    sender: Name | None = None


class PolicyExplainParams(PolicyListParams):
    """The call that is explained: a tool and, where they matter, its arguments."""

    tool: Name
    model: Name | None = None
    args: Annotated[dict[str, Any], Field(max_length=64)] | None = None


@method("policy.explain", scope="admin", params=PolicyExplainParams, advertised=False)
async def explain(call: MethodCall, params: PolicyExplainParams) -> Json:
    """What every layer of the policy says about a tool call, and which one decides. Ours."""
    from homarus.agent.policy_explanation import encode_explanation

    return encode_explanation(await _explain(call, params, params.tool, params.args, params.model))


@method("policy.list", scope="admin", params=PolicyListParams, advertised=False)
async def list_(call: MethodCall, params: PolicyListParams) -> Json:
    """What the policy says about a call of each tool, without its arguments. Ours."""
    from homarus.tools.catalog import builtin_tools

    rows: list[Json] = []
    for tool in builtin_tools():
        found = await _explain(call, params, tool.declaration.name)
        rows.append(
            {
                "tool": found.tool.name,
                "action": found.decision.action,
                "layer": found.decision.layer,
                "reason": found.decision.reason,
            }
        )
    key = call.services.control.resolve_key(params.session_key, params.agent_id)
    return {"sessionKey": key, "tools": rows}


async def _explain(
    call: MethodCall,
    params: PolicyListParams,
    tool: str,
    args: dict[str, Json] | None = None,
    model: str | None = None,
) -> "PolicyExplanation":
    from homarus.agent.policy_explanation import PolicyQuestion, explain_tool_call

    services = call.services
    key = services.control.resolve_key(params.session_key, params.agent_id)
    record = await services.store.session(key)
    question = PolicyQuestion(
        tool,
        key,
        dict(record.data) if record else {},
        (params.channel or "").lower(),
        params.sender or "",
        model or "",
        args,
    )
    try:
        return await explain_tool_call(
            services.loaded.config, services.paths, question, find_traits
        )
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from None
