"""health, status, presence, notices, models, logs, usage, devices."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.core.message import ToolCall
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.idempotency import MAX_ANSWERS, IdempotencyCache
from homarus.gateway.methods import UNIMPLEMENTED
from homarus.gateway.run_tracker import MAX_ENDED, RunTracker
from homarus.gateway.usage_cache import UsageCache
from homarus.sessions.notices import MAX_NOTICES, Notices
from homarus.sessions.usage import summarize_usage
from homarus.store.base import TranscriptEntry
from homarus.testing.clock import FakeClock
from tests.unit.gateway.app_harness import answer, run


async def test_health_is_cached_for_a_minute_unless_probed(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x")) as it:
        first = await it.ask("health")
        await it.send("hi", "a")
        assert await it.ask("health") == first
        probed = await it.ask("health", probe=True)
        assert probed["sessions"]["count"] == 1
        assert [name for name, _ in it.gateway.broadcasts].count("health") == 2
        await it.clock.advance(61)
        assert (await it.ask("health"))["ts"] > first["ts"]


async def test_status_counts_unimplemented_and_hides_paths_without_admin(
    tmp_path: Path,
) -> None:
    async with run(tmp_path, answer("x")) as it:
        await it.send("hi", "a")
        full = await it.ask("status")
        assert full["notBuilt"]["count"] == len(UNIMPLEMENTED)
        assert full["sessions"]["recent"][0]["key"] == "agent:main:main"
        assert str(tmp_path) in json.dumps(full)
        seen = await it.ask("status", None, "read")
        assert str(tmp_path) not in json.dumps(seen)


async def test_system_event_of_a_device_adds_it_to_presence(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        said = {"text": "Node: Kitchen", "host": "kitchen", "mode": "node", "lastInputSeconds": 5}
        assert await it.ask("system-event", said) == {"ok": True}
        listed = await it.ask("system-presence")
        assert any(entry.get("host") == "kitchen" for entry in listed)
        assert it.gateway.broadcasts[-1][0] == "presence"


async def test_system_event_is_delivered_once_with_the_next_message(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x"), answer("y")) as it:
        await it.ask("system-event", text="The door\nis open")
        await it.ask("system-event", text="The door\nis open")
        await it.ask("wake", mode="next-heartbeat", text="Milk is out")
        assert (await it.ask("status"))["queuedSystemEvents"] == ["The door is open", "Milk is out"]
        await it.send("anything new?", "a")
        lines = it.model.requests[0].messages[-1].text.splitlines()
        assert lines[0].startswith("System: [2027-01-15 ") and lines[0].endswith("The door is open")
        assert lines[1].endswith("Milk is out")
        assert lines[3].endswith("] anything new?")
        await it.send("and now?", "b")
        assert "System:" not in it.model.requests[1].messages[-1].text


async def test_wake_now_starts_a_heartbeat_at_once(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x")) as it:
        assert await it.ask("wake", mode="now", text="Fire!") == {"ok": True}
        await it.clock.advance(0.3)
        await it.asked(1)
        said = it.model.requests[0].messages[-1].text
        assert said.startswith("System: [") and "] Fire!\n\nRead HEARTBEAT.md" in said
        assert await it.ask("wake", mode="now", text="  ") == {"ok": False}


async def test_wake_now_says_why_no_heartbeat_takes_it_up(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x")) as it:
        await it.ask("set-heartbeats", enabled=False)
        told = await it.ask("wake", mode="now", text="Fire!")
        assert told == {"ok": True, "delayedBy": "switched-off"}
        assert await it.ask("wake", mode="next-heartbeat", text="Milk") == {"ok": True}
        await it.ask("set-heartbeats", enabled=True)
        assert await it.ask("wake", mode="now", text="Smoke!") == {"ok": True}


def test_notices_are_bounded() -> None:
    notices = Notices()
    for n in range(100):
        notices.add("k", f"n{n} " + "x" * 9_000, n)
    assert len(notices.pending("k")) == MAX_NOTICES
    assert all(len(notice.text) <= 2_000 for notice in notices.pending("k"))
    for n in range(1_000):
        notices.add(f"key{n}", "x", n)
    assert len(notices._waiting) == 200


async def test_idempotency_cache_is_bounded_in_time_and_size() -> None:
    clock = FakeClock()
    answers = IdempotencyCache(clock)
    answers.save("a", {"runId": "a"})
    await clock.advance(299)
    assert answers.get("a") == {"runId": "a"}
    await clock.advance(2)
    assert answers.get("a") is None
    for n in range(MAX_ANSWERS + 50):
        answers.save(f"k{n}", n)
    assert len(answers._answers) == MAX_ANSWERS
    assert answers.get("k0") is None and answers.get(f"k{MAX_ANSWERS + 49}") is not None


async def test_ended_runs_are_kept_ten_minutes_and_bounded() -> None:
    clock = FakeClock()
    runs = RunTracker(clock)
    runs.record_end("a", None, dropped=True)
    ended = await runs.wait("a", 0)
    assert ended and ended.status == "timeout"
    await clock.advance(601)
    assert await runs.wait("a", 0) is None
    for n in range(MAX_ENDED + 10):
        runs.record_end(f"r{n}", None)
    assert len(runs._ended) == MAX_ENDED


async def test_models_list_contains_the_allowed_models(tmp_path: Path) -> None:
    allowed = {"model": "mock/mock-1", "models": {"mock/mock-1": {}}}
    async with run(tmp_path, config={"agents": {"defaults": allowed}}) as it:
        (model,) = (await it.ask("models.list"))["models"]
        assert (model["provider"], model["id"]) == ("mock", "mock-1")


async def test_logs_tail_continues_from_the_cursor(tmp_path: Path) -> None:
    log = tmp_path / "homarus.log"
    async with run(tmp_path) as it:
        log.write_text("one\ntwo\nthr")
        first = await it.ask("logs.tail")
        assert first["lines"] == ["one", "two"] and first["cursor"] == 8
        with log.open("a") as file:
            file.write("ee\nfour\n")
        second = await it.ask("logs.tail", cursor=first["cursor"])
        assert second["lines"] == ["three", "four"] and "truncated" not in second
        assert (await it.ask("logs.tail", cursor=second["cursor"]))["lines"] == []
        log.write_text("new\n")
        reset = await it.ask("logs.tail", cursor=second["cursor"])
        assert (reset["lines"], reset["reset"]) == (["new"], True)


async def test_logs_tail_is_bounded_and_starts_with_a_complete_line(tmp_path: Path) -> None:
    log = tmp_path / "homarus.log"
    async with run(tmp_path) as it:
        log.write_text("".join(f"line {n:04}\n" for n in range(1_000)))
        shown = await it.ask("logs.tail", maxBytes=25)
        assert shown["lines"] == ["line 0998", "line 0999"] and shown["truncated"] is True
        exact = await it.ask("logs.tail", maxBytes=20)
        assert exact["lines"] == ["line 0998", "line 0999"]
        few = await it.ask("logs.tail", limit=3)
        assert few["lines"][0] == "line 0997" and few["truncated"] is True
        log.write_text("x" * 100_000 + "\n")
        (long,) = (await it.ask("logs.tail"))["lines"]
        assert len(long) == 8_000


async def test_logs_tail_redacts_secrets(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        (tmp_path / "homarus.log").write_text('{"m": "apiKey=sk-abcdefghijklmnop"}\n')
        (line,) = (await it.ask("logs.tail"))["lines"]
        assert "abcdefghijklmnop" not in line


async def test_logs_tail_reads_only_a_regular_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "homarus.log").symlink_to(tmp_path / "secret")
    async with run(tmp_path) as it:
        from homarus.core.errors import UnavailableError

        with pytest.raises(UnavailableError, match="cannot be read"):
            await it.ask("logs.tail")
        (tmp_path / "homarus.log").unlink()
        os.mkfifo(tmp_path / "homarus.log")
        with pytest.raises(UnavailableError, match="cannot be read"):
            await it.ask("logs.tail")


def day(at_ms: int) -> str:
    return str(datetime.fromtimestamp(at_ms / 1000).astimezone().date())


async def test_usage_is_summed_by_day_session_and_model(tmp_path: Path) -> None:
    async with run(
        tmp_path, answer(ToolCall("c", "read", {"path": "AGENTS.md"})), answer("x"), answer("y")
    ) as it:
        await it.send("one", "a", "agent:main:x")
        await it.send("two", "b", "agent:main:y")
        today = day(it.app.clock.now_ms())
        total = await it.ask("usage.cost")
        assert total["totals"]["totalCost"] == 0.75
        assert [entry["date"] for entry in total["daily"]] == [today]
        assert total["endDate"] == today
        assert (await it.ask("usage.cost", days=7))["days"] == 7
        before = await it.ask("usage.cost", startDate="2026-01-01", endDate="2026-01-31")
        assert (before["days"], before["daily"]) == (31, [])
        week = await it.ask("sessions.usage", days=7, endDate="2026-01-31")
        assert (week["startDate"], week["endDate"]) == ("2026-01-25", "2026-01-31")
        used = await it.ask("sessions.usage")
        assert [one["key"] for one in used["sessions"]] == ["agent:main:y", "agent:main:x"]
        assert used["totals"]["input"] == 300
        (by_model,) = used["aggregates"]["byModel"]
        assert (by_model["provider"], by_model["count"]) == ("mock", 3)
        assert used["aggregates"]["tools"]["tools"] == [{"name": "read", "count": 1}]
        (one,) = (await it.ask("sessions.usage", key="x"))["sessions"]
        assert one["usage"]["messageCounts"]["toolResults"] == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"startDate": "2026-02-30"},
        {"startDate": "2026-02-10", "endDate": "2026-02-09"},
        {"startDate": "0001-01-01"},
        {"endDate": "9999-12-31"},
        {"startDate": "1971-01-01", "endDate": "9000-01-01"},
        {"startDate": "yesterday"},
    ],
)
async def test_usage_with_invalid_days_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for method in ("usage.cost", "sessions.usage"):
            with pytest.raises(InvalidRequestError):
                await it.ask(method, asked)


async def test_usage_reads_a_transcript_once(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x"), answer("y")) as it:
        await it.send("one", "a")
        record = await it.app.store.session("agent:main:main")
        assert record
        spending = UsageCache()
        first = await spending.summary_of(it.app.store, record)
        assert await spending.summary_of(it.app.store, record) is first
        await it.send("two", "b")
        again = await it.app.store.session("agent:main:main")
        assert again and (await spending.summary_of(it.app.store, again)).totals.talk.user == 2


@pytest.mark.parametrize(
    "message",
    [None, 5, {}, {"role": "assistant"}, {"role": "assistant", "content": 5, "usage": []},
     {"role": "assistant", "usage": {"input": "x", "cost": {"total": float("inf")}}},
     {"role": "assistant", "content": [{"type": "toolCall", "name": 5}], "provider": ["x"]}],
)  # fmt: skip
def test_usage_sums_any_stored_message(message: Any) -> None:
    entry = TranscriptEntry("a", None, "message", 10**18, {"message": message})
    from homarus.store.usage import local_day

    summary = summarize_usage([entry, entry], local_day)
    assert summary.totals.spent.usage.cost == 0


async def test_devices_are_approved_rejected_and_given_tokens(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        devices = it.gateway.authenticator.devices
        asks = [
            DevicePairingRequest(
                letter * 64, "k" * 43, "operator", ("operator.read",), platform="linux"
            )
            for letter in "ab"
        ]
        wanted, unwanted = (devices.request(ask) for ask in asks)
        listed = await it.ask("device.pair.list")
        assert {entry["requestId"] for entry in listed["pending"]} == {wanted, unwanted}
        with pytest.raises(InvalidRequestError, match="missing scope"):
            await it.ask("device.pair.approve", {"requestId": wanted}, "pairing")
        approved = await it.ask("device.pair.approve", requestId=wanted)
        assert approved["device"]["deviceId"] == "a" * 64
        rejected = await it.ask("device.pair.reject", requestId=unwanted)
        assert rejected == {"requestId": unwanted, "deviceId": "b" * 64}
        rotated = await it.ask("device.token.rotate", deviceId="a" * 64, role="operator")
        assert rotated["token"] and rotated["scopes"] == ["operator.read"]
        assert rotated["token"] not in json.dumps(await it.ask("device.pair.list"))
        revoked = await it.ask("device.token.revoke", deviceId="a" * 64, role="operator")
        assert revoked["revokedAtMs"] == it.app.clock.now_ms()
        assert devices.find_token("a" * 64, "operator", rotated["token"]) is None
        for method, params in [
            ("device.pair.approve", {"requestId": "none"}),
            ("device.token.revoke", {"deviceId": "none", "role": "operator"}),
        ]:
            with pytest.raises(InvalidRequestError):
                await it.ask(method, params)


def test_idempotency_cache_keeps_long_answers_within_a_budget() -> None:
    answers = IdempotencyCache(FakeClock())
    for n in range(10):
        answers.save(f"k{n}", {"n": n}, 1_000_000)
    answers.save("k9", {"n": 9}, 1_000_000)
    assert answers.get("k1") is None and answers.get("k2") == {"n": 2}
    assert len(answers._answers) == 8
