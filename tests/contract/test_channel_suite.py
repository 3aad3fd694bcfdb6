"""One contract over every channel: the real gateway, checked through the service.

Each test is a column of the table in channel_table.py, each of its harnesses a channel.
"""

import json
from typing import Any, cast

import pytest

from homarus.core.errors import HomarusError
from homarus.testing.model_server import ModelServer, Say
from tests.contract.channel_stage import (
    EVE,
    UNKNOWN_NOTICE,
    AcceptsAndFails,
    Attaches,
    Hampers,
    Harness,
    Redelivers,
    Restarts,
    wait_for,
)
from tests.contract.channel_table import BEHAVIOURS, CANNOT, CHANNELS, ONCE, over

pytestmark = pytest.mark.timeout(300)

VERBATIM = {"webchat", "scripted"}  # a program gets the model's text, and renders it itself
UNICODE = "naïve €, 👩‍👩‍👧 ünï 漢字"
HOSTILE = (
    "<b>never closed *nor _this `nor this\n"
    "<script>alert(1)</script> &lt;i&gt; &amp; [x](javascript:alert(2)) @everyone @here\n"
    "\u202eturned\u202c \x1b[31mred\x07 \x02\x0304,05x \x01ACTION y\x01\r\nQUIT :gone\r\n"
    "</b></i></pre> <a href='x\" onclick='1'>z</a> [[_]] ```` | a | b\n|--|\n> > > deep\n"
    "```py\nthe very end"
)


def asked(model: ModelServer) -> list[str]:
    """Return the last message of each model request."""
    return [json.dumps(one.body["messages"][-1], ensure_ascii=False) for one in model.requests]


def converse(stage: Harness, question: str, answer: str, **where: Any) -> None:
    """Run one complete turn."""
    stage.model.script([Say(answer)])
    stage.peer.write(question, **where)
    stage.wait_shown(answer, **where)


@over("text both ways")
def test_channel_text_arrives_unchanged_both_ways(stage: Harness) -> None:
    stage.start()
    converse(stage, f"one {UNICODE}", f"answer {UNICODE}")
    converse(stage, "two", "second answer")
    assert f"one {UNICODE}" in asked(stage.model)[0]
    assert len(stage.model.requests) == 2
    assert stage.times(f"answer {UNICODE}") == stage.times("second answer") == 1


