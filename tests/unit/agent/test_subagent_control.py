"""Sub-agents that are stopped, steered, nested, limited, resumed and archived."""

import json
from pathlib import Path

import pytest

from homarus.core.errors import UserError
from homarus.core.message import Message, ToolCall
from homarus.providers.base import ModelRequest
from homarus.store.subagents import SubagentRecord, find_subagent, put_subagent
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import assistant_message
from tests.unit.agent.subagent_harness import (
    PARENT,
    Stage,
    last_text,
    open_stage,
    spawn_call,
    wait_for,
)
from tests.waiting import until

pytestmark = pytest.mark.timeout(60)
TASK, NEWS = "[Subagent Task]", "[System Message]"


def held(text: str, _request: ModelRequest) -> str | Message | None:
    """A parent whose sub-agents never answer, unless they are steered."""
    if TASK in text:
        return None
    if text.endswith("go"):
        return spawn_call("work", label="work")
    return f"said: {text[-20:]}"


async def start_child(stage: Stage) -> SubagentRecord:
    """Have the parent start a sub-agent; return it when its model was asked."""
    await (await stage.say("go"))
    await until(lambda: stage.model.asked(TASK))
    return (await stage.records())[-1]


# Stop and steer


async def test_stop_of_the_parent_stops_its_children(tmp_path: Path) -> None:
    async with open_stage(tmp_path, held) as stage:
        child = await start_child(stage)
        outcome = await (await stage.say("/stop", authority="owner"))
        assert outcome.text == "Stopped. 1 sub-agent stopped."
        [record] = await stage.ended()
        await stage.idle(child.child_key)
        assert (record.status, record.unannounced) == ("killed", "killed")
        await stage.idle()
        assert not await stage.announcements()
        [row] = await stage.app.store.journal.inbox_records(session=child.child_key)
        assert (row.state, row.why) == ("reported", "aborted")


async def test_stop_of_the_child_session_is_announced_as_stopped(tmp_path: Path) -> None:
    async with open_stage(tmp_path, held) as stage:
        child = await start_child(stage)
        await stage.app.control.stop(child.child_key, by="rpc")
        [record] = await stage.ended()
        await stage.idle()
        assert record.status == "killed"
        [text] = await stage.announcements()
        assert "was stopped by a person before it finished" in text


async def test_killed_child_ends_once_and_is_not_announced(tmp_path: Path) -> None:
    async with open_stage(tmp_path, held) as stage:
        child = await start_child(stage)
        service = stage.app.subagents()
        assert await service.kill(child.child_key) == 1
        assert await service.kill(child.child_key) == 0
        await stage.idle(child.child_key)
        await stage.idle()
        assert [one.status for one in await stage.records()] == ["killed"]
        assert not await stage.announcements()


async def test_steered_child_answers_the_new_message_alone(tmp_path: Path) -> None:
    async with open_stage(tmp_path, held) as stage:
        child = await start_child(stage)
        await stage.app.subagents().steer(child.child_key, "count the folders instead")
        [record] = await stage.ended()
        await stage.idle()
        assert record.status == "done" and record.result.endswith("the folders instead")
        assert record.run_id == child.run_id
        rows = await stage.app.store.journal.inbox_records(session=child.child_key)
        assert [(row.state, row.why) for row in rows] == [("reported", "steered"), ("answered", "")]
        [text] = await stage.announcements()
        assert "“work” finished" in text
        with pytest.raises(UserError, match="has ended"):
            await stage.app.subagents().steer(child.child_key, "more")


# Limits


async def test_session_has_at_most_five_active_children(tmp_path: Path) -> None:
    def six(text: str, request: ModelRequest) -> str | Message | None:
        if TASK in text:
            return None
        if text == "go":
            calls = [ToolCall(f"c{n}", "sessions_spawn", {"task": f"t{n}"}) for n in range(6)]
            return assistant_message(*calls)
        return "Started."

    async with open_stage(tmp_path, six) as stage:
        await (await stage.say("go"))
        session = await stage.app.control.load(PARENT)
        results = [
            json.loads(part.text)  # type: ignore[union-attr]  # each has one result
            for one in session.messages
            if one.role == "tool"
            for part in one.parts
        ]
        assert [one["status"] for one in results] == ["accepted"] * 5 + ["forbidden"]
        assert "5 active sub-agents" in results[-1]["error"]
        assert len(await stage.records()) == 5
        assert await stage.app.control.stop_children(PARENT) == 5


