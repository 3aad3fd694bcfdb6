"""One connection: greeting, requests, answers, and a client that misbehaves."""

import asyncio
import json
from pathlib import Path

import pytest

from homarus.gateway.client import GatewaySecret
from homarus.gateway.connection import MAX_IN_FLIGHT, SLOW_BYTES
from homarus.gateway.frames import HANDSHAKE_S, MAX_BUFFERED_BYTES, MAX_FRAME_BYTES
from tests.unit.gateway.harness import play


async def test_connection_is_challenged_at_once_and_gets_hello_ok(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        assert [f.get("event") or f["id"] for f in peer.frames[:2]] == [
            "connect.challenge",
            "hello",
        ]
        hello = peer.frames[1]["payload"]
        assert hello["type"] == "hello-ok" and hello["protocol"] == 3
        assert hello["features"]["methods"] == ["break", "echo", "wait"]  # what is advertised
        assert hello["policy"] == {
            "maxPayload": 26_214_400,
            "maxBufferedBytes": 52_428_800,
            "tickIntervalMs": 30_000,
        }
        snapshot = hello["snapshot"]
        assert snapshot["sessionDefaults"]["mainSessionKey"] == "agent:main:main"
        assert snapshot["authMode"] == "token" and snapshot["presence"][0]["mode"] == "gateway"
        assert hello["auth"]["role"] == "operator" and hello["auth"]["deviceToken"]
        assert peer.max_bytes == MAX_FRAME_BYTES  # raised only now


async def test_hello_has_the_keys_of_openclaw(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "data" / "frames" / "handshake.json"
    theirs = json.loads(file.read_text(encoding="utf-8"))[2]["frame"]["payload"]
    async with play(tmp_path) as stage:
        hello = (await stage.enter()).frames[1]["payload"]
        not_built = {"canvasHostUrl"}
        assert hello.keys() == theirs.keys() - not_built
        for name in ("server", "features", "snapshot", "policy", "auth"):
            assert hello[name].keys() == theirs[name].keys()


async def test_newest_protocol_client_gets_additional_fields(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        old, new = await stage.enter("old"), await stage.enter("new", protocol=4)
        hello = new.frames[1]["payload"]
        assert hello["protocol"] == 4
        assert hello["policy"]["attachments"] == {
            "maxBytes": 15_000_000,
            "maxImageBytes": 5_000_000,
        }
        assert hello["snapshot"]["appliedConfigHash"] == stage.program.loaded.hash
        stage.gateway.broadcast("chat", {"n": 1}, newest={"deltaText": "x"})
        await stage.settle()
        assert old.events("chat")[-1]["payload"] == {"n": 1}
        assert new.events("chat")[-1]["payload"] == {"n": 1, "deltaText": "x"}
        assert old.events("chat")[-1]["seq"] == new.events("chat")[-1]["seq"]


async def test_newest_protocol_without_device_lists_granted_scopes(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        hello = (await stage.enter(protocol=4, identity=None)).frames[1]["payload"]
        scopes = ["operator.admin", "operator.approvals", "operator.pairing"]
        assert hello["auth"] == {"role": "operator", "scopes": scopes}
        assert "auth" not in (await stage.enter(identity=None)).frames[1]["payload"]


async def test_newest_protocol_missing_scope_has_its_own_error_code(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        read = ("operator.read",)
        old = await stage.enter("old", scopes=read)
        new = await stage.enter("new", protocol=4, scopes=read)
        for peer in (old, new):
            peer.ask("1", "boss")
        await stage.settle()
        told = {"code": "INVALID_REQUEST", "message": "missing scope: operator.admin"}
        assert old.answers("1")[0]["error"] == told
        details = {
            "code": "MISSING_SCOPE",
            "missingScope": "operator.admin",
            "requiredScopes": ["operator.admin"],
        }
        assert new.answers("1")[0]["error"] == {**told, "code": "FORBIDDEN", "details": details}


async def test_request_with_traceparent_is_accepted(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        frame = {"type": "req", "id": "1", "method": "echo", "params": {"value": 5}}
        peer.say({**frame, "traceparent": trace})
        peer.say({**frame, "id": "2", "traceparent": "x" * 1_000})
        await stage.settle()
        assert peer.answers("1")[0]["payload"] == 5
        assert peer.answers("2")[0]["ok"] is False


@pytest.mark.parametrize(
    "frame",
    [
        "not json",
        "[]",
        '{"type":"req","id":"1","method":"health"}',
        '{"type":"event","event":"x"}',
        '{"type":"req","id":"1","method":"connect","params":{}}',
        '{"type":"req","id":"1","method":"connect","params":null,"extra":1}',
        "[" * 60_000,
    ],
)
async def test_first_frame_other_than_connect_closes_the_connection(
    tmp_path: Path, frame: str
) -> None:
    async with play(tmp_path) as stage:
        peer = stage.knock()
        peer.say(frame)
        await stage.settle()
        assert peer.closed and peer.closed[0] == 1008
        (refusal,) = [f for f in peer.frames if f["type"] == "res"]
        assert not refusal["ok"] and refusal["error"]["code"] == "INVALID_REQUEST"
        assert refusal["id"] in {"1", "invalid"}
        assert peer.max_bytes == 0 and not stage.gateway.connections


async def test_wrong_token_closes_with_1008(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = stage.knock()
        await stage.settle()
        stage.greet(peer, secret=GatewaySecret("wrong"))
        await stage.settle()
        (refusal,) = peer.answers("hello")
        assert "token mismatch" in refusal["error"]["message"]
        assert peer.closed and peer.closed[0] == 1008


async def test_silent_client_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HANDSHAKE_S == 10.0
    monkeypatch.setattr("homarus.gateway.connection.HANDSHAKE_S", 0.01)
    async with play(tmp_path) as stage:
        peer = stage.knock()
        await peer.gone.wait()
        assert peer.closed == (1008, "handshake timeout")


async def test_client_before_services_start_is_greeted_when_ready(
    tmp_path: Path,
) -> None:
    async with play(tmp_path, ready=False) as stage:
        peer = stage.knock()
        await stage.settle()
        stage.greet(peer)
        await stage.settle()
        assert not peer.answers("hello")  # challenged, and patient
        async with asyncio.TaskGroup() as group:
            running = group.create_task(stage.gateway.run(stage.program.services(group)))
            await stage.settle()
            assert peer.answers("hello")[0]["ok"]
            running.cancel()


async def test_concurrent_requests_are_answered_as_they_finish(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        peer.ask("1", "wait")
        peer.ask("2", "echo", {"value": [1, None, "é"]})
        await stage.settle()
        assert [a["payload"] for a in peer.answers("1")] == [{"status": "accepted"}]
        assert peer.answers("2")[0]["payload"] == [1, None, "é"]
        stage.doors.open.set()
        await stage.settle()
        assert [a["payload"]["status"] for a in peer.answers("1")] == ["accepted", "ok"]


async def test_invalid_request_is_answered_and_connection_continues(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        peer.say("{")
        peer.say({"type": "req", "id": "x", "method": "echo", "more": 1})
        peer.say({"type": "res", "id": "y", "ok": True})
        peer.ask("1", "nosuch.method")
        peer.ask("2", "cron.list")
        peer.ask("3", "echo", {"vaule": 1})
        peer.ask("4", "connect", {})
        peer.ask("5", "node.event", {})
        peer.ask("6", "break")
        peer.ask("7", "echo", {"value": "fine"})
        await stage.settle()
        errors = {f["id"]: f["error"] for f in peer.frames if f["type"] == "res" and not f["ok"]}
        assert errors["invalid"]["code"] == errors["x"]["code"] == "INVALID_REQUEST"
        assert errors["y"]["code"] == "INVALID_REQUEST"
        assert errors["1"]["message"] == "unknown method: nosuch.method"
        assert errors["2"] == {
            "code": "UNAVAILABLE",
            "message": "cron.list: schedules are not built yet",
        }
        assert errors["3"]["message"].startswith("invalid echo params: ")
        assert errors["4"]["code"] == "INVALID_REQUEST"
        assert errors["5"]["message"] == "unauthorized role: operator"
        assert errors["6"]["code"] == "UNAVAILABLE" and "secret" not in str(errors["6"])
        assert peer.answers("7")[0]["payload"] == "fine"
        assert peer.closed is None


async def test_scopes_are_the_approved_ones_not_the_claimed(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        reader = await stage.enter(scopes=["operator.read"])
        reader.ask("1", "boss")
        stranger = await stage.enter(identity=None)  # a token and no device: no scopes
        stranger.ask("2", "echo")
        boss = await stage.enter("other")
        boss.ask("3", "boss")
        await stage.settle()
        assert reader.answers("1")[0]["error"]["message"] == "missing scope: operator.admin"
        assert stranger.answers("2")[0]["error"]["message"] == "missing scope: operator.read"
        assert boss.answers("3")[0]["payload"] == "yes"


async def test_requests_beyond_the_concurrency_limit_are_refused(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        for n in range(MAX_IN_FLIGHT + 3):
            peer.ask(str(n), "wait")
        for _ in range(20):
            await stage.settle()
        refused = [f for f in peer.frames if f["type"] == "res" and not f["ok"]]
        assert len(refused) == 3 and refused[0]["error"]["retryable"]
        stage.doors.open.set()
        await stage.settle()
        peer.ask("again", "echo")
        await stage.settle()
        assert peer.answers("again")[0]["ok"]


async def test_slow_client_loses_deltas_and_gets_a_gap_event(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        peer.reads.clear()
        for _ in range(20):
            stage.gateway.broadcast("chat", {"text": "x" * 1_000_000}, drop_if_slow=True)
            await asyncio.sleep(0)
        (connection,) = stage.gateway.connections
        assert connection.buffered_bytes < SLOW_BYTES + 1_100_000 and connection.dropped >= 10
        peer.reads.set()
        await stage.settle()
        (gap,) = peer.events("gap")
        kept = len(peer.events("chat"))
        assert gap["payload"]["dropped"] + kept == 20 and "seq" not in gap
        assert peer.closed is None and connection.buffered_bytes == 0


async def test_slow_client_with_required_event_is_closed_with_1008(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        other = await stage.enter("other")
        peer.reads.clear()
        for _ in range(20):
            stage.gateway.broadcast("chat", {"text": "x" * 1_000_000})
            await asyncio.sleep(0)
        await stage.settle()
        assert peer.closed == (1008, "slow consumer")
        assert len(stage.gateway.connections) == 1
        assert len(other.events("chat")) == 20  # nobody else is held up


async def test_unread_responses_are_bounded(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        (connection,) = stage.gateway.connections
        peer.reads.clear()
        big = "x" * 4_000_000
        for n in range(MAX_BUFFERED_BYTES // 4_000_000 + 3):
            peer.ask(str(n), "echo", {"value": big})
            await stage.settle()
        assert peer.closed == (1008, "slow consumer")
        assert connection.buffered_bytes == 0


async def test_request_in_flight_completes_after_disconnect(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        done: list[bool] = []
        peer = await stage.enter()
        peer.ask("1", "wait")
        peer.leave()
        await stage.settle()
        assert not stage.gateway.connections
        stage.gateway.start("later", lambda: _note(done))
        stage.doors.open.set()
        await stage.settle()
        assert done == [True]


async def _note(done: list[bool]) -> None:
    done.append(True)


async def test_token_revoked_by_another_process_closes_at_next_request(
    tmp_path: Path,
) -> None:
    async with play(tmp_path) as stage:
        peer = await stage.enter()
        file = tmp_path / "state" / "devices" / "paired.json"
        paired = json.loads(file.read_text(encoding="utf-8"))
        for device in paired.values():
            device["tokens"]["operator"]["revokedAtMs"] = 1
        file.write_text(json.dumps(paired, indent=1), encoding="utf-8")
        peer.ask("1", "echo")
        await stage.settle()
        assert peer.closed == (1008, "device token revoked") and not peer.answers("1")
