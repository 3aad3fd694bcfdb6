"""Rows 1 to 14 over real channels: `kill -9` between receive, answer, send and receipt.

The gateway is the real one, with the channel in its config; the service alone decides what was
lost and what was doubled. Telegram is our fake; Synapse and ngircd are in the peers' tier. Where a
service has neither idempotency keys nor a lookup, a reply that was being sent when the gateway
died is not sent again, and its chat is notified.
"""

import time
from contextlib import suppress
from functools import partial
from random import Random
from typing import cast
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed

from homarus.core.errors import HomarusError
from homarus.testing.model_server import Say
from tests.contract.channel_stage import UNKNOWN_NOTICE as NOTICE
from tests.contract.channel_stage import Harness, Redelivers, wait_for
from tests.contract.channel_table import ONCE, over

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TIMINGS = 6
WINDOW_S = 0.25
SEED = 20261115


def die(stage: Harness, fault: str) -> None:
    """Let Ann ask, in a chat with history, kill the gateway at the point, and start another."""
    stage.start(f"{fault}:kill9:{2 if fault != 'provider.streaming' else 3}")
    stage.model.script([Say("hello Ann")])
    stage.peer.write("hello")
    stage.wait_shown("hello Ann")
    die_of_it(stage)


def die_of_it(stage: Harness) -> None:
    """It may ask the model, before it dies and after."""
    stage.model.script([Say("the answer")], [Say("the answer")])
    stage.peer.write("a question")
    stage.died()
    stage.start()


def ask_once_more(stage: Harness) -> None:
    stage.model._answers.clear()
    stage.model.script([Say("the next answer")])
    stage.peer.write("another question")
    stage.wait_shown("the next answer")


def settled(stage: Harness) -> bool:
    """Return whether nothing is pending."""
    rows, parcels = stage.rows(), stage.parcels()
    return all(row.state == "answered" for row in rows) and not any(
        record.state in {"pending", "sending"} for record in parcels
    )


@pytest.mark.parametrize(
    "stage",
    [
        "telegram",
        pytest.param("matrix", marks=pytest.mark.peers),
    ],
    indirect=True,
)
def test_row_01_first_message_uncommitted_is_redelivered(stage: Harness) -> None:
    stage.start("intake.read:kill9")
    die_of_it(stage)
    wait_for(lambda: stage.peer.shown(), "it is answered", 20.0)
    assert stage.times("the answer") == 1


@over("killed before it was kept")
def test_row_01_uncommitted_message_is_redelivered_and_answered_once(stage: Harness) -> None:
    die(stage, "intake.read")
    stage.wait_shown("the answer")
    ask_once_more(stage)
    assert stage.times("the answer") == 1


@pytest.mark.parametrize(
    "fault",
    [
        "intake.accepted",
        "intake.acknowledged",
        "run.begun",
        "provider.asked",
        "provider.streaming",
        "reply.saved",
        "deliver.ended",
    ],
)
@over("killed")
def test_rows_02_to_11_committed_message_is_answered_once(stage: Harness, fault: str) -> None:
    die(stage, fault)
    stage.wait_shown("the answer")
    ask_once_more(stage)
    wait_for(lambda: settled(stage), "all is settled")
    assert stage.times("the answer") == 1 and stage.times(NOTICE) == 0
    assert len(stage.rows()) == 3


@pytest.mark.parametrize("fault", ["run.begun", "provider.asked", "provider.streaming"])
@pytest.mark.parametrize("stage", ["webchat"], indirect=True)
def test_rows_04_to_06_repeated_request_is_answered_once(stage: Harness, fault: str) -> None:
    """On the gateway's own WebSocket: who heard nothing sends the same request once more."""
    stage.start(f"{fault}:kill9")
    stage.model.script([Say("the answer")], [Say("the answer")])
    with suppress(OSError, HomarusError, ConnectionClosed):
        stage.peer.write("a question")
    stage.died()
    stage.start()
    cast("Redelivers", stage.peer).redeliver(stage, 3)
    stage.wait_shown("the answer")
    ask_once_more(stage)
    assert stage.times("the answer") == 1 and len(stage.rows()) == 2


@over("killed")
def test_row_12_reply_maybe_sent_is_sent_once_or_reported(stage: Harness) -> None:
    die(stage, "deliver.started")
    if stage.peer.name in ONCE:
        stage.wait_shown("the answer")
    ask_once_more(stage)
    wait_for(lambda: settled(stage), "all is settled")
    known = stage.peer.name in ONCE
    assert stage.times("the answer") == known
    assert stage.times(NOTICE) == (not known)


@over("killed")
def test_row_13_delivered_reply_is_not_sent_again(stage: Harness) -> None:
    die(stage, "deliver.answered")
    ask_once_more(stage)
    wait_for(lambda: settled(stage), "all is settled")
    assert stage.times("the answer") == 1
    assert stage.times(NOTICE) == (stage.peer.name not in ONCE)


@over("killed")
def test_random_kills_lose_and_double_nothing(stage: Harness) -> None:
    chance = Random(f"{stage.peer.name}-{SEED}")
    runs = dict[str, set[str]]()  # by nonce: the run that answers it, if it was kept
    stage.start()
    stage.model.script([Say("hello Ann")])
    stage.peer.write("hello")
    stage.wait_shown("hello Ann")
    for number in range(2, TIMINGS + 2):
        nonce, before = uuid4().hex, {row.id for row in stage.rows()}
        stage.peer.write(f"{nonce} MOCK:delay:50 MOCK:echo")
        time.sleep(chance.uniform(0, WINDOW_S))
        stage.kill()
        stage.start()
        if stage.peer.name != "irc":  # what it had not kept, it is told again
            wait_for(partial(_has_rows, stage, number), "it is kept")
        wait_for(lambda: settled(stage), "all is settled")
        runs[nonce] = {row.run for row in stage.rows() if row.id not in before}
    unknown = {record.run for record in stage.parcels() if record.state == "unknown"}
    for nonce, answering in runs.items():
        times = stage.times(nonce)
        assert times <= 1, f"{nonce} was doubled"
        assert times == 1 or not answering or answering & unknown, f"{nonce} was lost"
    assert not unknown or stage.peer.name not in ONCE


def _has_rows(stage: Harness, count: int) -> bool:
    return len(stage.rows()) >= count
