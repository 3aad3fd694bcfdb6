"""Sub-agents in the complete program: start, result, announcement, limits, stop, archive."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import BadRequestError
from homarus.core.message import Address, InboundMetadata, Message
from homarus.providers.base import ModelRequest
from homarus.testing.fakes import ListChannel, assistant_message
from tests.unit.agent.subagent_harness import (
    PARENT,
    Answer,
    Stage,
    open_stage,
    spawn_call,
)
from tests.waiting import until

pytestmark = pytest.mark.timeout(60)
LIST_CHANNEL = {"channels.list": {"dmPolicy": "open", "allowFrom": ["*"]}}
GROUP = InboundMetadata(kind="group", title="Team")
TASK, NEWS = "[Subagent Task]", "[System Message]"


def plain(text: str, _request: ModelRequest) -> str | Message | None:
    """A parent that starts one sub-agent, which counts."""
    if TASK in text:
        return "There are 42 files."
    if NEWS in text:
        return "You have 42 files."
    if text.endswith("go"):
        return spawn_call("count the files", label="count")
    return "Started."


def spawning(**args: Any) -> Answer:
    """Return a model like `plain` whose call has these arguments."""

    def answer(text: str, request: ModelRequest) -> str | Message | None:
        return spawn_call("work", **args) if text.endswith("go") else plain(text, request)

    return answer


async def result_of(stage: Stage) -> dict[str, object]:
    """Return the result of the parent's first call of the tool."""
    session = await stage.app.control.load(PARENT)
    [part] = next(one for one in session.messages if one.role == "tool").parts
    found = json.loads(part.text)  # type: ignore[union-attr]  # a tool message has one result
    assert isinstance(found, dict)
    return found


# Start and result


async def test_subagent_that_answers_is_announced_once(tmp_path: Path) -> None:
    async with open_stage(tmp_path, plain) as stage:
        outcome = await (await stage.say("go"))
        assert outcome.text == "Started."
        [record] = await stage.ended()
        await stage.idle()
        assert (record.status, record.result) == ("done", "There are 42 files.")
        assert record.child_key.startswith("agent:main:subagent:")
        [text] = await stage.announcements()
        assert "“count” finished" in text and "There are 42 files." in text
        assert record.child_key in text and f"{record.session_id}.jsonl" in text
        assert "tokens 1.2k (in 1.0k / out 200)" in text and "cost $0.2500" in text
        assert (await stage.texts("assistant"))[-1] == "You have 42 files."
        child = await stage.app.store.session(record.child_key)
        assert child is not None
        assert (child.data["spawnedBy"], child.data["spawnDepth"]) == (PARENT, 1)
        assert child.data["label"] == "count"
        result = await result_of(stage)
        assert result["status"] == "accepted" and result["runId"] == record.run_id
        assert result["childSessionKey"] == record.child_key and result["note"]


async def test_child_prompt_is_minimal_and_has_no_session_tools(tmp_path: Path) -> None:
    async with open_stage(tmp_path, plain) as stage:
        await (await stage.say("go"))
        await stage.ended()
        request, *_ = stage.model.asked(TASK)
        names = {spec.name for spec in request.tools}
        assert "## Subagent Context" in request.system
        assert "### AGENTS.md" in request.system and "### TOOLS.md" in request.system
        assert "### SOUL.md" not in request.system and "### USER.md" not in request.system
        denied = {"sessions_spawn", "session_status", "memory_search", "memory_get", "gateway"}
        assert not denied & names and "read" in names
        [parent, *_] = stage.model.requests
        assert "sessions_spawn" in {spec.name for spec in parent.tools}


async def test_spawn_returns_before_the_child_has_answered(tmp_path: Path) -> None:
    async with open_stage(tmp_path, plain) as stage:
        event = stage.model.hold(TASK)
        outcome = await (await stage.say("go"))
        [record] = await stage.records()
        assert outcome.text == "Started." and record.is_active and not record.ended_ms
        await until(lambda: stage.app.lanes.snapshot()["subagent"][0] == 1)
        assert stage.app.lanes.snapshot()["main"][0] == 0
        event.set()
        assert [one.status for one in await stage.ended()] == ["done"]


async def test_answers_of_a_child_reach_no_chat(tmp_path: Path) -> None:
    async with open_stage(tmp_path, plain) as stage:
        chat = Address("test", "group-1", thread="7")
        await (await stage.say("go", address=chat, authority="owner"))
        [record] = await stage.ended()
        await stage.idle()
        assert record.origin.address == chat and record.origin.authority == "owner"
        rows = await stage.app.store.journal.inbox_records(session=record.child_key)
        assert [row.state for row in rows] == ["answered"]
        sent = await stage.app.store.journal.outbox_records()
        assert all(record.run_id != one.run for one in sent)
        news = await stage.app.store.journal.inbox_records(session=PARENT)
        assert (news[-1].channel, news[-1].message_id[:11]) == ("test", "announce:v1")


