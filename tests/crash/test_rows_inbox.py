"""Rows 18, 34 to 36, 51 and 52: shutdown, repeated messages, many at once, and parking."""

import os
import signal
import time
from typing import Any

import pytest

from homarus.gateway.server import DRAIN_S
from homarus.sessions.recovery import MAX_ATTEMPTS
from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for
from tests.crash.random_kills import ECHO

EXIT_S = 10.0
STOPS = MAX_ATTEMPTS + 1


def begun(rig: Rig, tag: str) -> bool:
    """Return whether the model was called for a message, answered or not."""
    return any(tag in str(one.get("content")) for row in rig.inbox() if row.entry
               for one in rig.messages(row.session))  # fmt: skip


def end(rig: Rig, *, times: int) -> float:
    """Send SIGTERM this many times; return how long the gateway took to exit."""
    assert rig.gateway is not None
    started = time.monotonic()
    for _ in range(times):
        signal_gateway(rig)
    assert rig.gateway.wait() == 0, rig.output
    return time.monotonic() - started


def signal_gateway(rig: Rig) -> None:
    assert rig.gateway is not None
    os.kill(rig.gateway.pid, signal.SIGTERM)


@pytest.mark.parametrize("times", [1, 2])
def test_row_18_stopped_during_run_answers_once(make_rig: MakeRig, times: int) -> None:
    rig = make_rig()
    first = rig.offer("T#{nonce} MOCK:delay:700 MOCK:echo", "one")
    rig.start()
    rig.wait_ready()
    wait_for(lambda: begun(rig, first["nonce"]), "the run begins")
    signal_gateway(rig)
    late = rig.offer(ECHO, "two")  # while it ends
    took_s = end(rig, times=times - 1)
    assert took_s < EXIT_S
    assert not rig.verdict(within_s=600).lost, late
    rig.start()
    verdict = rig.settle()
    assert sorted(verdict.answered) == sorted([first["id"], late["id"]])
    assert "Traceback" not in rig.output


