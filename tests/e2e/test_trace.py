"""`homarus trace` of real runs: with a gateway, without one, and after `kill -9`."""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.request import Request, urlopen

import pytest

from homarus.testing.telegram_server import ADA, TelegramServer
from tests.e2e.gateway import TOKEN, Gateway, change, connect_client, send
from tests.e2e.program import Home, Open
from tests.unit.diagnostics.collector import attributes, running_collector
from tests.unit.diagnostics.test_metric_families import parse
from tests.waiting import until

pytestmark = pytest.mark.slow

HOPS = [
    "received", "accepted", "routed", "submitted", "queued", "prepared", "prompt", "loop",
    "settled", "delivered",
]  # fmt: skip
NEEDED = ["accepted", "submitted", "queued", "prepared", "prompt", "loop", "settled"]


def by_name(report: Mapping[str, Any]) -> dict[str, Any]:
    hops = sorted(report["hops"], key=lambda hop: int(hop["hop"]))
    assert [hop["name"] for hop in hops] == HOPS
    return {hop["name"]: hop for hop in hops}


def steps_of(report: Mapping[str, Any], kind: str) -> Sequence[Mapping[str, Any]]:
    return [step for step in by_name(report)["loop"]["steps"] if step["kind"] == kind]


def test_trace_of_approved_tool_call_shows_every_hop(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    gateway = Gateway(home).wait_ready()
    try:
        chat = open_chat()
        chat.wait_for("> ")
        chat.type('MOCK:tool:exec:{"command":"touch here.txt"}§')
        chat.wait_for("/N]")
        live = home.run("trace", "--json").json
        assert (
            live["state"] == "running" and "waits for the approval of the tool exec" in live["now"]
        )
        chat.type("y")
        chat.wait_for("Hello from the mock model.")
        report = home.run("trace", "last", "--json").json
        hops = by_name(report)
        assert report["state"] == "answered" and not report["interrupted"] and not report["now"]
        assert all(hops[name]["at"] for name in NEEDED)
        times = [hops[name]["at"] for name in NEEDED]
        assert times == sorted(times)
        assert hops["accepted"]["channel"] == "cli" and hops["queued"]["mode"] == "idle"
        first, second = steps_of(report, "model")
        (tool,) = steps_of(report, "tool")
        assert first["ttfbMs"] is not None and first["ms"] >= first["ttfbMs"]
        assert first["provider"] and first["promptTokens"] > 0 and second["input"] > 0
        assert tool["name"] == "exec" and tool["decision"] == "ask" and tool["approval"]
        assert tool["outcome"] == "ok" and 0 < tool["approvalMs"] <= tool["ms"]
        shown = home.run("trace").out
        assert "tool exec" in shown and "asked (" in shown and "2 model calls" in shown
    finally:
        gateway.close()
    stopped = home.run("trace", "last", "--json").json  # from the store
    assert stopped["hops"] == report["hops"]


async def test_trace_of_telegram_message_shows_route_and_attempts(
    home: Home, model_url: str
) -> None:
    async with TelegramServer() as service:
        home.use_model(model_url)
        account = {"enabled": True, "botToken": service.token, "apiRoot": service.url}
        change(home, channels={"telegram": account | {"dmPolicy": "open", "allowFrom": ["*"]}})
        gateway = await asyncio.to_thread(lambda: Gateway(home).wait_ready())
        try:
            service.trouble("sendMessage", status=429, retry_after=1)
            service.say("MOCK:short")
            await until(lambda: service.sent(chat=ADA), 0.05)
            report = await traced(
                home, "last", lambda it: it["state"] == "answered" and not it["now"]
            )
        finally:
            gateway.close()
    hops = by_name(report)
    assert hops["received"]["at"] and hops["routed"]["why"] and hops["routed"]["agent"] == "main"
    assert hops["accepted"]["dedupeKey"].startswith("telegram:default:")
    (message,) = hops["delivered"]["messages"]
    assert message["state"] == "sent" and message["receipt"] and message["attempts"] == 2
    assert [each["state"] for each in message["tries"]] == ["pending", "sent"]
    assert "retry" in message["tries"][0]["why"] or "429" in message["tries"][0]["why"]
    assert hops["delivered"]["at"] >= hops["settled"]["at"]
    by_reply = await asyncio.to_thread(home.run, "trace", message["id"], "--json")
    assert by_reply.json["runId"] == report["runId"]


async def traced(
    home: Home, name: str, wanted: Callable[[Mapping[str, Any]], object]
) -> Mapping[str, Any]:
    """Return the trace of a run as soon as it is as wanted."""
    while True:
        report: Mapping[str, Any] = (
            await asyncio.to_thread(home.run, "trace", name, "--json")
        ).json
        if wanted(report):
            return report


async def test_trace_after_kill_shows_interruption_and_resumption(
    home: Home, model_url: str
) -> None:
    home.use_model(model_url)
    change(home, gateway={"auth": {"token": TOKEN}})
    gateway = await asyncio.to_thread(lambda: Gateway(home).wait_ready())
    async with connect_client(gateway) as (client, _events):
        run = await send(client, 'MOCK:tool:read:{"path":"AGENTS.md"}§MOCK:next MOCK:hold')
        live = await traced(home, run, lambda it: "calls" in it["now"] and steps_of(it, "tool"))
        assert live["state"] == "running"
        gateway.signal(signal.SIGKILL)
        gateway.end()
    report = (await asyncio.to_thread(home.run, "trace", run, "--json")).json
    assert report["state"] == "interrupted" and report["interrupted"] == 1
    assert "resumed when a gateway runs" in report["now"] and not by_name(report)["settled"]["at"]
    (tool,) = steps_of(report, "tool")
    (model,) = steps_of(report, "model")
    assert tool["name"] == "read" and tool["interrupted"] and tool["outcome"] == "ok"
    assert model["provider"] == "mock" and model["interrupted"]
    shown = (await asyncio.to_thread(home.run, "trace", run)).out
    assert "interrupted once by the end of the program" in shown and "tool read" in shown


async def test_gateway_exports_spans_and_metrics_of_a_run(home: Home, model_url: str) -> None:
    with running_collector() as collector:
        home.use_model(model_url)
        export = {"enabled": True, "endpoint": collector.url, "flushIntervalMs": 60_000}
        http = {"endpoints": {"metrics": {"enabled": True}}}
        change(
            home,
            gateway={"auth": {"token": TOKEN}, "http": http},
            diagnostics={"enabled": True, "otel": export},
            logging={"file": str(home.path / "log.jsonl")},
        )
        gateway = await asyncio.to_thread(lambda: Gateway(home).wait_ready())
        async with connect_client(gateway) as (client, events):
            run = await send(client, 'MOCK:tool:read:{"path":"AGENTS.md"}§MOCK:next MOCK:short')
            await events.end_of(run)
            text = await asyncio.to_thread(fetch_metrics, gateway.url)
        gateway.signal(signal.SIGTERM)
        await asyncio.to_thread(gateway.end)
    parsed = parse(text)
    assert parsed["homarus_runs_total"] and parsed["homarus_model_first_byte_seconds"]
    names = [span.name for span in collector.spans()]
    assert names == ["invoke_agent main", "chat mock-1", "execute_tool read", "chat mock-1"]
    assert attributes(collector.spans()[0])["homarus.run.id"] == run
    assert "homarus.model_tokens_total" in collector.metric_names()
    log = (home.path / "log.jsonl").read_text(encoding="utf-8")
    for kind in ("model.usage", "session.state", "run.attempt", "message.processed"):
        assert f'\\"type\\": \\"{kind}\\"' in log


def fetch_metrics(url: str) -> str:
    address = f"{url.replace('ws://', 'http://')}/metrics"
    request = Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, timeout=10) as response:
        return str(response.read().decode())
