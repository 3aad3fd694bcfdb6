"""The tools for approvals, with the names of OpenClaw's MCP server."""

from typing import Annotated, Literal

from pydantic import Field

from homarus.core.message import Json
from homarus.gateway.mcp_server.served_tool import GatewayCalls, ServedToolArguments, served_tool


class NoToolArguments(ServedToolArguments):
    """The arguments of a tool without any."""


@served_tool(NoToolArguments, methods=("exec.approval.list",), scope="approvals")
async def permissions_list_open(gateway: GatewayCalls, _asked: NoToolArguments, _key: str) -> Json:
    """List the agents' tool calls that wait for a person's approval, oldest first."""
    pending = await gateway.call("exec.approval.list", {})
    return {"approvals": [{"kind": "exec", **each} for each in pending]}


class PermissionRespondArguments(ServedToolArguments):
    """An approval and the decision."""

    kind: Literal["exec"] = "exec"
    id: Annotated[str, Field(min_length=1, max_length=256)]
    decision: Literal["allow-once", "allow-always", "deny"]


@served_tool(
    PermissionRespondArguments,
    methods=("exec.approval.resolve",),
    scope="approvals",
    is_read_only=False,
)
async def permissions_respond(
    gateway: GatewayCalls, asked: PermissionRespondArguments, _key: str
) -> Json:
    """Allow or deny a tool call that waits. Only as the user of this client has decided."""
    params = {"id": asked.id, "decision": asked.decision}
    await gateway.call("exec.approval.resolve", params)
    return {"ok": True, **params}
