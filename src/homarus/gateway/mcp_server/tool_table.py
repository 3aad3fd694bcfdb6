"""Every tool that MCP clients may call, by name, and the one way to list and call them."""

import json
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from homarus.core.errors import InvalidRequestError, UnknownNameError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line
from homarus.gateway.mcp_server import approval_tools, conversation_tools, session_tools
from homarus.gateway.mcp_server.served_tool import GatewayCalls, ServedTool

MAX_RESULT_CHARS: Final = 400_000
TOOLS: Final[Mapping[str, ServedTool]] = {
    each.name: each
    for module in (conversation_tools, session_tools, approval_tools)
    for each in vars(module).values()
    if isinstance(each, ServedTool)
}


def allowed_tools(scopes: frozenset[str]) -> list[ServedTool]:
    """Return the tools that a client with these scopes may call."""
    return [tool for tool in TOOLS.values() if tool.is_allowed(scopes)]


async def call_served_tool(
    gateway: GatewayCalls, name: str, arguments: Mapping[str, Json]
) -> tuple[Json, str]:
    """Call a tool and return its result, also as JSON text; raises HomarusError."""
    tool = TOOLS.get(name)
    if tool is None:
        known = [each.name for each in allowed_tools(gateway.scopes)]
        raise UnknownNameError("tool", one_line(name, 80), closest_names(name, known))
    result = await tool.call(gateway, arguments, f"mcp-{uuid4().hex}")
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_RESULT_CHARS:
        raise InvalidRequestError(
            f"the result of {name} has {len(text)} characters", fix="ask for fewer or for less"
        )
    return result, text
