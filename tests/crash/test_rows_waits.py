"""Rows 53 and 54: providers that hang, or ask for a long wait."""

from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for
from tests.crash.random_kills import ECHO

PLACES = 4
STUCK = 6


def is_answered(rig: Rig, message_id: str) -> bool:
    return message_id in rig.verdict().answered


def test_row_53_stuck_conversations_hold_up_no_other(make_rig: MakeRig) -> None:
    rig = make_rig(concurrent=PLACES)
    rig.start()
    rig.wait_ready()
    stuck = [rig.offer("T#{nonce} MOCK:hold", f"stuck-{n}") for n in range(STUCK)]
    wait_for(lambda: sum(bool(one.entry) for one in rig.inbox()) == STUCK, "all are under way")
    healthy = rig.offer(ECHO, "healthy")
    wait_for(lambda: is_answered(rig, healthy["id"]), "the healthy one is answered", 20)
    rig.kill()
    rig.start()  # which resumes those that are stuck first
    later = rig.offer(ECHO, "later")
    wait_for(lambda: is_answered(rig, later["id"]), "a later one is answered", 20)
    assert not {one["id"] for one in stuck} & {*rig.verdict().answered, *rig.verdict().doubled}


def test_row_54_long_retry_after_is_reported_at_once(make_rig: MakeRig) -> None:
    rig = make_rig(concurrent=PLACES)
    rig.start()
    rig.wait_ready()
    messages = [rig.offer("T#{nonce} MOCK:fail:429:1:7200 MOCK:echo", f"chat-{n}", marks=())
                for n in range(PLACES + 1)]  # fmt: skip
    wait_for(
        lambda: len(rig.inbox()) == len(messages) and all(row.settled_ms for row in rig.inbox()),
        "each is reported",
        20,
    )
    reasons = {row.why for row in rig.inbox()}
    assert all("too many requests" in why or "rate limited until" in why for why in reasons)
