"""Rows 66 to 71: `kill -9` at every stage of a sub-agent's life.

Every sub-agent ends in exactly one recorded state, and its parent is told exactly once; the call
that starts it starts one, however often it is made.
"""

import time
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from homarus.store.sqlite import SqliteStore
from homarus.store.subagents import SubagentRecord, list_subagents
from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for

pytestmark = pytest.mark.slow

KILLED = -9
SEED = 20261118
TRIALS = 10
NEWS = "[System Message]"


def spawn_call(task: str = "count", **args: str) -> str:
    """Return a message that starts a sub-agent; markers in its task are for the sub-agent."""
    given = "".join(f',"{name}":"{value}"' for name, value in args.items())
    hidden = task.replace("§", "\\u00a7").replace("MOCK:next", "MOCK\\u003anext")
    hidden = hidden.replace('"', '\\"')
    return (
        (
            f'T#{{nonce}} MOCK:tool:sessions_spawn:{{{{"task":"{hidden}","label":"job"{given}}}}}§'
            " MOCK:next MOCK:echo"
        )
        .replace("{{", "{")
        .replace("}}", "}")
    )


def children(rig: Rig) -> Sequence[SubagentRecord]:
    async def body(store: SqliteStore) -> Sequence[SubagentRecord]:
        return await list_subagents(store)

    return rig.read_store(body)


def kill_at(rig: Rig, fault: str) -> None:
    rig.start(fault)
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output


def announcements(rig: Rig, message: Any) -> list[str]:
    found = rig.messages(rig.inbox_record(message["id"]).session)
    texts = [str(one["content"]) for one in found if one["role"] == "user"]
    return [text for text in texts if NEWS in text]


def check_ended(rig: Rig, message: Any, status: str = "done") -> SubagentRecord:
    """Check that the message has one answer, its sub-agent one end, and the parent one message."""
    verdict = rig.settle()
    assert verdict.answered == [message["id"]] and not verdict.doubled and not verdict.lost

    def is_told() -> bool:
        rows = [row for row in rig.inbox() if row.message_id.startswith("announce:v1:")]
        return [row.state for row in rows] == ["answered"]

    wait_for(is_told, "the parent has answered the announcement")
    (child,) = children(rig)
    assert child.status == status and child.ended_ms and child.archive_ms
    tasks = [row for row in rig.inbox() if row.message_id.startswith("spawn:")]
    assert [row.id for row in tasks] == [child.run_id], "it was started once"
    (told,) = announcements(rig, message)
    assert child.child_key in told and ("Result:" in told) == (status == "done")
    return child


@pytest.mark.parametrize("fault", ["subagent.spawned:kill9", "tool.ended:kill9"])
def test_row_66_killed_after_a_child_was_started(make_rig: MakeRig, fault: str) -> None:
    rig = make_rig()
    message = rig.offer(spawn_call())
    kill_at(rig, fault)
    assert [one.status for one in children(rig)] == ["running"]
    rig.start()
    check_ended(rig, message)


