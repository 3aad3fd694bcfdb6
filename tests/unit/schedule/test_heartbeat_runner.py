"""Heartbeats of a complete program: alerts, acknowledgements, preemption, notices."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ProviderTimeoutError
from homarus.core.message import Inbound, ToolCall
from homarus.schedule.heartbeat_request import HeartbeatRequest
from homarus.sessions.session import Session
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import answer
from tests.unit.schedule.heartbeat_harness import (
    EVERY_S,
    KEY,
    HeartbeatHarness,
    heartbeat_world,
    person,
)

_OK = "HEARTBEAT_OK"


async def state_of(it: HeartbeatHarness) -> tuple[Any, ...]:
    """Return what a heartbeat must not change when it found nothing."""
    session: Session = await it.app.control.load(KEY)
    data = session.record.data
    names = ("totalTokens", "inputTokens", "outputTokens", "lastChannel", "lastTo", "origin")
    messages = [(m.role, m.text) for m in session.messages]
    return session.record.updated_ms, [data.get(name) for name in names], session.leaf, messages


async def test_heartbeat_alert_is_sent_once_to_the_last_chat(tmp_path: Path) -> None:
    script = [answer("hi"), answer("Mail of Bob."), answer("Mail of Bob."), answer("Rain!")]
    async with heartbeat_world(tmp_path, script) as it:
        await it.write("hello", "m1")
        event = await it.beat()
        assert (event["status"], event["channel"], event["to"]) == ("sent", "list", "7")
        assert (event["preview"], event["indicatorType"]) == ("Mail of Bob.", "alert")
        assert await it.sent(2) == ["hi", "Mail of Bob."]
        entry = await it.entry()
        assert entry["lastHeartbeatText"] == "Mail of Bob."
        assert entry["lastHeartbeatSentAt"] == it.app.clock.now_ms()
        before = await state_of(it)
        event = await it.beat()
        assert (event["status"], event["reason"]) == ("skipped", "duplicate")
        assert await state_of(it) == before
        assert (await it.beat())["status"] == "sent"
        assert await it.sent(3) == ["hi", "Mail of Bob.", "Rain!"]
        prompt = it.it.model.requests[1].messages[-1].text
        assert prompt.startswith("Read HEARTBEAT.md") and "\nCurrent time: " in prompt


async def test_heartbeat_alert_is_sent_again_after_an_answer_or_a_day(tmp_path: Path) -> None:
    script = [answer("hi"), *[answer("Rain!")] * 2, answer("Thanks."), *[answer("Rain!")] * 2]
    async with heartbeat_world(tmp_path, script, {"every": "12h"}) as it:
        await it.write("hello", "m1")
        assert (await it.beat(12 * 3600))["status"] == "sent"
        assert (await it.beat(12 * 3600))["reason"] == "duplicate"
        await it.write("I saw it", "m2")
        assert (await it.beat(12 * 3600))["status"] == "sent"
        await it.it.clock.advance(12 * 3600 - 1)
        it.it.clock.step(12 * 3600)
        assert (await it.beat(60))["status"] == "sent"


async def test_heartbeat_ack_leaves_session_as_it_was(tmp_path: Path) -> None:
    script = [answer("hi"), answer(f"**{_OK}** all quiet"), answer(_OK), answer("yes")]
    async with heartbeat_world(tmp_path, script) as it:
        await it.write("hello", "m1")
        before = await state_of(it)
        for _ in range(2):
            event = await it.beat()
            assert (event["status"], event["silent"], event["indicatorType"]) == (
                "ok-token",
                True,
                "ok",
            )
        assert await state_of(it) == before
        assert it.texts == ["hi"]
        session = await it.app.control.load(KEY)
        entries = await it.it.store.entries(session.session_id)
        assert sum(entry.type == "message" for entry in entries) == 6  # nothing is rewritten
        await it.write("still there?", "m2")
        said = [m.text for m in it.it.model.requests[-1].messages]
        assert not any("HEARTBEAT" in text for text in said)
        rows = await it.app.store.journal.inbox_records("silent")
        assert [(row.why, row.channel) for row in rows] == [("ok-token", "heartbeat")] * 2


async def test_heartbeat_shows_ok_where_the_channel_wants_it(tmp_path: Path) -> None:
    config = {"channels": {"defaults": {"heartbeat": {"showOk": True}}}}
    async with heartbeat_world(tmp_path, [answer("hi"), answer(_OK)], config=config) as it:
        await it.write("hello", "m1")
        event = await it.beat()
        assert (event["status"], event["silent"]) == ("ok-token", False)
        assert await it.sent(2) == ["hi", _OK]


async def test_heartbeat_hides_alerts_where_the_channel_wants_it(tmp_path: Path) -> None:
    config = {"channels": {"defaults": {"heartbeat": {"showAlerts": False}}}}
    async with heartbeat_world(tmp_path, [answer("hi"), answer("Rain!")], config=config) as it:
        await it.write("hello", "m1")
        event = await it.beat()
        assert (event["status"], event["reason"]) == ("skipped", "alerts-disabled")
        assert it.texts == ["hi"]


async def test_heartbeat_that_no_one_notices_calls_no_model(tmp_path: Path) -> None:
    hidden = {"showOk": False, "showAlerts": False, "useIndicator": False}
    config = {"channels": {"defaults": {"heartbeat": hidden}}}
    async with heartbeat_world(tmp_path, [], config=config) as it:
        assert (await it.beat())["reason"] == "alerts-disabled"
        assert it.it.model.requests == []


async def test_heartbeat_without_chat_keeps_alert_in_transcript(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [answer("Rain!")]) as it:
        event = await it.beat()
        assert (event["status"], event["reason"]) == ("skipped", "no-target")
        session = await it.app.control.load(KEY)
        assert session.messages[-1].text == "Rain!"
        assert [c["state"] for name, c in it.it.gateway.broadcasts if name == "chat"] == ["final"]


async def test_heartbeat_run_is_hidden_from_clients(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [answer(_OK)]) as it:
        await it.beat()
        assert [name for name, _ in it.it.gateway.broadcasts if name == "chat"] == []


# Preemption


async def start_hanging(it: HeartbeatHarness) -> str:
    calls = len(it.it.model.requests) + 1
    await it.it.clock.advance(EVERY_S)
    await it.it.asked(calls)
    (run,) = it.app.control.active_runs(KEY)
    assert run.startswith("heartbeat:main:")
    return run


async def test_person_message_preempts_hanging_heartbeat_at_once(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [answer("hi"), Hang(), answer("here")]) as it:
        await it.write("hello", "m1")
        before = await state_of(it)
        run = await start_hanging(it)
        record = (await it.app.control.accept(KEY, person("are you there?", "m2"))).record
        answering = it.app.control.submit(KEY, record)
        assert it.app.runs._active[KEY].stopped_by == "preempt"
        outcome = await answering
        assert (outcome.status, outcome.text) == ("answered", "here")
        event = await it.until(1)
        assert (event["status"], event["reason"]) == ("skipped", "preempted")
        row = await it.app.store.journal.inbox_record(run)
        assert row and (row.state, row.why) == ("silent", "preempted")
        assert await it.sent(2) == ["hi", "here"]
        session = await it.app.control.load(KEY)
        assert [m.text for m in session.messages][:2] == [text for _, text in before[3]]
        assert [m.role for m in session.messages] == ["user", "assistant"] * 2


async def test_preempted_heartbeat_gives_its_notices_to_the_message(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [answer("hi"), Hang(), answer("here")]) as it:
        await it.write("hello", "m1")
        await it.it.ask("wake", mode="next-heartbeat", text="Milk is out")
        await start_hanging(it)
        assert it.app.notices.pending(KEY) == ()
        assert "Milk is out" in it.it.model.requests[1].messages[-1].text
        (record,) = (await it.it.store.records("notice")).values()
        assert record["run"].startswith("heartbeat:")
        await it.write("are you there?", "m2")
        assert "Milk is out" in it.it.model.requests[2].messages[-1].text
        assert it.it.model.requests[2].messages[-1].text.count("Milk is out") == 1
        assert await it.it.store.records("notice") == {}


async def test_person_run_starts_within_few_loop_turns(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [answer("hi"), Hang(), answer("here")]) as it:
        await it.write("hello", "m1")
        await start_hanging(it)
        record = (await it.app.control.accept(KEY, person("now?", "m2"))).record
        scope = it.app.runs._active[KEY]._scope
        assert scope
        it.app.control.submit(KEY, record)
        # The heartbeat is stopped in the same turn of the loop: nothing waits for its model.
        when = scope.when()
        assert when is not None and when <= asyncio.get_running_loop().time()
        turns = 0
        while not scope.expired():
            await asyncio.sleep(0)
            turns += 1
        assert turns <= 3


async def test_heartbeat_takes_no_place_of_people(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [Hang()]) as it:
        await start_hanging(it)
        assert it.app.lanes.snapshot()["main"][0] == 0


async def test_preempted_heartbeat_that_called_a_tool_stays(tmp_path: Path) -> None:
    call = ToolCall("c1", "exec", {"command": "true"})
    script = [answer("hi"), answer(call), Hang(), answer("here")]
    async with heartbeat_world(tmp_path, script, config={"tools": {"deny": ["exec"]}}) as it:
        await it.write("hello", "m1")
        await it.it.clock.advance(EVERY_S)
        await it.it.asked(3)
        await it.write("are you there?", "m2")
        session = await it.app.control.load(KEY)
        assert any(m.calls for m in session.messages)
        assert it.texts[:1] == ["hi"] and await it.sent(2) == ["hi", "here"]


async def test_heartbeat_waits_while_its_session_is_busy(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [Hang(), answer(_OK)]) as it:
        record = (await it.app.control.accept(KEY, person("hello"))).record
        it.app.control.submit(KEY, record)
        await it.it.asked(1)
        event = await it.beat()
        assert (event["status"], event["reason"]) == ("skipped", "requests-in-flight")
        await it.it.clock.advance(5)
        assert len(it.events) == 1  # told once
        await it.app.control.stop(KEY)
        async with asyncio.timeout(10):
            while it.app.control.is_busy(KEY):  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.001)
        event = await it.beat(1.5)
        assert event["status"] == "ok-token"


async def test_message_is_answered_before_a_waiting_heartbeat(tmp_path: Path) -> None:
    script = [Hang(), answer("two"), answer(_OK)]
    async with heartbeat_world(tmp_path, script) as it:
        control, runner = it.app.control, it.app.heartbeats._get_runner()
        first = (await control.accept(KEY, person("one", "m1"))).record
        control.submit(KEY, first)
        await it.it.asked(1)
        runner._is_busy = lambda _settings, _key: False  # the message came just after the check
        await runner.start(it.app.heartbeats.settings_of("main"), KEY, is_interval=False)
        second = control.submit_next(KEY, (await control.accept(KEY, person("two", "m2"))).record)
        control.stop_now(KEY, first.id)
        assert (await second).text == "two"
        assert (await it.until(1))["status"] == "ok-token"


# Notices and requests


async def test_exec_notice_is_relayed_at_once(tmp_path: Path) -> None:
    script = [answer("hi"), answer("The build is done.")]
    async with heartbeat_world(tmp_path, script, tasks="") as it:
        await it.write("hello", "m1")
        it.app._add_exec_notice(KEY, "Exec finished (session=a, code 0)", it.app.clock.now_ms())
        it.app.heartbeats.request(HeartbeatRequest("exec-event", "main", KEY))
        await it.it.clock.advance(0.3)
        assert (await it.until(1))["status"] == "sent"
        prompt = it.it.model.requests[1].messages[-1].text
        assert "Exec finished" in prompt and "in the background has ended" in prompt
        assert await it.sent(2) == ["hi", "The build is done."]


async def test_failed_heartbeat_keeps_its_notices_and_sends_nothing(tmp_path: Path) -> None:
    failure = ProviderTimeoutError("the model is away")
    async with heartbeat_world(tmp_path, [answer("hi"), failure, answer("Milk!")]) as it:
        await it.write("hello", "m1")
        before = await state_of(it)
        await it.it.ask("wake", mode="now", text="Milk is out")
        await it.it.clock.advance(0.3)
        event = await it.until(1)
        assert event["status"] == "failed" and "away" in event["reason"]
        assert event["indicatorType"] == "error"
        assert [notice.text for notice in it.app.notices.pending(KEY)] == ["Milk is out"]
        assert await state_of(it) == before
        assert (await it.beat(61))["status"] == "sent"
        assert await it.sent(2) == ["hi", "Milk!"]


async def test_notices_of_failed_heartbeat_are_retried_with_backoff(tmp_path: Path) -> None:
    failure = ProviderTimeoutError("the model is away")
    script = [answer("hi"), failure, failure, answer("Milk!")]
    async with heartbeat_world(tmp_path, script, {"every": "2h"}, tasks="") as it:
        await it.write("hello", "m1")
        await it.it.ask("wake", mode="now", text="Milk is out")
        assert (await it.beat(0.3))["status"] == "failed"
        await it.it.clock.advance(55)
        assert len(it.events) == 1
        assert (await it.beat(10))["status"] == "failed"
        await it.it.clock.advance(115)
        assert len(it.events) == 2
        assert (await it.beat(10))["status"] == "sent"
        assert await it.sent(2) == ["hi", "Milk!"]
        await it.it.clock.advance(3600)
        assert len(it.events) == 3


async def test_notices_of_failing_heartbeats_wait_after_five_retries(tmp_path: Path) -> None:
    failure = ProviderTimeoutError("the model is away")
    async with heartbeat_world(tmp_path, [failure] * 7, {"every": "4h"}, tasks="") as it:
        await it.it.ask("wake", mode="now", text="Milk is out")
        for wait_s in (0.3, 61, 121, 241, 481, 961):
            assert (await it.beat(wait_s))["status"] == "failed"
        await it.it.clock.advance(3 * 3600)
        assert len(it.events) == 6
        assert (await it.beat(3600))["status"] == "failed"  # by the interval


async def test_retry_is_dropped_when_a_message_takes_the_notices(tmp_path: Path) -> None:
    failure = ProviderTimeoutError("the model is away")
    async with heartbeat_world(tmp_path, [failure, answer("hi")], {"every": "2h"}) as it:
        await it.it.ask("wake", mode="now", text="Milk is out")
        assert (await it.beat(0.3))["status"] == "failed"
        await it.write("hello", "m1")
        assert "Milk is out" in it.it.model.requests[1].messages[-1].text
        await it.it.clock.advance(3600)
        assert len(it.events) == 1 and len(it.it.model.requests) == 2


async def test_heartbeat_that_a_person_stopped_is_not_retried(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [Hang()], {"every": "2h"}, tasks="") as it:
        await it.it.ask("wake", mode="now", text="Milk is out")
        await it.it.clock.advance(0.3)
        await it.it.asked(1)
        await it.app.control.stop(KEY)
        assert (await it.until(1))["reason"] == "aborted"
        await it.it.clock.advance(3600)
        assert len(it.it.model.requests) == 1


async def test_stored_notices_are_relayed_after_a_restart(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [answer("hi")]) as it:
        await it.write("hello", "m1")
        await it.it.ask("wake", mode="now", text="Milk is out")
    async with heartbeat_world(tmp_path, [answer("Milk!")]) as it:
        assert (await it.it.ask("status"))["queuedSystemEvents"] == ["Milk is out"]
        await it.it.clock.advance(0.3)
        assert (await it.until(1))["status"] == "sent"
        assert await it.it.store.records("notice") == {}


async def test_message_of_person_takes_stored_notices(tmp_path: Path) -> None:
    async with heartbeat_world(tmp_path, [answer("hi")], {"enabled": False}) as it:
        await it.it.ask("system-event", text="The door is open")
        await it.write("hello", "m1")
        assert "The door is open" in it.it.model.requests[0].messages[-1].text
        assert await it.it.store.records("notice") == {}


# Settings


async def test_isolated_heartbeat_has_no_history(tmp_path: Path) -> None:
    script = [answer("hi"), answer("Rain!"), answer(_OK), answer("yes")]
    settings = {"isolatedSession": True, "lightContext": True, "model": "mock/mock-1"}
    async with heartbeat_world(tmp_path, script, settings) as it:
        await it.write("hello", "m1")
        await it.it.ask("wake", mode="next-heartbeat", text="Milk is out")
        assert (await it.beat())["status"] == "sent"
        assert (await it.beat())["status"] == "ok-token"
        first, second = (request.messages for request in it.it.model.requests[1:3])
        assert len(first) == len(second) == 1
        assert "Milk is out" in first[0].text and "Milk is out" not in second[0].text
        system = it.it.model.requests[1].system
        assert "check the mail" in system and "SOUL.md" not in system
        assert await it.sent(2) == ["hi", "Rain!"]


async def test_reasoning_is_sent_if_the_heartbeat_includes_it(tmp_path: Path) -> None:
    from homarus.core.message import Thinking

    script = [answer("hi"), answer(Thinking("clouds"), "Rain!")]
    async with heartbeat_world(tmp_path, script, {"includeReasoning": True}) as it:
        await it.write("hello", "m1")
        await it.beat()
        assert any("clouds" in text for text in await it.sent(3))


@pytest.mark.parametrize("is_suppressed", [False, True])
async def test_failed_tool_is_reported_unless_suppressed(
    tmp_path: Path, is_suppressed: bool
) -> None:
    script = [answer("hi"), answer(ToolCall("c1", "read", {"path": "no.txt"})), answer("")]
    settings = {"suppressToolErrorWarnings": is_suppressed}
    async with heartbeat_world(tmp_path, script, settings) as it:
        await it.write("hello", "m1")
        event = await it.beat()
        assert event["status"] == ("ok-empty" if is_suppressed else "sent")


async def test_heartbeat_does_not_reset_a_stale_session(tmp_path: Path) -> None:
    script = [answer("hi"), answer(_OK), answer("new")]
    async with heartbeat_world(tmp_path, script, {"every": "48h"}) as it:
        await it.write("hello", "m1")
        before = (await it.app.control.load(KEY)).session_id
        assert (await it.beat(48 * 3600))["status"] == "ok-token"
        assert (await it.app.control.load(KEY)).session_id == before
        await it.write("hello again", "m2")  # and the heartbeat did not keep it alive
        assert (await it.app.control.load(KEY)).session_id != before


def test_person_message_is_no_heartbeat() -> None:
    message: Inbound = person("hello")
    assert not message.is_heartbeat and not message.is_internal
