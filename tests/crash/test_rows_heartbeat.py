"""Rows 93 to 96: `kill -9` at every stage of a heartbeat.

An alert is sent exactly once, a notice is relayed exactly once, and a person's message is answered
exactly once, whatever happened to the heartbeat that it met.
"""

import asyncio
import json
import time
from random import Random
from typing import Any

import pytest

from homarus.core.clock import SystemClock
from homarus.sessions.notices import Notices
from homarus.store.journal import UNSETTLED
from homarus.store.sqlite import SqliteStore, open_store
from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for

pytestmark = pytest.mark.slow

KILLED = -9
SEED = 20261119
TRIALS = 10
KEY = "agent:main:main"
ALERT = "Rain is near."
NEWS = "Milk is out."


def heartbeat_rig(make_rig: MakeRig, every: str = "1s", prompt: str = f"MOCK:say:{ALERT}§") -> Rig:
    """Return a rig whose agent has a heartbeat that reaches the chat `chat`."""
    rig = make_rig()
    heartbeat = {"every": every, "target": "scripted", "to": "chat", "prompt": f"T#beat {prompt}"}
    file = rig.state / "openclaw.json"
    config = json.loads(file.read_text())
    config["agents"]["defaults"]["heartbeat"] = heartbeat
    file.write_text(json.dumps(config))
    workspace = rig.state / "workspace"
    workspace.mkdir()
    (workspace / "HEARTBEAT.md").write_text("- look at the sky\n")
    return rig


def leave_notice(rig: Rig, text: str, source: str = "cron:1") -> None:
    """Store an urgent notice, as a job does that is due while the gateway is down."""

    async def body() -> None:
        async with open_store(rig.state, mirror=False) as store:
            at_ms = SystemClock().now_ms()
            await Notices().save(store, KEY, text, at_ms, source=source, wake_mode="now")

    asyncio.run(body())


def sends(rig: Rig, text: str) -> int:
    return sum(text in each["text"] for each in rig.ledger.get("/ledger")["sends"])


def kill_at(rig: Rig, fault: str) -> None:
    rig.start(fault)
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output


def records(rig: Rig, kind: str) -> dict[str, Any]:
    async def body(store: SqliteStore) -> dict[str, Any]:
        return dict(await store.records(kind))

    return rig.read_store(body)


def beats(rig: Rig) -> list[Any]:
    return [row for row in rig.inbox() if row.channel == "heartbeat"]


def check_settled(rig: Rig, at_least: int) -> None:
    """Wait until heartbeats have ended, and check that each has one recorded outcome."""

    def is_done() -> bool:
        return sum(row.state not in UNSETTLED for row in beats(rig)) >= at_least

    wait_for(is_done, "the heartbeats have ended")
    assert all(row.state != "parked" for row in beats(rig))


def check_alert(rig: Rig) -> None:
    wait_for(lambda: sends(rig, ALERT), "the alert is sent")
    # The next heartbeats say the same: it is not sent again.
    check_settled(rig, 2 + len([row for row in beats(rig) if row.state not in UNSETTLED]))
    assert sends(rig, ALERT) == 1
    assert [row.why for row in beats(rig)].count("duplicate") >= 1


@pytest.mark.parametrize(
    "fault", ["heartbeat.accepted:kill9", "run.begun:kill9", "provider.streaming:kill9"]
)
def test_row_93_killed_before_the_model_was_called(make_rig: MakeRig, fault: str) -> None:
    rig = heartbeat_rig(make_rig)
    kill_at(rig, fault)
    assert sends(rig, ALERT) == 0
    rig.start()
    check_alert(rig)


@pytest.mark.parametrize("fault", ["heartbeat.saved:kill9", "deliver.started:kill9"])
def test_row_94_killed_between_alert_saved_and_sent(make_rig: MakeRig, fault: str) -> None:
    rig = heartbeat_rig(make_rig)
    kill_at(rig, fault)
    assert sends(rig, ALERT) <= 1
    rig.start()
    check_alert(rig)


@pytest.mark.parametrize(
    "fault", ["heartbeat.accepted:kill9", "run.begun:kill9", "heartbeat.saved:kill9"]
)
def test_row_95_killed_with_pending_notices(make_rig: MakeRig, fault: str) -> None:
    rig = heartbeat_rig(make_rig, every="1h")
    leave_notice(rig, f"T#news MOCK:say:{NEWS}§")
    kill_at(rig, fault)
    rig.start()
    wait_for(lambda: sends(rig, NEWS), "the notice is relayed")
    wait_for(lambda: not records(rig, "notice"), "the notice is deleted")
    message = rig.offer("T#{nonce} MOCK:echo")
    assert rig.settle().answered == [message["id"]]
    assert sends(rig, NEWS) == 1


@pytest.mark.parametrize("is_stopped_first", [False, True])
def test_row_96_killed_while_a_person_waits(make_rig: MakeRig, is_stopped_first: bool) -> None:
    rig = heartbeat_rig(make_rig, prompt="MOCK:hold", every="2s")
    file = rig.state / "openclaw.json"
    # All people share the agent's main session, which the heartbeat works in.
    file.write_text(file.read_text().replace('"per-channel-peer"', '"main"'))
    leave_notice(rig, "The door is open.", source="")
    rig.start()
    wait_for(lambda: any(row.state == "running" for row in beats(rig)), "a heartbeat runs")
    if is_stopped_first:
        rig.kill()
    message = rig.offer("T#{nonce} MOCK:echo")
    if not is_stopped_first:
        wait_for(lambda: len(rig.inbox()) > len(beats(rig)), "the message is accepted")
    rig.kill()
    rig.start()
    verdict = rig.settle(20)
    assert verdict.answered == [message["id"]] and not verdict.doubled
    check_settled(rig, 1)
    questions = [str(one["content"]) for one in rig.messages(KEY) if one["role"] == "user"]
    (question,) = [text for text in questions if message["nonce"] in text]
    is_preempted = any(row.why == "preempted" for row in beats(rig))
    assert ("The door is open." in question) == is_preempted
    wait_for(lambda: not records(rig, "notice"), "the notice is deleted")


def test_rows_93_to_96_random_kills(make_rig: MakeRig) -> None:
    rig, random = heartbeat_rig(make_rig), Random(SEED)
    leave_notice(rig, f"T#news MOCK:say:{NEWS}§")
    offered = []
    for _ in range(TRIALS):
        rig.start()
        offered.append(rig.offer("T#{nonce} MOCK:echo")["id"])
        time.sleep(random.uniform(0.2, 2.5))
        rig.kill()
    rig.start()
    verdict = rig.settle()
    assert sorted(verdict.answered) == sorted(offered) and not verdict.doubled
    wait_for(lambda: sends(rig, NEWS) and sends(rig, ALERT), "both are sent")
    check_settled(rig, 1)
    assert (sends(rig, NEWS), sends(rig, ALERT)) == (1, 1)
