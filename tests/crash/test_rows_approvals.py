"""Rows 59 to 64: `kill -9` at every stage of an approval.

Nothing runs twice, nothing runs without approval, and every message whose call waits for a person
is answered, or its approval expires with a notice to the sender.
"""

import json
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from homarus.store.approvals import ApprovalRecord
from homarus.store.sqlite import SqliteStore
from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for
from tests.crash.random_kills import TOOL, side_effect_call

KILLED = -9
SUSPEND_AT_ONCE = {"approvals": {"waitSeconds": 0}}
SEED = 20261116
TRIALS = 10


def decide(rig: Rig, decision: str) -> None:
    """Write what the person at the gateway answers from now on."""
    (rig.folder / "approver").write_text(decision)


def approvals(rig: Rig) -> Sequence[ApprovalRecord]:
    async def body(store: SqliteStore) -> Sequence[ApprovalRecord]:
        return await store.journal.approvals()

    return rig.read_store(body)


def wait_suspended(rig: Rig, message: Any) -> None:
    rig.wait_ready()
    wait_for(
        lambda: [one.state for one in rig.inbox()] == ["suspended"], f"{message['id']} is suspended"
    )


def wait_answered(rig: Rig, message: Any) -> None:
    wait_for(lambda: message["id"] in rig.verdict().answered, f"{message['id']} is answered")


def results(rig: Rig, message: Any) -> list[str]:
    found = rig.messages(rig.inbox_record(message["id"]).session)
    return [json.dumps(one["content"]) for one in found if one["role"] == "toolResult"]


def check_answered(rig: Rig, message: Any, runs: int) -> None:
    """Check that the message is answered once, by one approval, after so many runs of its tool."""
    verdict = rig.settle()
    assert verdict.answered == [message["id"]] and not verdict.doubled and not verdict.lost
    wait_for(lambda: rig.inbox_record(message["id"]).state == "answered", "it is settled")
    assert rig.side_effects(message["nonce"]) == runs
    (approval,) = approvals(rig)
    assert approval.state != "pending" and bool(approval.used_ms) == (approval.state == "allowed")


def kill_at(rig: Rig, fault: str, message: Any) -> None:
    rig.start(f"{fault}:kill9")
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output
    assert rig.side_effects(message["nonce"]) == 0


@pytest.mark.parametrize("decision", ["allow-once", pytest.param("deny", marks=pytest.mark.slow)])
def test_row_59_killed_after_approval_was_saved(make_rig: MakeRig, decision: str) -> None:
    rig = make_rig(config=SUSPEND_AT_ONCE)
    decide(rig, "wait")
    message = rig.offer(side_effect_call(rig.side))
    kill_at(rig, "approval.asked", message)
    rig.start()
    wait_suspended(rig, message)
    assert rig.side_effects(message["nonce"]) == 0, "a restart alone executes nothing"
    decide(rig, decision)
    check_answered(rig, message, runs=int(decision == "allow-once"))


@pytest.mark.slow
def test_row_60_killed_while_suspended(make_rig: MakeRig) -> None:
    rig = make_rig(config=SUSPEND_AT_ONCE)
    decide(rig, "wait")
    message = rig.offer(side_effect_call(rig.side))
    rig.start()
    wait_suspended(rig, message)
    rig.kill()
    rig.start()
    rig.wait_ready()
    other = rig.offer("T#{nonce} MOCK:echo", "other")
    wait_for(lambda: other["id"] in rig.verdict().answered, "another chat is answered")
    assert rig.side_effects(message["nonce"]) == 0, "a restart alone executes nothing"
    assert rig.inbox_record(message["id"]).state == "suspended"
    decide(rig, "allow-once")
    wait_answered(rig, message)
    assert rig.side_effects(message["nonce"]) == 1 and not rig.verdict().doubled


def test_row_61_killed_after_answer_was_saved(make_rig: MakeRig) -> None:
    rig = make_rig(config=SUSPEND_AT_ONCE)
    message = rig.offer(side_effect_call(rig.side))
    kill_at(rig, "approval.answered", message)
    assert [one.state for one in approvals(rig)] == ["allowed"]
    decide(rig, "wait")  # no person is asked again
    rig.start()
    check_answered(rig, message, runs=1)


@pytest.mark.parametrize(("point", "runs"), [("approval.resumed", 1), ("tool.started", 0)])
def test_row_62_killed_after_the_run_was_resumed(make_rig: MakeRig, point: str, runs: int) -> None:
    rig = make_rig(config=SUSPEND_AT_ONCE)
    decide(rig, "wait")
    message = rig.offer(side_effect_call(rig.side))
    rig.start()
    wait_suspended(rig, message)
    rig.kill()
    decide(rig, "allow-once")
    kill_at(rig, point, message)
    rig.start()
    check_answered(rig, message, runs)
    assert ("interrupted" in results(rig, message)[0]) == (runs == 0), "it is never run again"


def test_row_63_killed_while_the_approved_call_ran(make_rig: MakeRig) -> None:
    rig = make_rig(config=SUSPEND_AT_ONCE)
    message = rig.offer(side_effect_call(rig.side, "sleep 600"))
    rig.start()
    wait_for(lambda: rig.side_effects(message["nonce"]) == 1, "the command runs")
    rig.kill()
    rig.start()
    check_answered(rig, message, runs=1)
    assert "interrupted" in results(rig, message)[0]


@pytest.mark.slow
def test_row_64_approval_expires_while_the_gateway_is_down(make_rig: MakeRig) -> None:
    rig = make_rig(config={"approvals": {"waitSeconds": 0, "expirySeconds": 1}})
    decide(rig, "wait")
    # The notice shows the command: it must not have the mark of the answer.
    message = rig.offer(TOOL % f"echo ran >> {rig.side}")
    kill_at(rig, "approval.asked", message)
    time.sleep(1.1)
    rig.start()
    check_answered(rig, message, runs=0)
    assert rig.side.read_text(encoding="utf-8") == ""
    (approval,) = approvals(rig)
    assert approval.state == "expired"
    notices = [one for one in rig.outbox() if one.run == f"{approval.id}:expired"]
    assert len(notices) == 1 and approval.id[:8] in notices[0].text


@pytest.mark.slow
def test_rows_59_to_64_random_kills(make_rig: MakeRig) -> None:
    rig, random = make_rig(config=SUSPEND_AT_ONCE), Random(SEED)
    for trial in range(TRIALS):
        decision = random.choice(["allow-once", "allow-once", "deny"])
        decide(rig, random.choice(["wait", decision]))
        message = rig.offer(side_effect_call(rig.side), f"chat-{trial}")
        rig.start()
        time.sleep(random.uniform(0.2, 1.2))
        rig.kill()
        decide(rig, decision)
        rig.start()
        if random.random() < 0.25:
            time.sleep(random.uniform(0.1, 0.8))
            rig.kill()
            rig.start()
        wait_answered(rig, message)
        runs, found = rig.side_effects(message["nonce"]), approvals(rig)
        assert runs <= 1 and not rig.verdict().doubled
        mine = [one for one in found if one.session.endswith(f"chat-{trial}")]
        assert runs <= sum(one.state == "allowed" and bool(one.used_ms) for one in mine)
        assert all(one.state != "pending" for one in mine)
        rig.kill()
