"""Rows 33 to 35 over every channel: absence, revoked tokens, repeated and changed messages.

An absence of an hour is in tests/unit/channels/test_supervisor.py, on a clock of the test's own.
"""

from typing import cast

import pytest

from homarus.testing.model_server import Say
from tests.contract.channel_stage import (
    TOKEN,
    Contradicts,
    Edits,
    Harness,
    Redelivers,
    Restarts,
    Reverses,
    Revokes,
    wait_for,
)
from tests.contract.channel_table import over

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def converse(stage: Harness, question: str, answer: str) -> None:
    """Run one complete turn."""
    stage.model.script([Say(answer)])
    stage.peer.write(question)
    stage.wait_shown(answer)


def duplicates(stage: Harness) -> int:
    return sum(row.duplicates for row in stage.rows())


@over("written while away")
def test_row_33_messages_written_while_away_are_answered_once(stage: Harness) -> None:
    stage.start()
    converse(stage, "before", "answer before")
    stage.kill()
    stage.peer.write("first while away MOCK:delay:300 MOCK:echo")
    stage.peer.write("second while away MOCK:echo")
    stage.start()
    stage.wait_shown("first while away", "second while away")
    converse(stage, "after", "answer after")
    assert len(stage.rows()) == 4 and all(row.state == "answered" for row in stage.rows())
    assert stage.times("answer before") == stage.times("answer after") == 1
    assert stage.times("first while away") == stage.times("second while away") == 1


@over("service restarts")
def test_row_33_short_outage_keeps_stored_position(stage: Harness) -> None:
    stage.start()
    converse(stage, "before", "answer before")
    peer = cast("Restarts", stage.peer)
    for number in range(2):
        peer.go_down()
        stage.stay_quiet()
        peer.come_up()
        converse(stage, f"after {number}", f"answer after {number}")
        assert stage.times(f"answer after {number}") == 1
        assert stage.times("answer before") <= 1  # users of IRC come back without a history
    assert len(stage.model.requests) == len(stage.rows()) == 3


@over("position lost")
def test_row_33_lost_position_answers_no_old_message_again(stage: Harness) -> None:
    stage.start()
    converse(stage, "before", "answer before")
    stage.kill()
    line = f"{stage.peer.name}:default"
    stage.rewind(line, {})
    stage.start()
    if getattr(stage.peer, "reads_from_now", False):
        wait_for(lambda: stage.cursor(line), "it has a position again")
    converse(stage, "after", "answer after")
    stage.stay_quiet()
    assert stage.times("answer before") == stage.times("answer after") == 1
    assert len(stage.model.requests) == len(stage.rows()) == 2


@over("token revoked")
def test_row_33_revoked_token_is_reported_and_stops_channel_alone(stage: Harness) -> None:
    stage.start()
    converse(stage, "before", "answer before")
    cast("Revokes", stage.peer).revoke()
    name = f"{stage.peer.name}:default"
    wait_for(lambda: f"channel {name} stopped" in stage.log, "the refusal is logged")
    assert stage.gateway is not None and not stage.gateway.ended()
    done = stage.home.run("channels", "status", "--url", stage.url, "--token", TOKEN)
    assert "stopped" in done.out or "refused" in done.out, done.out
    assert "Traceback" not in stage.log + stage.output


@over("repeated while answered")
def test_row_34_repeated_message_while_answered_is_answered_once(stage: Harness) -> None:
    stage.start()
    stage.model.script([Say(["the ", "answer"], gap_s=0.5)])
    stage.peer.write("a question")
    wait_for(lambda: any(row.state == "running" for row in stage.rows()), "the run begins")
    cast("Redelivers", stage.peer).redeliver(stage, 99)
    stage.wait_shown("the answer")
    converse(stage, "and then?", "the end")
    assert stage.times("the answer") == 1


@over("out of order")
def test_row_34_old_messages_in_reverse_order_are_answered_once(stage: Harness) -> None:
    stage.start()
    for number in range(3):
        converse(stage, f"question {number}", f"answer {number}")
    cast("Reverses", stage.peer).redeliver_reversed(3)
    wait_for(lambda: duplicates(stage) >= 3, "all came again")
    converse(stage, "and then?", "the end")
    assert [stage.times(f"answer {number}") for number in range(3)] == [1, 1, 1]
    assert len(stage.model.requests) == len(stage.rows()) == 4


@over("edited")
def test_row_34_edited_message_is_not_answered_again(stage: Harness) -> None:
    stage.start()
    converse(stage, "hello", "hello Ann")
    converse(stage, "a queston", "the answer")
    cast("Edits", stage.peer).edit_last("a question")
    converse(stage, "and then?", "the end")
    stage.stay_quiet()
    assert stage.times("the answer") == 1
    assert len(stage.model.requests) == len(stage.rows()) == 3
    assert "a question" in str(stage.model.requests[-1].body["messages"][-1])


@over("same id, other text")
def test_row_35_same_id_with_other_text_is_kept_and_reported(stage: Harness) -> None:
    stage.start()
    converse(stage, "a question", "the answer")
    cast("Contradicts", stage.peer).contradict("other words")
    wait_for(lambda: len(stage.rows()) == 2, "the other words are kept")
    converse(stage, "and then?", "the end")
    first, other, _ = stage.rows()
    assert (first.state, other.state) == ("answered", "parked")
    assert other.inbound is not None and "other words" in other.inbound.text and other.why
    wait_for(lambda: "is parked" in stage.log, "the conflict is logged")
    assert len(stage.model.requests) == 2 and stage.times("the answer") == 1
