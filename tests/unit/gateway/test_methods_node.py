"""Nodes: listed, renamed, approved, and asked for commands that they may do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.config.load import load_config
from homarus.core.errors import InvalidRequestError, ProtocolError, UnavailableError
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.identity import DeviceIdentity
from homarus.gateway.method import Caller, MethodCall
from homarus.gateway.methods import METHODS
from homarus.gateway.node_calls import MAX_WAITING
from tests.unit.gateway.harness import TOKEN, Harness, Peer, play
from tests.waiting import until

COMMANDS = ["camera.list", "camera.snap", "canvas.present", "system.run", "location.get"]


class Stage:
    """A gateway with the real methods, an operator, and phones."""

    def __init__(self, harness: Harness, folder: Path) -> None:
        self.harness, self.gateway, self._folder = harness, harness.gateway, folder
        self.gateway.methods = METHODS

    async def phone(self, name: str = "phone", commands: Any = COMMANDS) -> tuple[Peer, str]:
        """Return a connected phone and its node id."""
        peer = self.harness.knock()
        await self.harness.settle()
        challenge = peer.events("connect.challenge")[0]["payload"]
        identity = DeviceIdentity.load_or_create(self._folder / f"{name}.json", 1)
        client = {"id": "openclaw-ios", "mode": "node", "version": "1", "platform": "ios 19"}
        device = identity.device_params(
            client_id="openclaw-ios", client_mode="node", role="node", scopes=(),
            signed_at_ms=challenge["ts"], token=TOKEN, nonce=challenge["nonce"],
        )  # fmt: skip
        params: dict[str, Any] = {
            "minProtocol": 3, "maxProtocol": 3, "role": "node", "scopes": [],
            "client": {**client, "displayName": name, "deviceFamily": "iPhone"},
            "caps": ["camera"], "commands": commands, "auth": {"token": TOKEN}, "device": device,
        }  # fmt: skip
        peer.ask("hello", "connect", params)
        await self.harness.settle()
        assert peer.answers("hello")[0]["ok"], peer.frames
        return peer, str(device["id"])

    async def ask(self, method: str, *scopes: str, **params: Any) -> Any:
        names = frozenset(f"operator.{scope}" for scope in scopes or ("admin",))
        caller = Caller("c1", "cli", "cli", device_id="d", scopes=names)
        call = MethodCall(self.gateway.services, self.gateway, caller, "1")
        return await METHODS[method](call, params)

    async def answered(self, peer: Peer, node: str, result: dict[str, Any], **asked: Any) -> Any:
        """Ask the node for a command and have the phone answer it."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._invoke(node, **asked))
            await until(lambda: bool(peer.events("node.invoke.request")))
            request = peer.events("node.invoke.request")[-1]["payload"]
            peer.ask("r", "node.invoke.result", {"id": request["id"], "nodeId": node, **result})
            return await task

    async def _invoke(self, node: str, **asked: Any) -> Any:
        given = {"command": "camera.list", "idempotencyKey": "k", **asked}
        try:
            return await self.ask("node.invoke", "write", nodeId=node, **given)
        except ProtocolError as exc:
            return exc


@asynccontextmanager
async def at_stage(folder: Path, config: str = "{}") -> AsyncIterator[Stage]:
    async with play(folder) as harness:
        harness.program.paths.state.mkdir(parents=True, exist_ok=True)
        harness.program.paths.config.write_text(config)
        harness.program.loaded = load_config(harness.program.paths, {})
        yield Stage(harness, folder)


async def test_node_is_listed_with_the_commands_it_may_do(tmp_path: Path) -> None:
    async with at_stage(tmp_path) as stage:
        peer, node = await stage.phone()
        (row,) = (await stage.ask("node.list", "read"))["nodes"]
        assert (row["nodeId"], row["displayName"], row["platform"]) == (node, "phone", "ios 19")
        assert row["commands"] == ["camera.list", "canvas.present", "location.get"]
        assert row["connected"] and row["paired"] and row["caps"] == ["camera"]
        assert (await stage.ask("node.describe", "read", nodeId=node))["deviceFamily"] == "iPhone"
        peer.leave()
        await stage.harness.settle()
        (row,) = (await stage.ask("node.list"))["nodes"]
        assert not row["connected"] and row["commands"] == []


async def test_node_does_a_command_once_for_one_key(tmp_path: Path) -> None:
    async with at_stage(tmp_path) as stage:
        peer, node = await stage.phone()
        payload = {"devices": [{"id": "back"}]}
        result = {"ok": True, "payloadJSON": json.dumps(payload)}
        found = await stage.answered(peer, node, result, params={"a": 1}, timeoutMs=60_000)
        assert found["payload"] == payload and json.loads(found["payloadJSON"]) == payload
        (event,) = peer.events("node.invoke.request")
        asked = event["payload"]
        assert (asked["command"], asked["paramsJSON"]) == ("camera.list", '{"a": 1}')
        assert asked["idempotencyKey"] == "k" and asked["nodeId"] == node
        again = await stage.ask("node.invoke", nodeId=node, command="camera.list",
                                idempotencyKey="k")  # fmt: skip
        assert again == found and len(peer.events("node.invoke.request")) == 1
        assert peer.answers("r")[0]["payload"] == {"ok": True, "ignored": False}


