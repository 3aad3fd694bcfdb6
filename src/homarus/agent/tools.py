"""The tool `session_status`: what `/status` shows, and the model of a session.

A session sees its own status, and that of the sessions that its tools reach
(`policy.session_reach`). The other tools about sessions are in `session_tools.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from homarus.agent.session_lookup import check_reached, reach_of
from homarus.agent.session_tools import session_tools
from homarus.agent.subagents.control_tool import make_subagents_tool
from homarus.config.change_log import changes_by
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.message import Address, Inbound, Json, Text
from homarus.core.text import one_line
from homarus.policy.tool_call import Effect
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:  # imported by the first command
    from homarus.agent.commands.context import AgentCommandContext
    from homarus.agent.commands.dispatcher import CommandDispatcher

_CURRENT: Final = frozenset({"", "current", "self"})


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tools for an agent that has sessions."""
    found = [*session_tools(context)]
    if context.get_commands:
        found.append(_session_status_tool(context, context.get_commands))
    if context.get_subagents:
        found.append(make_subagents_tool(context.get_subagents))
    return found


def _session_status_tool(
    source: ToolSourceContext, get_commands: "Callable[[], CommandDispatcher]"
) -> Tool:

    async def find_effects(
        _ctx: ToolContext, *, model: str | None = None, **_others: object
    ) -> frozenset[Effect]:
        return frozenset({"config"} if model else ())

    @tool(group="sessions", idempotent=True, effects=find_effects)
    async def session_status(
        ctx: ToolContext,
        session_key: Annotated[
            str | None, Field(validation_alias="sessionKey", description="Default: this")
        ] = None,
        model: Annotated[str | None, Field(description="Set its model; default clears it")] = None,
    ) -> ToolOutput:
        """Time now, model, context size, usage, cost, queue and sandbox of a session."""
        dispatcher = get_commands()
        key = _resolve_key(dispatcher, ctx, session_key or "")
        await check_reached(ctx.sessions, reach_of(source.config, ctx), key)
        context = await _make_context(dispatcher, ctx, key)
        changed = await _set_model(context, ctx, model.strip()) if model else ""
        from homarus.agent.commands.status_card import status_card

        card = await status_card(context)
        text = f"{changed}\n{card}" if changed else card
        details: dict[str, Json] = {"ok": True, "sessionKey": key, "changedModel": bool(changed)}
        return ToolOutput((Text(text),), details)

    return session_status


def _resolve_key(dispatcher: "CommandDispatcher", ctx: ToolContext, name: str) -> str:
    if name.strip().lower() in _CURRENT:
        return ctx.session_key
    return dispatcher.control.resolve_key(name, ctx.agent)


async def _make_context(
    dispatcher: "CommandDispatcher", ctx: ToolContext, key: str
) -> "AgentCommandContext":
    """Return the context of a command that the senders of this run would give in a session."""
    caller = ctx.caller
    inbound = Inbound(
        ctx.message_id,
        ctx.here or Address("", ""),
        caller.sender,
        "",
        authority="owner" if caller.is_owner else "authorised",
    )
    if key != ctx.session_key:
        from homarus.sessions.last_route import last_address

        record = await ctx.sessions.session(key) if ctx.sessions else None
        if record is None:
            raise ToolError(f"there is no session {one_line(key, 120)}", fix="leave sessionKey out")
        inbound = replace(inbound, address=last_address(record.data))
    return dispatcher.make_context(key, inbound)


async def _set_model(context: "AgentCommandContext", ctx: ToolContext, name: str) -> str:
    """Set the model as `/model` does; return what it says about that."""
    from homarus.agent.commands.models import model as command

    if not context.is_owner:
        raise ToolDeniedError("session_status denied: the owner alone sets the model by a tool")
    if name.lower() in {"list", "status"}:
        raise ToolError(f"{name} is not a model", fix="give provider/model, an alias or default")
    sender = f"{context.inbound.address.channel}:{context.inbound.sender}"
    with changes_by(f"agent {ctx.agent} for {sender}"):
        reply = await command(replace(context, args=name))
        await (await context.session()).update(**reply.fields)
    return reply.text
