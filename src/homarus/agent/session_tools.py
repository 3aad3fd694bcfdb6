"""The tools `sessions_list`, `sessions_history`, `sessions_send` and `agents_list`.

Which sessions they reach is decided by `policy.session_reach`, what they return is made by
`session_listing`, and what happens to a sent message is `exchange.session_exchanges`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field

from homarus.policy.audience import session_readers
from homarus.policy.tool_call import Effect
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:  # imported by the first call
    from homarus.agent.exchange.session_exchanges import SessionExchanges

SessionKind: TypeAlias = Literal["main", "group", "cron", "hook", "node", "other"]
GetExchanges: TypeAlias = "Callable[[], SessionExchanges]"

MAX_ROWS: Final = 200
MAX_MESSAGES: Final = 20
DEFAULT_ROWS: Final = 50


def session_tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tools for an agent that has sessions."""
    get = context.get_exchanges
    return [_list_tool(get), _history_tool(get), _send_tool(get), _agents_tool(get)] if get else []


def _bounded(given: int | None, low: int, high: int, default: int) -> int:
    """Return a number within its limits, which are not in the schema: every request has that."""
    return default if given is None else max(low, min(given, high))


def _list_tool(get_exchanges: GetExchanges) -> Tool:
    @tool(group="sessions", idempotent=True)
    async def sessions_list(
        ctx: ToolContext,
        kinds: list[SessionKind] | None = None,
        limit: int | None = None,
        active_minutes: Annotated[int | None, Field(validation_alias="activeMinutes")] = None,
        message_limit: Annotated[int | None, Field(validation_alias="messageLimit")] = None,
    ) -> ToolOutput:
        """List sessions, newest first."""
        from homarus.agent.session_listing import ListRequest, list_sessions

        request = ListRequest(
            frozenset(kinds or ()),
            _bounded(limit, 1, MAX_ROWS, DEFAULT_ROWS),
            max(0, active_minutes or 0),
            _bounded(message_limit, 0, MAX_MESSAGES, 0),
        )
        return await list_sessions(get_exchanges().services, ctx, request)

    return sessions_list


def _history_tool(get_exchanges: GetExchanges) -> Tool:
    @tool(group="sessions", idempotent=True)
    async def sessions_history(
        ctx: ToolContext,
        *,
        session_key: Annotated[str, Field(validation_alias="sessionKey")],
        limit: int | None = None,
        include_tools: Annotated[bool, Field(validation_alias="includeTools")] = False,
    ) -> ToolOutput:
        """Read the last messages of a session."""
        from homarus.agent.session_listing import read_history

        services = get_exchanges().services
        rows = _bounded(limit, 1, MAX_ROWS, DEFAULT_ROWS)
        return await read_history(
            services, ctx, session_key, limit=rows, include_tools=include_tools
        )

    return sessions_history


def _send_tool(get_exchanges: GetExchanges) -> Tool:
    async def find_effects(ctx: ToolContext, **given: object) -> frozenset[Effect]:
        """Return `send` for a session whose readers are others: they may be told what is sent."""
        from homarus.agent.exchange.sending import SendRequest, find_target

        request = SendRequest.from_arguments(given)
        key = await find_target(get_exchanges(), ctx, request)
        is_others = session_readers(key) in {"others", "person"}
        return frozenset({"send"} if is_others else ())

    # A call that is run again has the same id, and its message is accepted once.
    @tool(group="sessions", idempotent=True, timeout_s=None, effects=find_effects)
    async def sessions_send(
        ctx: ToolContext,
        *,
        message: str,
        session_key: Annotated[str | None, Field(validation_alias="sessionKey")] = None,
        label: str | None = None,
        agent_id: Annotated[
            str | None, Field(validation_alias="agentId", description="Alone: its main session")
        ] = None,
        timeout_seconds: Annotated[
            int,
            Field(validation_alias="timeoutSeconds", ge=0, le=3600, description="0: do not wait"),
        ] = 30,
    ) -> ToolOutput:
        """Send a message to another session and wait for its answer."""
        from homarus.agent.exchange.sending import SendRequest, send_message

        request = SendRequest(
            message, session_key or "", label or "", agent_id or "", timeout_seconds
        )
        return await send_message(get_exchanges(), ctx, request)

    return sessions_send


def _agents_tool(get_exchanges: GetExchanges) -> Tool:
    @tool(group="", idempotent=True)
    async def agents_list(ctx: ToolContext) -> ToolOutput:
        """List the agents you may write to or start."""
        from homarus.agent.session_listing import list_agents

        return list_agents(get_exchanges().services, ctx)

    return agents_list
