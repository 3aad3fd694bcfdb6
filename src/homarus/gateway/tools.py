"""The tool `gateway`: read and change the config, and restart the gateway. For the owner alone.

What the actions do is in `tool_actions.py`, which the first call imports.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import AliasChoices, Field

from homarus.policy.tool_call import Effect
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:
    from homarus.gateway.tool_actions import GatewayActions

GatewayActionName: TypeAlias = Literal[
    "restart", "config.get", "config.schema", "config.apply", "config.patch", "update.run"
]
_READING: Final = frozenset({"config.get", "config.schema", "update.run"})
_MAX_MS: Final = 600_000

Ms = Annotated[int, Field(ge=0, le=_MAX_MS)]


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool for an agent of a program with a config."""
    return [_gateway_tool(context.get_gateway)] if context.get_gateway else []


async def _find_effects(
    _ctx: ToolContext, *, action: GatewayActionName, **_others: object
) -> frozenset[Effect]:
    return frozenset() if action in _READING else frozenset({"config"})


def _gateway_tool(get_actions: "Callable[[], GatewayActions]") -> Tool:
    @tool(
        group="automation",
        aliases=("webhook_create",),
        owner_only=True,
        serial=True,
        effects=_find_effects,
    )
    async def gateway(
        ctx: ToolContext,
        *,
        action: GatewayActionName,
        path: Annotated[
            str | None, Field(description="Section for config.get and config.schema: agents.list")
        ] = None,
        raw: Annotated[str | None, Field(description="JSON5 of the patch or the config")] = None,
        base_hash: Annotated[
            str | None, Field(validation_alias="baseHash", description="hash of config.get")
        ] = None,
        session_key: Annotated[str | None, Field(validation_alias="sessionKey")] = None,
        note: Annotated[
            str | None,
            Field(
                validation_alias=AliasChoices("note", "reason"),
                description="For the person, after a restart",
            ),
        ] = None,
        delay_ms: Annotated[
            Ms | None, Field(validation_alias=AliasChoices("delayMs", "restartDelayMs"))
        ] = None,
    ) -> ToolOutput:
        """Read or change the config of this program, or restart it after your answer.

        config.patch merges (null removes); config.apply replaces all.
        """
        from homarus.gateway.tool_actions import GatewayRequest

        request = GatewayRequest(
            action, path or "", raw or "", base_hash, session_key or "", note or "", delay_ms
        )
        return await get_actions().run(ctx, request)

    return gateway
