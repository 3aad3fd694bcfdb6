"""Methods for nodes: phones and machines that do commands for the gateway.

A node is a paired device with the role `node`. It is asked only for commands that it declared and
that its kind of device may do, or that `gateway.nodes.allowCommands` names. Programs are never
started on a node: approvals do not reach there.
"""

import asyncio
import json
from typing import Annotated, Any, Final

from pydantic import Field

from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.gateway.connection import Connection
from homarus.gateway.device_records import show_device
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.methods.devices import audit_device
from homarus.gateway.node_calls import NodeAnswer
from homarus.gateway.nodes import allowed_commands, device_kind
from homarus.gateway.params import Id, Ms, Name

DEFAULT_TIMEOUT_MS: Final = 30_000
MAX_TIMEOUT_MS: Final = 600_000
_NEVER: Final = ("system.run", "system.which", "system.execApprovals.", "browser.proxy")


@method("node.list", scope="read", params=NoParams)
async def list_(call: MethodCall, _params: NoParams) -> Json:
    """Every paired node, and whether it is connected."""
    return {"ts": call.services.clock.now_ms(), "nodes": list(_nodes(call).values())}


class NodeParams(Params):
    """A node."""

    node_id: Name


@method("node.describe", scope="read", params=NodeParams)
async def describe(call: MethodCall, params: NodeParams) -> Json:
    """One node: what it is, and which commands it may be asked for."""
    return {"ts": call.services.clock.now_ms(), **_find(call, params.node_id)}


class NodeRenameParams(NodeParams):
    """A node and its new name."""

    display_name: Annotated[str, Field(min_length=1, max_length=256)]


@method("node.rename", scope="pairing", params=NodeRenameParams)
async def rename(call: MethodCall, params: NodeRenameParams) -> Json:
    """Give a node another name."""
    _find(call, params.node_id)
    name = one_line(params.display_name, 100)
    call.gateway.authenticator.devices.rename(params.node_id, name)
    return {"nodeId": params.node_id, "displayName": name}


@method("node.pair.list", scope="pairing", params=NoParams)
async def list_pairings(call: MethodCall, _params: NoParams) -> Json:
    """The nodes that wait for an approval, and those that have one."""
    listed = call.gateway.authenticator.devices.listing()
    pending = [_as_node(entry) for entry in listed["pending"] if entry.get("role") == "node"]
    paired = [_as_node(entry) for entry in listed["paired"] if "node" in entry.get("roles", ())]
    return {"pending": pending, "paired": paired}


class NodePairParams(Params):
    """A pairing request of a node."""

    request_id: Name


@method("node.pair.approve", scope="pairing", params=NodePairParams)
async def approve(call: MethodCall, params: NodePairParams) -> Json:
    """Let a node in."""
    _check_is_node(call, params.request_id)
    devices = call.gateway.authenticator.devices
    device = devices.approve(params.request_id, call.caller.scopes)
    await audit_device(call, "approve", device.id)
    return {"requestId": params.request_id, "node": _as_node(show_device(device))}


@method("node.pair.reject", scope="pairing", params=NodePairParams)
async def reject(call: MethodCall, params: NodePairParams) -> Json:
    """Send a node away."""
    _check_is_node(call, params.request_id)
    node_id = call.gateway.authenticator.devices.reject(params.request_id)
    return {"requestId": params.request_id, "nodeId": node_id}


class NodeInvokeParams(NodeParams):
    """A command for a node; a repeated key gets the first answer."""

    command: Name
    params: Json = None
    timeout_ms: Ms | None = None
    idempotency_key: Id


@method("node.invoke", scope="write", params=NodeInvokeParams)
async def invoke(call: MethodCall, params: NodeInvokeParams) -> Json:
    """Have a node do a command and return its answer."""
    node = _find(call, params.node_id)
    _check_command(node, params.command)
    connection = _connected(call).get(params.node_id)
    if connection is None:
        details = {"code": "NOT_CONNECTED"}
        raise UnavailableError("the node is not connected", details=details)
    key = f"node.invoke:{params.node_id}:{params.idempotency_key}"
    if (earlier := call.gateway.answers.get(key)) is not None:
        return earlier
    answer = await _ask(call, connection, params)
    if not answer.ok:
        code = str(answer.error.get("code") or "UNAVAILABLE")[:64]
        message = one_line(str(answer.error.get("message") or "the node refused"), 300)
        raise UnavailableError(f"{params.command}: {message}", details={"code": code})
    result = {
        "ok": True,
        "nodeId": params.node_id,
        "command": params.command,
        "payload": answer.payload,
        "payloadJSON": json.dumps(answer.payload, ensure_ascii=False),
    }
    call.gateway.answers.save(key, result, len(result["payloadJSON"]))
    return result


