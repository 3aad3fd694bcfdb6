"""Row 65: `kill -9` at every stage of a question that an agent asks its person.

The question is asked once, its answer is kept, and its run is resumed with it once.
"""

import pytest

from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for
from tests.crash.test_rows_approvals import (
    KILLED,
    SUSPEND_AT_ONCE,
    approvals,
    decide,
    results,
    wait_suspended,
)

ASK = (
    'T#{nonce} MOCK:tool:ask_user:{"question":"Which one?","choices":["Left","Right"]}§'
    " MOCK:next MOCK:echo"
)


def check_answered_by(rig: Rig, message: dict[str, str], answer: str) -> None:
    """Check that the message is answered once, and that its one question has this answer."""
    verdict = rig.settle()
    assert verdict.answered == [message["id"]] and not verdict.doubled and not verdict.lost
    wait_for(lambda: rig.inbox_record(message["id"]).state == "answered", "it is settled")
    (question,) = approvals(rig)
    assert question.is_question and question.answer == answer
    (result,) = results(rig, message)
    assert f"The person answered: {answer}" in result


@pytest.mark.parametrize("point", ["approval.asked", "approval.answered", "approval.resumed"])
def test_row_65_killed_while_a_question_waits(make_rig: MakeRig, point: str) -> None:
    rig = make_rig(config=SUSPEND_AT_ONCE)
    decide(rig, "Right" if point == "approval.answered" else "wait")
    message = rig.offer(ASK)
    if point == "approval.resumed":
        rig.start()
        wait_suspended(rig, message)
        rig.kill()
        decide(rig, "Right")
    rig.start(f"{point}:kill9")
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output
    states = {"approval.asked": "pending"}
    assert [one.state for one in approvals(rig)] == [states.get(point, "allowed")]
    if point == "approval.asked":
        rig.start()
        wait_suspended(rig, message)
        decide(rig, "Right")
    else:
        decide(rig, "Left")  # a second answer changes nothing
        rig.start()
    check_answered_by(rig, message, "Right")
