"""The record of an exchange: its steps, who gets them, and how often sessions may go on."""

from dataclasses import replace

import pytest

from homarus.store.exchanges import (
    MAX_HOPS,
    ExchangeRecord,
    count_hops,
    decode_exchange,
    encode_exchange,
    make_exchange_id,
)

RECORD = ExchangeRecord(
    make_exchange_id(1, "abc"),
    "agent:a:main",
    "agent:b:main",
    "the text",
    "the request",
    source_run="run-1",
    source_channel="telegram",
    step=2,
    max_step=4,
    reply="yes",
    is_limited=True,
    is_untrusted=True,
)


def test_exchange_record_is_read_as_it_was_stored() -> None:
    stored = encode_exchange(RECORD)
    assert decode_exchange(RECORD.id, stored) == RECORD
    assert decode_exchange(RECORD.id, {**stored, "added": "later"}) == RECORD


@pytest.mark.parametrize(
    ("step", "receiver", "sender"),
    [(0, "b", "a"), (1, "a", "b"), (2, "b", "a"), (5, "a", "b")],
)
def test_exchange_steps_go_back_and_forth(step: int, receiver: str, sender: str) -> None:
    record = replace(RECORD, step=step)
    assert record.receiver == f"agent:{receiver}:main" and record.sender == f"agent:{sender}:main"
    assert record.step_run == f"exchange:1:abc:{step}"


def test_exchange_announcement_is_asked_of_the_target() -> None:
    record = replace(RECORD, step=3, phase="announce")
    assert (record.receiver, record.sender) == ("agent:b:main", "agent:a:main")
    assert record.step_run == "exchange:1:abc:announce" and record.first_run == "exchange:1:abc:0"


def test_exchange_hops_count_every_message_before() -> None:
    assert count_hops("exchange:0:abc:0") == 1 and count_hops("exchange:2:abc:3") == 6
    assert count_hops("exchange:0:abc:announce") > MAX_HOPS
    for other in ("", "run-1", "exchange:x:abc:1", "exchange:0:abc", "exchange:0:abc:next"):
        assert count_hops(other) == 0, other