async def test_refusal_of_a_node_is_the_answer(tmp_path: Path) -> None:
    async with at_stage(tmp_path) as stage:
        peer, node = await stage.phone()
        error = {"code": "CAMERA_DISABLED", "message": "no\x1b[2J camera"}
        found = await stage.answered(peer, node, {"ok": False, "error": error})
        assert isinstance(found, UnavailableError) and "\x1b" not in found.message
        assert found.details == {"code": "CAMERA_DISABLED"}


@pytest.mark.parametrize(
    ("command", "config"),
    [
        ("camera.snap", "{}"),
        ("system.run", '{"gateway": {"nodes": {"allowCommands": ["system.run"]}}}'),
        ("system.execApprovals.get", "{}"),
        ("camera.list", '{"gateway": {"nodes": {"denyCommands": ["camera.list"]}}}'),
        ("contacts.search", "{}"),
    ],
)
async def test_command_that_is_not_allowed_reaches_no_node(
    tmp_path: Path, command: str, config: str
) -> None:
    async with at_stage(tmp_path, config) as stage:
        peer, node = await stage.phone()
        with pytest.raises(InvalidRequestError, match="node command not allowed") as refused:
            await stage.ask("node.invoke", nodeId=node, command=command, idempotencyKey="k")
        assert refused.value.details and refused.value.details["command"] == command
        assert peer.events("node.invoke.request") == []


async def test_command_allowed_by_name_reaches_the_node(tmp_path: Path) -> None:
    config = '{"gateway": {"nodes": {"allowCommands": ["camera.snap"]}}}'
    async with at_stage(tmp_path, config) as stage:
        peer, node = await stage.phone()
        found = await stage.answered(peer, node, {"ok": True, "payload": 1}, command="camera.snap")
        assert found["payload"] == 1


async def test_node_that_is_silent_or_leaves_fails_the_command(tmp_path: Path) -> None:
    async with at_stage(tmp_path) as stage:
        peer, node = await stage.phone()
        asked = {"nodeId": node, "command": "camera.list"}
        with pytest.raises(UnavailableError, match="did not answer") as late:
            await stage.ask("node.invoke", **asked, idempotencyKey="a", timeoutMs=20)
        assert late.value.details == {"code": "TIMEOUT"}
        async with asyncio.TaskGroup() as group:
            task = group.create_task(stage._invoke(node, timeoutMs=60_000))
            await until(lambda: len(peer.events("node.invoke.request")) == 2)
            peer.leave()
            assert "disconnected" in str(await task)
        with pytest.raises(UnavailableError, match="not connected"):
            await stage.ask("node.invoke", **asked, idempotencyKey="c")


async def test_only_the_node_that_was_asked_answers(tmp_path: Path) -> None:
    async with at_stage(tmp_path) as stage:
        peer, node = await stage.phone()
        other, other_node = await stage.phone("other")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(stage._invoke(node, timeoutMs=60_000))
            await until(lambda: bool(peer.events("node.invoke.request")))
            call_id = peer.events("node.invoke.request")[0]["payload"]["id"]
            forged = {"id": call_id, "ok": True, "payload": "forged"}
            other.ask("1", "node.invoke.result", {**forged, "nodeId": node})
            other.ask("2", "node.invoke.result", {**forged, "nodeId": other_node})
            await until(lambda: bool(other.answers("2")))
            assert not other.answers("1")[0]["ok"]
            assert other.answers("2")[0]["payload"]["ignored"]
            true = {"id": call_id, "nodeId": node, "ok": True, "payload": "true"}
            peer.ask("3", "node.invoke.result", true)
            assert (await task)["payload"] == "true"
        with pytest.raises(InvalidRequestError):
            await stage.ask("node.invoke.result", nodeId=node, id=call_id, ok=True)


async def test_commands_that_wait_for_a_node_are_bounded(tmp_path: Path) -> None:
    async with at_stage(tmp_path) as stage:
        calls = stage.gateway.node_calls
        opened = [calls.open("conn")[0] for _ in range(MAX_WAITING)]
        with pytest.raises(UnavailableError, match="wait for this node"):
            calls.open("conn")
        calls.close(opened[0])
        assert calls.open("conn")[0] not in opened


async def test_node_is_renamed_approved_and_rejected(tmp_path: Path) -> None:
    async with at_stage(tmp_path) as stage:
        _, node = await stage.phone()
        await stage.ask("node.rename", "pairing", nodeId=node, displayName="Ann's\nphone")
        assert (await stage.ask("node.describe", nodeId=node))["displayName"] == "Ann's phone"
        devices = stage.gateway.authenticator.devices
        ask = [DevicePairingRequest(letter * 64, "k" * 43, "node") for letter in "ab"]
        first, second = (devices.request(one) for one in ask)
        operator = devices.request(DevicePairingRequest("c" * 64, "k" * 43, "operator"))
        pending = (await stage.ask("node.pair.list", "pairing"))["pending"]
        assert {row["requestId"] for row in pending} == {first, second}
        with pytest.raises(InvalidRequestError, match="unknown requestId"):
            await stage.ask("node.pair.approve", "pairing", requestId=operator)
        done = await stage.ask("node.pair.approve", "pairing", requestId=first)
        assert done["node"]["nodeId"] == "a" * 64
        assert (await stage.ask("node.pair.reject", "pairing", requestId=second))["nodeId"]
        listed = await stage.ask("node.pair.list", "pairing")
        assert listed["pending"] == [] and len(listed["paired"]) == 2
        with pytest.raises(InvalidRequestError, match="unknown nodeId"):
            await stage.ask("node.describe", nodeId="nobody")