def test_row_18_stopped_during_long_run_resumes_after_restart(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    message = rig.offer(f"T#{{nonce}} MOCK:delay:{round(DRAIN_S * 1000) + 5_000}:1 MOCK:echo")
    rig.start()
    rig.wait_ready()
    wait_for(lambda: begun(rig, message["nonce"]), "the run begins")
    assert end(rig, times=1) < DRAIN_S + EXIT_S
    rig.start()
    assert rig.settle().answered == [message["id"]]
    assert "Traceback" not in rig.output


def test_row_18_killed_during_shutdown_answers_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = rig.offer("T#{nonce} MOCK:delay:700 MOCK:echo")
    rig.start("drain.begun:kill9")
    rig.wait_ready()
    wait_for(lambda: begun(rig, message["nonce"]), "the run begins")
    signal_gateway(rig)
    assert rig.gateway and rig.gateway.wait() == -9
    rig.start()
    assert rig.settle().answered == [message["id"]]


def test_row_51_clean_stops_during_run_do_not_park_message(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = rig.offer(f"T#{{nonce}} MOCK:delay:60000:{STOPS} MOCK:echo")
    for _ in range(STOPS):
        rig.start()
        rig.wait_ready()
        wait_for(lambda: [one.attempts for one in rig.inbox()] == [1], "the run is live")
        stops = rig.logged().count("gateway stopping")
        signal_gateway(rig)
        wait_for(lambda: rig.logged().count("gateway stopping") > stops, "it stops")  # noqa: B023 - called at once
        assert end(rig, times=1) < EXIT_S
        assert rig.inbox_record(message["id"]).attempts == 0
    rig.start()
    assert rig.settle().answered == [message["id"]]
    assert "parked: message" not in rig.logged()


def test_row_52_message_parked_after_crashes_leads_to_one_notice(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = rig.offer(ECHO)
    for _ in range(MAX_ATTEMPTS):
        rig.start("provider.asked:kill9")
        assert rig.gateway and rig.gateway.wait() == -9
    for _ in range(2):
        rig.start()
        wait_for(lambda: [one.state for one in rig.outbox()] == ["sent"], "the notice is sent")
        rig.kill()
    assert rig.inbox_record(message["id"]).state == "parked"
    (sent,) = rig.ledger.get("/ledger")["sends"]
    assert "set it aside" in str(sent)


def test_row_34_message_delivered_hundred_times_is_answered_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = rig.offer(ECHO, copies=100)
    rig.start()
    rig.settle()
    wait_for(lambda: rig.inbox_record(message["id"]).duplicates == 99, "every copy is counted")
    assert rig.verdict().answered == [message["id"]] and len(rig.inbox()) == 1
    assert len(rig.ledger.get("/ledger")["sends"]) == 1


def test_row_34_redelivery_out_of_order_and_after_restart_is_ignored(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    messages = [rig.offer(ECHO, f"chat-{n % 3}") for n in range(6)]
    rig.start()
    rig.settle()
    for one in reversed(messages):
        rig.offer(ECHO, id=one["id"])
    wait_for(lambda: all(row.duplicates == 1 for row in rig.inbox()), "all came again")
    rig.kill()
    for one in messages[::2] + messages[1::2]:
        rig.offer(ECHO, id=one["id"])
    rig.start()
    # The kill may precede the acknowledgement of the second delivery; then that one comes again.
    wait_for(lambda: all(row.duplicates >= 2 for row in rig.inbox()), "all came a third time")
    verdict = rig.settle()
    assert sorted(verdict.answered) == sorted(one["id"] for one in messages)
    assert len(rig.inbox()) == len(rig.ledger.get("/ledger")["sends"]) == 6


def test_row_35_same_id_with_other_text_is_parked(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = rig.offer(ECHO)
    rig.start()
    rig.settle()
    rig.offer("MOCK:echo other words", id=message["id"])
    wait_for(lambda: len(rig.inbox()) == 2, "the other words are kept")
    first, other = rig.inbox()
    assert (first.state, other.state) == ("answered", "parked")
    assert other.inbound is not None and "other words" in other.inbound.text and other.why
    assert rig.settle().answered == [message["id"]]
    wait_for(lambda: "parked" in rig.logged(), "it is said aloud")
    assert len(rig.ledger.get("/ledger")["sends"]) == 1


TEN = 10


def write_ten(rig: Rig) -> list[Any]:
    """Send a message that takes a while, and ten more while it is being answered."""
    rig.start()
    rig.wait_ready()
    first = rig.offer('T#{nonce} MOCK:tool:exec:{"command":"sleep 1"}§ MOCK:next MOCK:echo')
    wait_for(lambda: begun(rig, first["nonce"]), "the run begins")
    return [rig.offer(f"T#{{nonce}} MOCK:echo number {n}", marks=()) for n in range(TEN)]


def places(rig: Rig, message: list[Any], *, again: bool = False) -> list[int]:
    """Return the position of each message among those sent to the model."""
    said = [str(one["content"]) for one in rig.messages(rig.inbox_record(message[0]["id"]).session)
            if one["role"] == "user"]  # fmt: skip
    whole = "\n".join(said)
    counts = [whole.count(f"T#{one['nonce']}") for one in message]
    # Steering with a backlog means: now, and again in a run of its own.
    assert counts == [2 if again else 1] * len(message), counts
    return [whole.index(f"T#{one['nonce']}") for one in message]


@pytest.mark.parametrize("mode", ["steer", "followup", "collect", "steer-backlog"])
def test_row_36_ten_messages_during_run_are_kept_in_order(make_rig: MakeRig, mode: str) -> None:
    queue = {"queue": {"mode": mode, "debounceMs": 50}}
    rig = make_rig(config={"messages": queue})
    messages = write_ten(rig)
    wait_for(lambda: len(rig.inbox()) == TEN + 1 and all(r.settled_ms for r in rig.inbox()), mode)
    assert {row.state for row in rig.inbox()} == {"answered"}
    positions = places(rig, messages, again=mode == "steer-backlog")
    assert positions == sorted(positions)


@pytest.mark.parametrize("mode", ["steer", "collect"])
def test_row_36_ten_messages_are_kept_after_kill(make_rig: MakeRig, mode: str) -> None:
    queue = {"queue": {"mode": mode, "debounceMs": 50}}
    rig = make_rig(config={"messages": queue})
    messages = write_ten(rig)
    wait_for(lambda: len(rig.inbox()) == TEN + 1, "all are accepted")
    rig.kill()
    rig.start()
    wait_for(lambda: all(row.settled_ms for row in rig.inbox()), mode)
    assert {row.state for row in rig.inbox()} == {"answered"}
    positions = places(rig, messages)
    assert positions == sorted(positions)
    assert not rig.verdict().doubled