async def test_leaf_cannot_start_subagents_even_if_it_calls(tmp_path: Path) -> None:
    def nested(text: str, request: ModelRequest) -> str | Message | None:
        if TASK in text:
            return spawn_call("deeper")
        return spawn_call("work") if text.endswith("go") else "no"

    async with open_stage(tmp_path, nested) as stage:
        await (await stage.say("go"))
        await stage.ended()
        assert len(await stage.records()) == 1


async def test_nested_children_report_before_their_parent(tmp_path: Path) -> None:
    def nested(text: str, request: ModelRequest) -> str | Message | None:
        if TASK in text and text.endswith("outer"):
            return spawn_call("inner", label="inner")
        if TASK in text:
            return "the inner result"
        if NEWS in text and "“inner”" in text:
            return "outer knows: the inner result"
        if NEWS in text:
            return "told"
        return spawn_call("outer", label="outer") if text == "go" else "waiting"

    changes = {"agents.defaults.subagents.maxSpawnDepth": 2}
    async with open_stage(tmp_path, nested, changes) as stage:
        inner_done = stage.model.hold(f"{TASK} inner")
        await (await stage.say("go"))

        async def waits() -> bool:
            return any(one.is_active and not one.awaits for one in await stage.records())

        await wait_for(waits)
        outer, inner = sorted(await stage.records(), key=lambda one: one.depth)
        assert (inner.depth, inner.requester_key) == (2, outer.child_key)
        inner_done.set()
        await stage.ended(2)
        await stage.idle()
        outer, inner = sorted(await stage.records(), key=lambda one: one.depth)
        assert outer.result == "outer knows: the inner result" and outer.status == "done"
        assert inner.ended_ms <= outer.ended_ms
        [text] = await stage.announcements()
        assert "“outer” finished" in text and "outer knows" in text
        [inner_text] = await stage.announcements(outer.child_key)
        assert "“inner” finished" in inner_text


async def test_kill_of_a_nested_parent_stops_the_tree(tmp_path: Path) -> None:
    def nested(text: str, request: ModelRequest) -> str | Message | None:
        if TASK in text and text.endswith("outer"):
            return spawn_call("inner")
        if TASK in text:
            return None
        return spawn_call("outer") if text == "go" else "waiting"

    changes = {"agents.defaults.subagents.maxSpawnDepth": 2}
    async with open_stage(tmp_path, nested, changes) as stage:
        await (await stage.say("go"))
        await until(lambda: stage.model.asked(f"{TASK} inner"))
        outer = next(one for one in await stage.records() if one.depth == 1)
        assert await stage.app.subagents().kill(outer.child_key) == 2
        await stage.idle()
        assert {one.status for one in await stage.records()} == {"killed"}
        assert not await stage.announcements()


# A busy, reset or restarted parent


async def test_announcements_wait_for_a_busy_parent_in_order(tmp_path: Path) -> None:
    def two(text: str, request: ModelRequest) -> str | Message | None:
        if TASK in text:
            return f"result of {text[-1]}"
        if text == "go":
            calls = [ToolCall(f"c{n}", "sessions_spawn", {"task": f"t{n}"}) for n in (1, 2)]
            return assistant_message(*calls)
        return f"said {len(request.messages)}"

    async with open_stage(tmp_path, two) as stage:
        first, second = stage.model.hold(f"{TASK} t1"), stage.model.hold(f"{TASK} t2")
        await (await stage.say("go"))
        busy = stage.model.hold("talk")
        talk = await stage.say("talk")
        await until(lambda: stage.model.asked("talk"))
        second.set()
        await stage.ended(1)
        first.set()
        await stage.ended(2)
        busy.set()
        await talk
        await stage.idle()
        told = await stage.announcements()
        assert ["result of 2" in told[0], "result of 1" in told[1], len(told)] == [True, True, 2]