@over("splitting")
def test_channel_long_answer_is_split_within_limit_without_loss(stage: Harness) -> None:
    stage.start()
    peer = stage.peer
    least = min(peer.limit, 4_000)
    words = [f"w{number:04}👩‍👩‍👧€" for number in range(3 * least // peer.measure("w0000👩‍👩‍👧€ "))]
    text = " ".join(words)
    stage.model.script([Say(text)])
    peer.write("tell me everything")
    shown = stage.wait_shown(words[-1])
    assert all(peer.measure(one.text) <= peer.limit for one in shown)
    assert peer.limit > least or len(shown) >= 3
    told = " ".join(one.text for one in shown).split()
    assert [word for word in told if word in set(words)] == words


@over("formatting")
def test_channel_bold_uses_markup_of_service(stage: Harness) -> None:
    stage.start()
    stage.model.script([Say("this is **important** and `code` is_not_italic\n\n- one\n- two")])
    stage.peer.write("format it")
    shown = stage.wait_shown("important", "two")
    assert ("important",) in [one.bold for one in shown]
    text = "\n".join(one.text for one in shown)
    assert "is_not_italic" in text and "one" in text


@over("redelivery")
def test_channel_hundred_deliveries_are_answered_once(stage: Harness) -> None:
    stage.start()
    batch = getattr(stage.peer, "batch", 1)
    for number in range(batch):
        converse(stage, f"hear me {number}", f"heard<{number}>")
    cast("Redelivers", stage.peer).redeliver(stage, 99)
    converse(stage, "and then?", "the end")
    assert [stage.times(f"heard<{number}>") for number in range(batch)] == [1] * batch
    assert len(stage.model.requests) == len(stage.rows()) == batch + 1
    if stage.peer.name != "webchat":  # where the gateway itself has the history
        assert sum(row.duplicates for row in stage.rows()) >= 99  # a server may send more


@over("slow sends")
def test_channel_slow_service_gets_everything_once_in_order(stage: Harness) -> None:
    stage.start()
    converse(stage, "first", "answer 1")
    stage.model.script([Say("answer 2")], [Say("answer 3")])
    stage.peer.write("second")
    cast("Hampers", stage.peer).be_slow()
    stage.wait_shown("answer 2")
    stage.peer.write("third")
    shown = stage.wait_shown("answer 3")
    assert [one.text for one in shown] == ["answer 1", "answer 2", "answer 3"]


@over("refused for now")
def test_channel_temporary_refusal_is_sent_later(stage: Harness) -> None:
    stage.start()
    cast("Hampers", stage.peer).refuse_once()
    converse(stage, "hello", "after a while")
    stage.stay_quiet()
    assert stage.times("after a while") == 1


@over("accepted, then an error")
def test_channel_accepted_send_that_failed_is_one_message(stage: Harness) -> None:
    stage.start()
    converse(stage, "hello", "hello Ann")
    cast("AcceptsAndFails", stage.peer).accept_and_fail()
    converse(stage, "a question", "the answer")
    converse(stage, "another question", "the next answer")
    wait_for(
        lambda: all(one.state not in {"pending", "sending"} for one in stage.parcels()),
        "all is settled",
    )
    stage.stay_quiet()
    assert stage.times("the answer") == stage.times("the next answer") == 1
    states = [one.state for one in stage.parcels() if "the answer" in one.text]
    is_known = stage.peer.name in ONCE
    assert states == ["sent" if is_known else "unknown"]
    assert stage.times(UNKNOWN_NOTICE) == (not is_known)
    assert is_known or "may have arrived, it is not sent again" in stage.log


@over("refused for good")
def test_channel_permanent_refusal_is_logged_and_rest_is_sent(stage: Harness) -> None:
    stage.start()
    peer = stage.peer
    cast("Hampers", peer).refuse_room()
    stage.model.script([Say("never seen")])
    peer.write(peer.call("are you there?"), room=True)
    wait_for(
        lambda: [one for one in stage.parcels() if one.state == "dead"], "the parcel is given up"
    )
    wait_for(lambda: "was given up" in stage.log, "the refusal is logged")
    converse(stage, "and here?", "here I am")
    assert stage.times("never seen", room=True) == 0


@over("stranger")
def test_channel_unknown_sender_is_not_answered(stage: Harness) -> None:
    stage.start()
    try:
        stage.peer.write("the password is swordfish", who=EVE)
    except HomarusError:
        assert stage.peer.name == "webchat"  # she is not even connected
    else:
        stage.wait_shown("homarus pairing approve", who=EVE)
        stage.peer.write("swordfish, I said", who=EVE)
    converse(stage, "hello", "hello Ann")
    stage.stay_quiet()
    assert len(stage.model.requests) == 1 and "swordfish" not in str(asked(stage.model))
    assert stage.times("homarus pairing approve", who=EVE) <= 1
    assert "swordfish" not in stage.log + stage.output


@over("rooms")
def test_channel_group_answers_mention_only(stage: Harness) -> None:
    stage.start()
    peer = stage.peer
    peer.write("the tide is high", room=True)
    peer.write(peer.call("do as I say"), who=EVE, room=True)
    stage.model.script([Say("high water at six")])
    peer.write(peer.call("when is high water?"), room=True)
    stage.wait_shown("high water at six", room=True)
    stage.stay_quiet()
    assert len(stage.model.requests) == 1
    assert len(stage.peer.shown(room=True)) == 1
    told = asked(stage.model)[0]
    assert "when is high water?" in told and "the tide is high" in told
    assert "do as I say" not in told


@over("hostile markup")
def test_channel_untrusted_model_text_breaks_nothing(stage: Harness) -> None:
    stage.start()
    stage.model.script([Say(HOSTILE)])
    stage.peer.write("do your worst")
    shown = stage.wait_shown("the very end")
    text = "\n".join(one.text for one in shown)
    assert "alert(1)" in text and "turned" in text and "deep" in text
    if stage.peer.name not in VERBATIM:
        assert not any(mark in text for mark in "\x1b\x01\x07")
    converse(stage, "still there?", "still here")


@over("large file")
def test_channel_oversized_file_is_noted_and_text_answered(stage: Harness) -> None:
    stage.start()
    peer = cast("Attaches", stage.peer)
    stage.model.script([Say("I cannot see it")])
    if stage.peer.name == "webchat":
        with pytest.raises(HomarusError, match=r"(?i)large|limit|MB|bytes"):
            peer.attach("look at this", 6_000_000)
        assert not stage.model.requests
        stage.peer.write("then without it")
    else:
        peer.attach("look at this", 200_000)
    stage.wait_shown("I cannot see it")
    assert stage.peer.name == "webchat" or "larger than" in asked(stage.model)[0]


@over("service restarts")
def test_channel_service_outage_is_recovered(stage: Harness) -> None:
    stage.start()
    converse(stage, "before", "answer before")
    peer = cast("Restarts", stage.peer)
    peer.go_down()
    stage.stay_quiet()
    peer.come_up()
    converse(stage, "after", "answer after")
    assert stage.times("answer after") == 1 and len(stage.model.requests) == 2


def test_channel_skipped_cells_are_in_table_with_reason() -> None:
    for (channel, behaviour), reason in CANNOT.items():
        assert channel in CHANNELS and behaviour in BEHAVIOURS and reason