async def test_failure_of_a_child_is_never_reported_as_done(tmp_path: Path) -> None:
    def failing(text: str, request: ModelRequest) -> str | Message | None:
        if TASK in text:
            raise BadRequestError("the model refuses")
        return plain(text, request)

    async with open_stage(tmp_path, failing) as stage:
        await (await stage.say("go"))
        [record] = await stage.ended()
        await stage.idle()
        assert record.status == "failed" and "the model refuses" in record.error
        [text] = await stage.announcements()
        assert "failed: the model refuses" in text and "do not report its task as done" in text
        assert "Result:" not in text


async def test_cut_off_answer_is_no_result(tmp_path: Path) -> None:
    def cut(text: str, request: ModelRequest) -> str | Message | None:
        if TASK not in text:
            return plain(text, request)
        message = assistant_message("There are 4")
        assert message.origin
        return replace(message, origin=replace(message.origin, stop="length"))

    async with open_stage(tmp_path, cut) as stage:
        await (await stage.say("go"))
        [record] = await stage.ended()
        await stage.idle()
        assert (record.status, record.result) == ("failed", "")
        assert "There are 4" not in (await stage.announcements())[0]


async def test_child_over_its_deadline_has_timed_out(tmp_path: Path) -> None:
    def slow(text: str, request: ModelRequest) -> str | Message | None:
        if text.endswith("go"):
            return spawn_call("work", runTimeoutSeconds=0.05)
        return None if TASK in text else plain(text, request)

    async with open_stage(tmp_path, slow) as stage:
        await (await stage.say("go"))
        [record] = await stage.ended()
        await stage.idle()
        assert record.status == "timed_out" and record.timeout_s == 0.05
        [text] = await stage.announcements()
        assert "ran out of time" in text and "progress, and no result" not in text


async def test_legacy_timeout_name_sets_the_deadline(tmp_path: Path) -> None:
    async with open_stage(tmp_path, spawning(timeoutSeconds=30)) as stage:
        await (await stage.say("go"))
        [record] = await stage.ended()
        assert record.timeout_s == 30


# Chats


async def test_announcement_is_answered_in_the_chat_of_the_parent_once(tmp_path: Path) -> None:
    channel = ListChannel()
    async with open_stage(tmp_path, plain, LIST_CHANNEL, channels=(channel,)) as stage:
        key, chat = "agent:main:list:group:g1", Address("list", "g1", thread="7")
        await (await stage.say("go", key, address=chat, authority="owner", metadata=GROUP))
        await stage.ended()
        await stage.idle(key)
        await until(lambda: len(channel.sent) >= 2)
        assert [one.text for one in channel.sent] == ["Started.", "You have 42 files."]
        assert {one.address for one in channel.sent} == {chat}
        assert not any(one.extras.reply_to for one in channel.sent)


async def test_agents_of_one_chat_each_hear_of_their_own_children(tmp_path: Path) -> None:
    agents = [{"id": "main", "default": True}, {"id": "helper", "workspace": str(tmp_path / "h")}]
    channel, chat = ListChannel(), Address("list", "g1")
    changes = {"agents.list": agents, **LIST_CHANNEL}

    def answer(text: str, request: ModelRequest) -> str | Message | None:
        name = "helper" if "agent=helper" in request.system else "main"
        if NEWS in text:
            return f"{name} tells: {'result of ' + name in text}"
        if TASK in text:
            return f"result of {name}"
        return spawn_call("work") if text.endswith("go") else f"{name} started"

    async with open_stage(tmp_path, answer, changes, channels=(channel,)) as stage:
        keys = [f"agent:{name}:list:group:g1" for name in ("main", "helper")]
        for key, name in zip(keys, ("main", "helper"), strict=True):
            await (
                await stage.say(
                    "go", key, address=chat, authority="owner", metadata=GROUP, copy_for=name
                )
            )
        await stage.ended(2)
        for key in keys:
            await stage.idle(key)
            assert len(await stage.announcements(key)) == 1
        await until(lambda: len(channel.sent) >= 4)
        told = sorted(one.text for one in channel.sent if "tells" in one.text)
        assert told == ["helper tells: True", "main tells: True"]
        assert {one.agent for one in await stage.records()} == {"main", "helper"}
