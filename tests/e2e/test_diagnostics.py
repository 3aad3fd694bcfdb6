"""Diagnostic events and metrics of what no person starts: webhooks, jobs, heartbeats."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.e2e.gateway import TOKEN, Gateway, change, wait_for
from tests.e2e.program import Home
from tests.e2e.test_trace import fetch_metrics
from tests.e2e.test_webhooks import Sender, configure
from tests.unit.diagnostics.test_metric_families import parse

pytestmark = pytest.mark.slow


def logged(home: Home, kind: str, **fields: object) -> list[Mapping[str, Any]]:
    """Return the diagnostic events of a type in the log, with these fields."""
    lines = (home.path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    events = [
        json.loads(each["message"])
        for each in records
        if each["logger"].endswith(".diagnostics.event_log")
    ]
    return [each for each in events if each["type"] == kind and fields.items() <= each.items()]


def counts(family: Mapping[tuple[tuple[str, str], ...], float], label: str) -> dict[str, float]:
    """Return the values of a metric by one of its labels."""
    return {dict(labels)[label]: value for labels, value in family.items()}


def test_webhook_job_and_heartbeat_leave_events_and_metrics(
    home: Home, start: Callable[..., Gateway]
) -> None:
    configure(home)
    http = {"endpoints": {"metrics": {"enabled": True}}}
    change(home, gateway={"auth": {"token": TOKEN}, "http": http}, diagnostics={"enabled": True})
    gateway = start().wait_ready()
    sender = Sender(gateway)
    assert sender.post("agent", {"message": "MOCK:say:Noted.§"})[0] == 202
    assert sender.post("agent", {"message": ""})[0] == 400
    job = "cron", "add", "--name", "tea", "--at", "2h", "--session", "isolated", "--no-deliver"
    added = home.run(*job, "--message", "MOCK:say:Tea.§", "--json").json
    assert home.run("cron", "run", added["id"]).status == 0
    assert home.run("system", "event", "--text", "Milk is out", "--mode", "now").status == 0
    ends = {"hook": "agent:main:hook:", "agent": "agent:main:cron:", "heartbeat": "agent:main:main"}
    for channel in ends:
        wait_for(partial(logged, home, "message.processed", channel=channel))

    (refused,) = logged(home, "webhook.error")
    assert refused["channel"] == "hooks" and refused["error"] == "message required"
    assert len(logged(home, "webhook.received", channel="hooks")) == 2
    (processed,) = logged(home, "webhook.processed")
    assert processed["channel"] == "hooks" and processed["durationMs"] >= 0
    for channel, start_of_key in ends.items():
        queued = logged(home, "message.queued", channel=channel)[0]
        key = queued["sessionKey"]
        assert key.startswith(start_of_key) and logged(home, "run.attempt", sessionKey=key)
        assert logged(home, "model.usage", sessionKey=key, channel=channel)
        assert logged(home, "message.processed", sessionKey=key, outcome="completed")
    assert logged(home, "queue.lane.dequeue", lane="cron")
    assert logged(home, "queue.lane.dequeue", lane="heartbeat")
    wait_for(lambda: "homarus_heartbeats_total" in fetch_metrics(gateway.url))
    metrics = parse(fetch_metrics(gateway.url))
    assert counts(metrics["homarus_cron_slots_total"], "outcome") == {"ok": 1}
    assert counts(metrics["homarus_heartbeats_total"], "status").keys() <= {"sent", "skipped"}
    events = counts(metrics["homarus_webhook_events_total"], "event")
    assert events == {"received": 2, "processed": 1, "error": 1}