async def _ask(call: MethodCall, connection: Connection, params: NodeInvokeParams) -> NodeAnswer:
    """Send the command to the node, and wait for the answer within the time."""
    calls = call.gateway.node_calls
    call_id, future = calls.open(connection.id)
    timeout_ms = min(params.timeout_ms or DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS)
    request: dict[str, Json] = {
        "id": call_id,
        "nodeId": params.node_id,
        "command": params.command,
        "paramsJSON": json.dumps(params.params, ensure_ascii=False),
        "timeoutMs": timeout_ms,
        "idempotencyKey": params.idempotency_key,
    }
    try:
        call.gateway.send(connection.id, "node.invoke.request", request)
        async with asyncio.timeout(timeout_ms / 1000):
            return await future
    except TimeoutError as exc:
        raise UnavailableError(
            f"the node did not answer within {timeout_ms / 1000:g} s", details={"code": "TIMEOUT"}
        ) from exc
    finally:
        calls.close(call_id)


class NodeErrorParams(Params):
    """Why a node did not do a command."""

    code: Name | None = None
    message: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None


class NodeInvokeResultParams(NodeParams):
    """A node's answer to a command."""

    id: Name
    ok: bool
    payload: Json = None
    payload_json: Annotated[str | None, Field(alias="payloadJSON")] = None
    error: NodeErrorParams | None = None


@method("node.invoke.result", scope="none", params=NodeInvokeResultParams)
async def take_result(call: MethodCall, params: NodeInvokeResultParams) -> Json:
    """Take a node's answer. Only the node that was asked may give it."""
    caller = call.caller
    if caller.role != "node" or params.node_id != caller.device_id:
        raise InvalidRequestError("only a node answers its own commands")
    payload = params.payload
    if payload is None and params.payload_json:
        try:
            payload = json.loads(params.payload_json)
        except (ValueError, RecursionError):
            raise InvalidRequestError("payloadJSON is not JSON") from None
    error = params.error.model_dump() if params.error else {}
    answer = NodeAnswer(params.ok, payload, error)
    return {
        "ok": True,
        "ignored": not call.gateway.node_calls.settle(caller.conn_id, params.id, answer),
    }


def _nodes(call: MethodCall) -> dict[str, dict[str, Json]]:
    """Return every paired node by its id."""
    connected = _connected(call)
    listed = call.gateway.authenticator.devices.listing()["paired"]
    found = dict[str, dict[str, Json]]()
    for entry in listed:
        if "node" in entry.get("roles", ()):
            node = _as_node(entry)
            connection = connected.get(node["nodeId"])
            found[node["nodeId"]] = {**node, **_live(call, connection)}
    return found


def _live(call: MethodCall, connection: Connection | None) -> dict[str, Json]:
    """Return what a connected node says of itself, with the commands that it may be asked for."""
    if connection is None or connection.claims is None:
        return {"caps": [], "commands": [], "connected": False}
    claims = connection.claims
    client, rules = claims.client, call.services.loaded.config.gateway.nodes
    kind = device_kind(client.platform, client.device_family or "")
    allowed = allowed_commands(kind, rules.allow_commands, rules.deny_commands)
    optional = {
        "version": client.version,
        "deviceFamily": client.device_family,
        "modelIdentifier": client.model_identifier,
        "remoteIp": connection.caller.ip if connection.caller else None,
        "pathEnv": claims.path_env,
    }
    return {
        **{name: value for name, value in optional.items() if value},
        "platform": client.platform,
        "caps": sorted(claims.caps),
        "commands": sorted(name for name in claims.commands if name in allowed and _may(name)),
        "permissions": dict(claims.permissions),
        "connectedAtMs": connection.connected_ms,
        "connected": True,
    }


def _connected(call: MethodCall) -> dict[str, Connection]:
    """Return the connections of nodes; of two of one node, the newer one."""
    return {
        one.caller.device_id: one
        for one in call.gateway.connections
        if one.caller and one.caller.role == "node"
    }


def _find(call: MethodCall, node_id: str) -> dict[str, Json]:
    found = _nodes(call).get(node_id)
    if found is None:
        raise InvalidRequestError("unknown nodeId", fix="node.list shows the nodes")
    return found


def _as_node(entry: dict[str, Json]) -> dict[str, Json]:
    """Return a device as clients receive a node."""
    names: tuple[Any, ...] = (
        "requestId", "displayName", "platform", "remoteIp", "ts", "createdAtMs", "approvedAtMs",
    )  # fmt: skip
    shown = {name: entry[name] for name in names if entry.get(name)}
    return {"nodeId": entry["deviceId"], **shown, "paired": "requestId" not in entry}


def _check_is_node(call: MethodCall, request_id: str) -> None:
    """Raise InvalidRequestError for a request of another role: that is more than a node."""
    pending = call.gateway.authenticator.devices.listing()["pending"]
    if not any(one["requestId"] == request_id and one.get("role") == "node" for one in pending):
        raise InvalidRequestError("unknown requestId")


def _check_command(node: dict[str, Json], command: str) -> None:
    if not _may(command):
        reason = "approvals do not reach nodes"
    elif node["connected"] and command not in node["commands"]:
        reason = "the node does not have it, or gateway.nodes does not allow it"
    else:
        return
    raise InvalidRequestError(
        f"node command not allowed: {one_line(command, 64)}",
        details={"reason": reason, "command": command},
        fix=reason,
    )


def _may(command: str) -> bool:
    return not command.startswith(_NEVER)
