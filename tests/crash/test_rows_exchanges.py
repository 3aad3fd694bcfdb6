"""Rows 80 to 84: `kill -9` at every stage of a message from one session to another.

Whatever is killed: the person who asked has one answer, each message between the sessions is
accepted, asked and answered once, and the chat of the other session is told once.
"""

import time
from collections import Counter
from random import Random
from typing import Any, Final

import pytest

from homarus.store.exchanges import KIND
from homarus.store.sqlite import SqliteStore
from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for
from tests.crash.test_rows_approvals import KILLED

pytestmark = pytest.mark.slow

SEED: Final = 20261118
TRIALS: Final = 10
TURNS: Final = 2
SOURCE, TARGET = "agent:main:main", "agent:helper:main"
STEPS: Final = ["0", "1", "2", "announce"]
ANNOUNCED: Final = "Hello from the mock model."
CONFIG: Final[dict[str, Any]] = {
    "agents": {
        "defaults": {"model": {"primary": "mock/mock-1"}},
        "list": [{"id": "main", "default": True}, {"id": "helper"}],
    },
    "bindings": [
        {
            "agentId": "helper",
            "match": {"channel": "scripted", "peer": {"kind": "direct", "id": "other"}},
        }
    ],
    "session": {"dmScope": "main", "agentToAgent": {"maxPingPongTurns": TURNS}},
    "tools": {"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True}},
    "commands": {"ownerAllowFrom": ["scripted:chat"]},
}
# The model answers what has no marker with one sentence, the announcement too.
SEND: Final = (
    'T#{nonce} MOCK:tool:sessions_send:{"sessionKey":"%s","message":"Q={nonce}",'
    '"timeoutSeconds":%d}§ MOCK:next MOCK:echo'
)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """A gateway with two agents, of which the second has a chat with a person."""
    made = make_rig(config=CONFIG)
    greeting = made.offer("T#{nonce} MOCK:echo", "other")
    made.start()
    wait_for(lambda: greeting["id"] in made.verdict().answered, "the helper has a chat")
    made.kill()
    return made


def open_exchanges(rig: Rig) -> list[str]:
    async def body(store: SqliteStore) -> list[str]:
        return list(await store.records(KIND))

    return rig.read_store(body)


def announcements(rig: Rig) -> int:
    sends = rig.ledger.get("/ledger")["sends"]
    return sum(send["chat"] == "other" and send["text"] == ANNOUNCED for send in sends)


def check_exchanged(rig: Rig, message: Any, told: int = 1) -> None:
    """Wait for the end of the exchange, and check that nothing is missing and nothing doubled."""
    wait_for(lambda: message["id"] in rig.verdict().answered, f"{message['id']} is answered")
    wait_for(lambda: announcements(rig) >= told, "the chat of the other session is told")
    wait_for(lambda: not open_exchanges(rig), "the exchange has ended")
    assert announcements(rig) == told and not rig.verdict().doubled and not rig.verdict().lost
    rows = [row for row in rig.inbox() if row.id.startswith("exchange:")]
    found = Counter(row.id.rpartition(":")[0] for row in rows)
    assert list(found.values()) == [len(STEPS)] * told
    assert [row.id.rpartition(":")[2] for row in rows] == STEPS * told
    assert {row.state for row in rows} == {"answered"}
    for key, marks in (
        (TARGET, (f"Q={message['nonce']}\n[Your answer", "turn 2 of 2", "Your exchange with")),
        (SOURCE, ("turn 1 of 2",)),
    ):
        asked = [str(one["content"]) for one in rig.messages(key) if one["role"] == "user"]
        for mark in marks:
            texts = [text for text in asked if mark.replace("\n", "\\n") in text]
            assert len(texts) == (1 if "Q=" in mark else told), (key, mark)


def offer(rig: Rig, timeout_s: int = 120) -> Any:
    return rig.offer(SEND.replace("%s", TARGET).replace("%d", str(timeout_s)))


def check_killed_at(rig: Rig, fault: str, timeout_s: int = 120) -> None:
    message = offer(rig, timeout_s)
    rig.start(fault)
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output
    rig.start()
    check_exchanged(rig, message)


@pytest.mark.parametrize("timeout_s", [0, 120])
@pytest.mark.parametrize("point", ["exchange.saved", "exchange.accepted"])
def test_row_80_killed_while_a_message_is_sent(rig: Rig, point: str, timeout_s: int) -> None:
    check_killed_at(rig, f"{point}:kill9", timeout_s)


@pytest.mark.parametrize("fault", ["run.begun:kill9:2", "reply.saved:kill9:1"])
def test_row_81_killed_while_the_other_session_answers(rig: Rig, fault: str) -> None:
    check_killed_at(rig, fault)


@pytest.mark.parametrize("fault", ["tool.ended:kill9", "tool.saved:kill9"])
def test_row_82_killed_with_the_answer_in_hand(rig: Rig, fault: str) -> None:
    check_killed_at(rig, fault)


@pytest.mark.parametrize(
    "fault",
    ["exchange.advanced:kill9:1", "exchange.advanced:kill9:2", "exchange.accepted:kill9:3"],
)
def test_row_83_killed_between_two_turns(rig: Rig, fault: str) -> None:
    check_killed_at(rig, fault)


@pytest.mark.parametrize(
    "fault",
    ["exchange.advanced:kill9:3", "exchange.accepted:kill9:4", "exchange.ended:kill9"],
)
def test_row_84_killed_around_the_announcement(rig: Rig, fault: str) -> None:
    check_killed_at(rig, fault)


def test_rows_80_to_84_random_kills(rig: Rig) -> None:
    random = Random(SEED)
    for trial in range(1, TRIALS + 1):
        message = offer(rig)
        rig.start()
        time.sleep(random.uniform(0.2, 1.6))
        rig.kill()
        rig.start()
        if random.random() < 0.25:
            time.sleep(random.uniform(0.1, 0.8))
            rig.kill()
            rig.start()
        check_exchanged(rig, message, trial)
        rig.kill()
