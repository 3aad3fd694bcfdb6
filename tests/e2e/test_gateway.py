"""The real gateway process, on a free port, and clients on its WebSocket."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.message import Json
from homarus.gateway.client import ClientProfile, GatewayClient, GatewaySecret
from homarus.gateway.identity import DeviceIdentity
from tests.e2e.gateway import (
    TOKEN,
    EventRecorder,
    Gateway,
    change,
    closed_with,
    connect_client,
    message_text,
    send,
    wait_for,
)
from tests.e2e.program import DEADLINE_S, Home, Terminal
from tests.e2e.test_chat import COMMANDS, check_commands


def roles(home: Home) -> list[str]:
    (entries,) = home.transcripts()
    return [entry["message"]["role"] for entry in entries if entry["type"] == "message"]


async def test_gateway_turn_sends_start_text_end_and_one_final_event(gateway: Gateway) -> None:
    async with connect_client(gateway) as (client, events):
        assert client.hello["protocol"] == 3
        run_id = await send(client, "MOCK:short")
        final = await events.end_of(run_id)
        assert (final["state"], message_text(final)) == ("final", "Hello from the mock model.")
        mine = [(n, p) for n, p in events.all if n in {"agent", "chat"} and p["runId"] == run_id]
        assert mine[0][1]["data"]["phase"] == "start"
        assert (mine[-2][1]["data"]["phase"], mine[-1][1]["state"]) == ("end", "final")
        texts = [p["data"] for n, p in mine if n == "agent" and p["stream"] == "assistant"]
        assert "".join(data["delta"] for data in texts) == texts[-1]["text"] == message_text(final)
        assert [p["seq"] for n, p in mine if n == "agent"] == list(range(1, len(texts) + 3))
        history: Any = await client.call("chat.history", {"sessionKey": "main"})
        assert [m["role"] for m in history["messages"]] == ["user", "assistant"]
    wait_for(lambda: roles(gateway.home) == ["user", "assistant"])  # the file follows


async def test_gateway_agent_is_answered_twice_with_tool_events(gateway: Gateway) -> None:
    async with connect_client(gateway) as (client, events):
        run_id = str(uuid4())
        text = 'MOCK:tool:read:{"path":"AGENTS.md","limit":5}§'
        params = {"message": text, "sessionKey": "tools", "idempotencyKey": run_id}
        first: Any = await client.call("agent", params)
        assert (first["runId"], first["status"]) == (run_id, "accepted")
        last: Any = await client.call("agent", params, final=True)  # the same again: one run
        assert last["status"] == "ok" and last["summary"] == "completed"
        assert last["result"]["payloads"][0]["text"] == "Hello from the mock model."
        await events.end_of(run_id)
        tools = [p["data"] for n, p in events.all if n == "agent" and p["stream"] == "tool"]
        assert [data["phase"] for data in tools] == ["start", "result"]
        assert "result" not in tools[1] and tools[1]["isError"] is False
    wait_for(lambda: roles(gateway.home) == ["user", "assistant", "toolResult", "assistant"])


async def test_gateway_client_without_capability_gets_no_tool_events(gateway: Gateway) -> None:
    async with connect_client(gateway, caps=()) as (client, events):
        run_id = await send(client, 'MOCK:tool:read:{"path":"AGENTS.md"}§')
        await events.end_of(run_id)
        assert not [p for n, p in events.all if n == "agent" and p["stream"] == "tool"]


async def test_gateway_abort_ends_run_once_and_keeps_partial_text(gateway: Gateway) -> None:
    async with connect_client(gateway) as (client, events):
        run_id = await send(client, "MOCK:long:1000:20")
        await events.wait(lambda n, p: n == "chat" and "word0003" in message_text(p))
        answer: Any = await client.call("chat.abort", {"sessionKey": "main", "runId": run_id})
        assert answer == {"ok": True, "aborted": True, "runIds": [run_id]}
        last = await events.end_of(run_id)
        assert last["state"] == "aborted" and message_text(last).startswith("word0000 word0001")
        again: Any = await client.call("chat.abort", {"sessionKey": "main"})
        assert again["aborted"] is False
        await events.end_of(await send(client, "MOCK:short"))
        ends = [p for n, p in events.all if n == "chat" and p["state"] != "delta"]
        assert [p["state"] for p in ends] == ["aborted", "final"]


async def test_gateway_reconnected_client_gets_missed_events(gateway: Gateway) -> None:
    async with connect_client(gateway) as (client, events):
        await send(client, "MOCK:long:300:10")
        await events.wait(lambda n, p: n == "chat" and "word0003" in message_text(p))
    async with connect_client(gateway) as (client, events):
        await client.call("chat.history", {"sessionKey": "main"})
        delta = await events.wait(lambda n, _: n == "chat")
        assert delta["state"] == "delta" and message_text(delta).startswith("word0000 word0001")
        last = await events.end_of(delta["runId"])
        assert message_text(last).startswith("word0000") and "word0299" in message_text(last)


async def test_gateway_fifty_parallel_sessions_do_not_mix(gateway: Gateway) -> None:
    async with connect_client(gateway) as (client, events):

        async def talk(n: int) -> None:
            for turn in range(2):
                run_id = await send(client, f"MOCK:echo:{n}-{turn}", f"side-{n}")
                assert (await events.end_of(run_id))["state"] == "final"

        async with asyncio.TaskGroup() as group:
            for n in range(50):
                group.create_task(talk(n))
        listed: Any = await client.call("sessions.list", {"limit": 100})
        assert listed["count"] == 50


async def test_gateway_wrong_tokens_and_requests_are_refused(gateway: Gateway) -> None:
    async def scene(client: GatewayClient, _events: EventRecorder) -> None:
        with pytest.raises(InvalidRequestError, match=r"unknown method: nosuch\.method"):
            await client.call("nosuch.method")
        with pytest.raises(UnavailableError):
            await client.call("tts.status")
        with pytest.raises(InvalidRequestError, match="missing scope"):
            await client.call("sessions.delete", {"key": "agent:main:x"})

    async with connect_client(gateway, scopes=("operator.read",)) as (client, _events):
        await scene(client, _events)
    with pytest.raises(InvalidRequestError, match="token mismatch"):
        async with connect_client(gateway, secret=GatewaySecret("wrong")) as (client, _events):
            await scene(client, _events)


def socket_of(client: GatewayClient) -> ClientConnection:
    socket = client._socket
    assert isinstance(socket, ClientConnection)
    return socket


async def test_gateway_oversized_frame_closes_connection(gateway: Gateway) -> None:
    async with connect(gateway.url, max_size=None, compression=None, proxy=None) as stranger:
        await stranger.recv()
        await stranger.send("x" * (64 * 1024 + 1))
        assert await closed_with(stranger) == 1009
    async with gateway.connect() as client:
        with suppress(ConnectionClosed):
            await client._socket.send("x" * (25 * 1024 * 1024 + 1))
        async with asyncio.timeout(DEADLINE_S):
            await socket_of(client).wait_closed()
        assert socket_of(client).close_code == 1009
    async with gateway.connect() as client:
        params = {"sessionKey": "main", "message": "x" * 100_000, "extra": 1}
        with pytest.raises(InvalidRequestError, match=r"invalid chat\.send params"):
            await client.call("chat.send", params)


async def test_gateway_slow_client_is_closed_without_affecting_others(gateway: Gateway) -> None:
    identity = DeviceIdentity.load_or_create(gateway.home.path / "slow.json", 1)
    options: dict[str, Any] = {"max_size": None, "max_queue": 1, "compression": None}
    async with (
        connect(gateway.url, proxy=None, ping_interval=None, **options) as slow,
        gateway.connect() as client,
    ):
        challenge = json.loads(await slow.recv())["payload"]
        params = ClientProfile(GatewaySecret(TOKEN), identity).connect_params(
            challenge["nonce"], challenge["ts"]
        )
        hello = {"type": "req", "id": "1", "method": "connect", "params": params}
        await slow.send(json.dumps(hello))
        await slow.recv()
        await client.call("agent", message("MOCK:short", "main"), final=True)
        big = "y" * 95_000
        for _ in range(300):  # each an event that may not be dropped
            await client.call("chat.inject", {"sessionKey": "main", "message": big})
        assert await closed_with(slow) in {1008, None}  # None: the reason came too late
        assert await client.call("health")
    log = (gateway.home.path / "log.jsonl").read_text(encoding="utf-8")
    assert "slow consumer" in log


def message(text: str, key: str) -> dict[str, Json]:
    return {"sessionKey": key, "message": text, "idempotencyKey": str(uuid4())}


async def test_gateway_sigterm_finishes_answer_and_says_goodbye(gateway: Gateway) -> None:
    async with connect_client(gateway) as (client, events):
        run_id = await send(client, "MOCK:long:60:20")
        await events.wait(lambda n, p: n == "chat" and "word0003" in message_text(p))
        gateway.signal(signal.SIGTERM)
        await events.wait(lambda name, _: name == "shutdown")
        with pytest.raises(UnavailableError, match="shutting down"):
            await client.call("chat.send", message("MOCK:short", "other"))
        last = await events.end_of(run_id)
        assert last["state"] == "final" and "word0059" in message_text(last)
        async with asyncio.timeout(DEADLINE_S):
            await socket_of(client).wait_closed()
        socket = socket_of(client)
        assert (socket.close_code, socket.close_reason) == (1012, "service restart")
    assert gateway.end() == 0
    assert not (gateway.home.state / "gateway.json").exists()
    (entries,) = gateway.home.transcripts()
    assert "word0059" in json.dumps(entries[-1])


async def test_gateway_second_signal_does_not_wait(gateway: Gateway) -> None:
    started = time.monotonic()
    async with connect_client(gateway) as (client, events):
        await send(client, "MOCK:long:10000:20")
        await events.wait(lambda n, p: n == "chat" and "word0003" in message_text(p))
        gateway.signal(signal.SIGINT)
        await events.wait(lambda name, _: name == "shutdown")
        gateway.signal(signal.SIGINT)
    assert gateway.end() == 0
    assert time.monotonic() - started < 9  # less than the first signal alone would wait
    assert "Traceback" not in gateway.output


def test_gateway_second_on_same_state_is_refused(
    gateway: Gateway, start: Callable[..., Gateway]
) -> None:
    second = start()
    assert second.end() == 75
    assert f"process {gateway.process.pid} uses the state directory" in second.output
    port = gateway.url.rpartition(":")[2]
    done = gateway.home.run("gateway", "run", "--port", port)
    assert done.status == 75 and "Address already in use" in done.err
    assert f"process {gateway.process.pid}" in done.err
    assert gateway.process.poll() is None


async def test_gateway_after_kill_restarts_and_remembers(
    gateway: Gateway, start: Callable[..., Gateway]
) -> None:
    async with connect_client(gateway) as (client, events):
        await events.end_of(await send(client, "MOCK:short"))
    gateway.signal(signal.SIGKILL)
    gateway.end()
    async with connect_client(start().wait_ready(times=2)) as (client, _events):
        history: Any = await client.call("chat.history", {"sessionKey": "main"})
        assert len(history["messages"]) == 2


def test_gateway_beyond_loopback_without_token_refuses_start(
    home: Home, start: Callable[..., Gateway]
) -> None:
    change(home, gateway={"auth": {"mode": "none"}, "bind": "lan"})
    refused = start()
    assert refused.end() == 2
    assert "refusing to listen" in refused.output and "gateway.auth.token" in refused.output


async def test_gateway_changed_config_is_used_by_next_run(gateway: Gateway, home: Home) -> None:
    async with connect_client(gateway) as (client, events):
        await events.end_of(await send(client, "MOCK:short", "one"))
        config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
        config["models"]["providers"]["mock"]["models"].append({"id": "mock-2", "name": "Two"})
        config["agents"]["defaults"]["model"] = {"primary": "mock/mock-2"}
        home.configure(config)
        told = await events.wait(lambda name, _: name == "config.reloaded")
        assert told["action"] == "apply"
        await events.end_of(await send(client, "MOCK:short", "two"))

        (home.state / "openclaw.json").write_text("{ agents: ")
        refused = await events.wait(lambda name, _: name == "config.rejected")
        assert "openclaw.json" in refused["message"]
        status: Any = await client.call("status")
        assert "openclaw.json" in status["configProblem"]
        await events.end_of(await send(client, "MOCK:short", "three"))  # the last good one

        listed: Any = await client.call("sessions.list", {})
        models = {row["key"]: row["model"] for row in listed["sessions"]}
        assert models == {
            "agent:main:one": "mock-1",
            "agent:main:two": "mock-2",
            "agent:main:three": "mock-2",
        }


async def test_gateway_config_change_that_needs_it_restarts(gateway: Gateway, home: Home) -> None:
    async with connect_client(gateway) as (client, events):
        change(home, gateway={"auth": {"mode": "none"}, "bind": "lan"})  # would not start
        refused = await events.wait(lambda name, _: name == "config.rejected")
        assert "refusing to listen" in refused["message"]
        assert await client.call("health")
        change(home, gateway={"auth": {"token": "another-token"}})
        told = await events.wait(lambda name, _: name == "config.reloaded")
        assert told["action"] == "restart"
        goodbye = await events.wait(lambda name, _: name == "shutdown")
        assert goodbye["restartExpectedMs"] > 0
    gateway.wait_ready(times=2)  # the same process
    async with connect_client(gateway, secret=GatewaySecret("another-token")) as (client, events):
        await events.end_of(await send(client, "MOCK:short"))


def test_cli_commands_use_running_gateway(gateway: Gateway, home: Home) -> None:
    asked = home.run("agent", "--message", "MOCK:short", "--json")
    assert asked.status == 0, asked.err
    assert asked.json["result"]["payloads"][0]["text"] == "Hello from the mock model."
    talked = home.run("chat", text="MOCK:short a\n/status\n/new\nMOCK:short b\n")
    assert talked.status == 0 and talked.out.count("Hello from the mock model.") == 2
    assert "mock/mock-1 (by the gateway)" in talked.out and "A new conversation." in talked.out
    listed = home.run("sessions", "--json").json
    assert [row["key"] for row in listed["sessions"]] == ["agent:main:main"]
    assert "agent:main:main" in home.run("status").out
    assert home.run("health", "--json").json["ok"] is True
    running = home.run("gateway", "status", "--json").json
    assert (running["running"], running["pid"]) == (True, gateway.process.pid)
    assert "client connected: cli" in home.run("logs").out
    called = home.run("gateway", "call", "sessions.list", "--params", '{"limit": 1}', "--json")
    assert called.json["count"] == 1
    assert home.run("gateway", "probe").out.startswith("ok: version")
    wrong = home.run("gateway", "call", "nosuch")
    assert wrong.status == 2 and "unknown method" in wrong.err
    late = home.run("agent", "--message", "MOCK:delay:20000", "--timeout", "0.5")
    assert late.status == 1 and "deadline" in late.err
    local = home.run("agent", "--message", "MOCK:short", "--local")
    assert local.status == 2 and f"process {gateway.process.pid}" in local.err


def test_gateway_chat_commands_and_directives_work(gateway: Gateway, home: Home) -> None:
    assert gateway.process.poll() is None
    done = home.run("chat", text=COMMANDS)
    assert done.status == 0, done.err
    check_commands(done.out)


def test_cli_commands_reach_gateway_by_url(gateway: Gateway, home: Home) -> None:
    elsewhere = {"OPENCLAW_STATE_DIR": str(home.path / "elsewhere")}
    there = ("--url", gateway.url)
    refused = home.run("health", *there, **elsewhere)
    assert refused.status == 2 and "token missing" in refused.err
    assert home.run("health", *there, "--token", TOKEN, **elsewhere).status == 0
    nobody = home.run("health", "--url", "ws://127.0.0.1:9", **elsewhere)
    assert nobody.status == 1 and "no gateway answers at ws://127.0.0.1:9" in nobody.err


def test_gateway_stop_and_restart_by_command(gateway: Gateway, home: Home) -> None:
    restarted = home.run("gateway", "restart")
    assert restarted.status == 0, restarted.err
    assert gateway.process.poll() is None
    gateway.wait_ready(times=2)
    stopped = home.run("gateway", "stop")
    assert stopped.status == 0 and str(gateway.process.pid) in stopped.out
    assert gateway.end() == 0
    assert home.run("gateway", "status").status == 1
    assert home.run("gateway", "stop").status == 2
    alone = home.run("agent", "--message", "MOCK:short")
    assert (alone.status, alone.out) == (0, "Hello from the mock model.\n")


def test_logs_follow_continues_across_gateway_restart(gateway: Gateway, home: Home) -> None:
    with closing(Terminal(home, "logs", "--follow", "--interval", "0.1")) as log:
        log.wait_for("the gateway is ready")
        assert home.run("gateway", "health").out.startswith("ok: ")
        log.wait_for("client connected: cli")
        assert home.run("gateway", "restart").status == 0
        log.wait_for("gateway restarting")
        log.wait_for("the gateway is ready")
        log.press_ctrl_c()
        assert log.end() == 130


def test_gateway_metrics_are_served_when_enabled(home: Home, start: Callable[..., Gateway]) -> None:
    http = {"endpoints": {"metrics": {"enabled": True}}}
    change(home, gateway={"auth": {"token": TOKEN}, "http": http})
    gateway = start().wait_ready()
    address = gateway.url.replace("ws://", "http://")
    with httpx2.Client(trust_env=False) as client:
        assert client.get(f"{address}/health").json() == {"ok": True, "status": "live"}
        assert client.get(f"{address}/metrics").status_code == 401
        known = {"Authorization": f"Bearer {TOKEN}"}
        figures = client.get(f"{address}/metrics", headers=known).text
    assert "homarus_uptime_seconds" in figures


async def test_gateway_private_files_are_unreadable_by_others(gateway: Gateway, home: Home) -> None:
    async with connect_client(gateway) as (client, events):
        await events.end_of(await send(client, "MOCK:short"))
    open_files = [
        path
        for path in (*home.state.rglob("*"), home.path / "log.jsonl")
        if path.is_file()
        and path.stat().st_mode & 0o077
        and not path.is_relative_to(home.workspace)
        and path.name != "openclaw.json"  # written by this test
    ]
    assert not open_files
    log: str = (home.path / "log.jsonl").read_text(encoding="utf-8")
    assert TOKEN not in log and TOKEN not in gateway.output
    assert Path(f"/proc/{gateway.process.pid}").exists()