def test_row_66_killed_before_the_start_was_committed(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = rig.offer(spawn_call())
    kill_at(rig, "tool.asked:kill9")
    assert not children(rig), "nothing of it is there"
    rig.start()
    check_ended(rig, message)


@pytest.mark.parametrize("point", ["run.begun", "provider.asked"])
def test_row_67_killed_while_the_child_ran(make_rig: MakeRig, point: str) -> None:
    rig = make_rig()
    message = rig.offer(spawn_call("MOCK:delay:300 count"))
    number = {"run.begun": 2, "provider.asked": 2}[point]
    kill_at(rig, f"{point}:kill9:{number}")
    assert [one.status for one in children(rig)] == ["running"]
    rig.start()
    check_ended(rig, message)


def test_row_68_killed_while_a_tool_of_the_child_ran(make_rig: MakeRig) -> None:
    rig = make_rig()
    command = f"echo child >> {rig.side}; sleep 600"
    message = rig.offer(spawn_call(f'MOCK:tool:exec:{{"command":"{command}"}}§'))
    rig.start()
    wait_for(lambda: rig.side_effects("child") == 1, "the command runs")
    rig.kill()
    rig.start()
    child = check_ended(rig, message)
    results = [one for one in rig.messages(child.child_key) if one["role"] == "toolResult"]
    assert rig.side_effects("child") == 1 and "interrupted" in str(results)


@pytest.mark.parametrize("fault", ["subagent.ended:kill9", "run.begun:kill9:3"])
def test_row_69_killed_while_the_end_was_announced(make_rig: MakeRig, fault: str) -> None:
    rig = make_rig()
    message = rig.offer(spawn_call("MOCK:delay:300 count"))
    kill_at(rig, fault)
    assert [one.status for one in children(rig)] == ["done"]
    rig.start()
    check_ended(rig, message)


@pytest.mark.parametrize("point", ["subagent.ended", "subagent.archived"])
def test_row_70_killed_while_the_child_was_archived(make_rig: MakeRig, point: str) -> None:
    rig = make_rig()
    message = rig.offer(spawn_call("MOCK:delay:300 count", cleanup="delete"))
    kill_at(rig, f"{point}:kill9")
    rig.start()
    child = check_ended(rig, message)

    async def find(store: SqliteStore) -> bool:
        return await store.session(child.child_key) is None

    wait_for(lambda: rig.read_store(find), "its session is gone")
    folder = rig.state / "agents" / "main" / "sessions"
    wait_for(
        lambda: list(folder.glob(f"{child.session_id}.jsonl.deleted.*")), "its file is renamed"
    )


def test_row_71_killed_after_a_child_was_steered(make_rig: MakeRig) -> None:
    rig = make_rig()
    (rig.folder / "steer").write_text("MOCK:say:steered§", encoding="utf-8")
    message = rig.offer(spawn_call("MOCK:hold"))
    kill_at(rig, "subagent.steered:kill9")
    rig.start()
    child = check_ended(rig, message)
    assert child.result == "steered"
    rows = [row for row in rig.inbox() if row.session == child.child_key]
    assert [(row.state, row.why) for row in rows] == [("reported", "steered"), ("answered", "")]


def test_row_67_killed_three_times_in_the_child_is_interrupted(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = rig.offer(spawn_call("MOCK:hold"))
    rig.start()
    rig.settle()
    wait_for(lambda: [row.state for row in rig.inbox()][1:] == ["running"], "the child runs")
    rig.kill()
    for _ in range(2):
        kill_at(rig, "run.begun:kill9")
    rig.start()
    child = check_ended(rig, message, "interrupted")
    assert "3 times" in child.error


def test_rows_66_to_71_random_kills(make_rig: MakeRig) -> None:
    rig, random = make_rig(), Random(SEED)
    rig.start()
    for count in range(1, TRIALS + 1):
        rig.wait_ready()
        cleanup = random.choice(["keep", "delete"])
        rig.offer(spawn_call("MOCK:delay:60 MOCK:long:10:5", cleanup=cleanup), f"chat-{count}")
        time.sleep(random.uniform(0, 0.6))
        rig.kill()
        rig.start()
        verdict = rig.settle()
        assert len(verdict.answered) == count and not verdict.doubled and not verdict.lost
        wait_for(partial(_has_announced, rig, count), "every end is announced")
    found = children(rig)
    assert len(found) == TRIALS and {one.status for one in found} == {"done"}
    assert len([row for row in rig.inbox() if row.message_id.startswith("spawn:")]) == TRIALS


def _has_announced(rig: Rig, count: int) -> bool:
    """Return whether so many sub-agents were announced, and their parents have answered."""
    news = [row for row in rig.inbox() if row.message_id.startswith("announce:v1:")]
    return len(news) == count and all(row.state == "answered" for row in news)