async def test_announcement_reaches_the_new_session_after_a_reset(tmp_path: Path) -> None:
    def answer(text: str, request: ModelRequest) -> str | Message | None:
        return "the result" if TASK in text else held(text, request)

    async with open_stage(tmp_path, answer) as stage:
        event = stage.model.hold(TASK)
        child = await start_child(stage)
        await stage.say("/new", authority="owner")
        await stage.idle()
        event.set()
        await stage.ended()
        await stage.idle()
        session = await stage.app.control.load(PARENT)
        assert len(await stage.announcements()) == 1
        assert all(one.text != "go" for one in session.messages)
        assert child.run_id


async def test_running_child_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with open_stage(tmp_path, held) as stage:
        child = await start_child(stage)

    def answering(text: str, request: ModelRequest) -> str | Message | None:
        return "the result" if TASK in text else held(text, request)

    async with open_stage(tmp_path, answering) as stage:
        [record] = await stage.ended()
        await stage.idle()
        assert (record.run_id, record.status) == (child.run_id, "done")
        assert len(await stage.announcements()) == 1


async def test_record_without_its_message_is_interrupted_once(tmp_path: Path) -> None:
    async with open_stage(tmp_path, held) as stage:
        child = await start_child(stage)
        await stage.app.subagents().kill(child.child_key)
        await stage.idle(child.child_key)
        lost = SubagentRecord("agent:main:subagent:x", "r9", PARENT, "lost", 1, awaits="r9")
        async with stage.app.store.transaction() as transaction:
            put_subagent(transaction, lost)
    for _ in range(2):
        async with open_stage(tmp_path, held) as stage:
            await stage.idle()
            found = await find_subagent(stage.app.store, "agent:main:subagent:x")
            assert found is not None and found.status == "interrupted"
            [text] = await stage.announcements()
            assert "was interrupted before it finished" in text and "“lost”" in text


# Archive


async def test_ended_child_is_archived_after_its_time(tmp_path: Path) -> None:
    def answer(text: str, request: ModelRequest) -> str | Message | None:
        return "the result" if TASK in text else held(text, request)

    clock = FakeClock()
    async with open_stage(tmp_path, answer, clock=clock) as stage:
        await (await stage.say("go"))
        [record] = await stage.ended()
        await stage.idle()
        folder = tmp_path / "state" / "agents" / "main" / "sessions"
        assert record.archive_ms - record.ended_ms == 3_600_000
        assert await stage.app.store.session(record.child_key)
        await until((folder / f"{record.session_id}.jsonl").exists)
        sweep, subagents = stage.app.subagents.sweep, stage.app.subagents
        await clock.advance(3_500)
        await sweep()
        assert await stage.records() and subagents.sweep_interval_s()
        await clock.advance(101)
        await sweep()
        assert not await stage.records() and not subagents.sweep_interval_s()
        assert await stage.app.store.session(record.child_key) is None
        await until(lambda: list(folder.glob(f"{record.session_id}.jsonl.deleted.*")))


async def test_cleanup_delete_archives_the_session_at_once(tmp_path: Path) -> None:
    def answer(text: str, request: ModelRequest) -> str | Message | None:
        if text == "go":
            return spawn_call("work", cleanup="delete")
        return "the result" if TASK in text else held(text, request)

    async with open_stage(tmp_path, answer) as stage:
        await (await stage.say("go"))
        [record] = await stage.ended()

        async def is_gone() -> bool:
            return await stage.app.store.session(record.child_key) is None

        await wait_for(is_gone)
        assert [one.status for one in await stage.records()] == ["done"]
        await stage.idle()
        assert len(await stage.announcements()) == 1
        assert last_text(stage.model.requests[-1])
