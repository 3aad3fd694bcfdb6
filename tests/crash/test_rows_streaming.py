"""Rows 10 to 14 and 110 to 114 where an answer is shown before it is done: by block, and live.

The text before a tool call is enqueued in the commit that saves it, so it is sent once, whatever
happens. Blocks of a message that was not complete are followed by one notice, and by the answer
from its start. A live message is replaced by the answer; one that was live when the gateway died
may stay as it was, and the answer is sent all the same, once.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from homarus.agent.reply.wording import ANSWER_RESTARTED
from homarus.testing.model_server import (
    CallTools,
    Cut,
    Delay,
    HangUntilDisconnect,
    Say,
    ScriptedAnswer,
    ScriptedCall,
    WaitForTest,
)
from tests.contract.channel_stage import UNKNOWN_NOTICE as NOTICE
from tests.contract.channel_stage import Harness, wait_for
from tests.crash.test_rows_channels import SEED, ask_once_more, settled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KILLS = 8
BLOCK, ANSWER = "Let me look into that file.", "It is about crabs."
BEGUN, END = "The beginning of a long answer, as it grows", "And this is its end."


def choose(stage: Harness, **settings: Any) -> None:
    """Set an option of the channel, before the gateway is started."""
    file = stage.home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["channels"][stage.peer.name] |= settings
    stage.home.configure(config)


class Latch(asyncio.Event):
    """An event that another thread opens."""

    async def wait(self) -> Any:
        self.waits_in = asyncio.get_running_loop()
        return await super().wait()

    def open(self) -> None:
        self.waits_in.call_soon_threadsafe(self.set)


# By block


@pytest.mark.parametrize(
    "fault",
    [
        "tool.asked:kill9",
        "tool.ended:kill9",
        "tool.saved:kill9",
        "provider.asked:kill9:3",
        "reply.saved:kill9:2",
        *(f"deliver.{step}:kill9:{which}"  # the second is what it says, the third the answer
          for which in (2, 3) for step in ("started", "answered", "ended")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stage", ["telegram", "scripted"], indirect=True)
def test_rows_08_to_13_text_before_tool_and_answer_are_sent_once(
    stage: Harness, fault: str
) -> None:
    choose(stage, blockStreaming=True)
    stage.start(fault)
    stage.model.script([Say("hello Ann")])
    stage.peer.write("hello")
    stage.wait_shown("hello Ann")
    look: ScriptedAnswer = [Say(BLOCK), CallTools(ScriptedCall("read", {"path": "AGENTS.md"}))]
    stage.model.script(look, [Say(ANSWER)], [Say(ANSWER)])
    stage.peer.write("what is it about?")
    stage.died()
    stage.start()
    wait_for(lambda: settled(stage), "all is settled")
    ask_once_more(stage)
    wait_for(lambda: settled(stage), "all is settled")
    unknown = [one.text for one in stage.parcels() if one.state == "unknown"]
    for words in (BLOCK, ANSWER):
        times = stage.times(words)
        assert times <= 1, f"{words} was doubled"
        assert times == 1 or words in unknown, f"{words} was lost"
    assert stage.times(NOTICE) == len(unknown) <= (stage.peer.name == "telegram")
    if fault.startswith(("deliver.started", "deliver.answered")) and stage.peer.name == "telegram":
        assert unknown == [ANSWER if fault.endswith("3") else BLOCK]
    shown = "\n".join(one.text for one in stage.peer.shown())
    if BLOCK in shown and ANSWER in shown:
        assert shown.index(BLOCK) < shown.index(ANSWER)


# In blocks of a message that is being written

FIRST, SECOND, THIRD = "Crabs walk sideways.", "They have ten legs.", "Most live in the sea."
AGAIN = "Sideways, as a rule."
WHOLE = f"{FIRST}\n\n{SECOND}\n\n{THIRD}"


def stream_blocks(stage: Harness) -> None:
    """Switch block streaming on, with blocks of one sentence."""
    choose(stage, blockStreaming=True)
    file = stage.home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["agents"]["defaults"] |= {
        "blockStreamingChunk": {"minChars": 10, "maxChars": 30},
        "blockStreamingCoalesce": {"minChars": 1},
    }
    stage.home.configure(config)


def ask_for_blocks(stage: Harness, *script: ScriptedAnswer, fault: str = "") -> None:
    """Ask for an answer in blocks, in a chat that has a message already."""
    stream_blocks(stage)
    stage.start(fault)
    stage.model.script([Say("hello Ann")])
    stage.peer.write("hello")
    stage.wait_shown("hello Ann")
    stage.model.script(*script)
    stage.peer.write("what of crabs?")


def write_slowly(latch: Latch) -> ScriptedAnswer:
    """Write two blocks, and the third when the latch is opened."""
    before = [Say(f"{FIRST}\n\n"), Say(f"{SECOND}\n\n"), Say(THIRD[:4])]
    return [*before, WaitForTest(latch), Say(THIRD[4:])]


def write_one_block() -> ScriptedAnswer:
    """Write one block and the start of another."""
    return [Say(f"{FIRST}\n\nThey"), HangUntilDisconnect()]


def order(stage: Harness, *words: str) -> list[str]:
    """Return which of these are in the chat, in the order they have there."""
    shown = "\n".join(one.text for one in stage.peer.shown())
    return sorted((word for word in words if word in shown), key=shown.index)


def check_restarted(stage: Harness, *blocks: str, answer: str = AGAIN) -> None:
    """Check that the chat has some blocks once, then one notice, then the answer once."""
    stage.wait_shown(answer)
    ask_once_more(stage)
    wait_for(lambda: settled(stage), "all is settled")
    unknown = [one.text for one in stage.parcels() if one.state == "unknown"]
    expected = [*blocks, ANSWER_RESTARTED, answer]
    assert all(stage.times(word) <= 1 for word in expected)
    shown = order(stage, FIRST, SECOND, THIRD, ANSWER_RESTARTED, answer)
    assert shown == [word for word in expected if word in shown or word not in unknown]
    assert stage.times(NOTICE) == len(unknown) <= (stage.peer.name == "telegram")


def check_complete(stage: Harness) -> None:
    """Check that the chat has the whole answer once, in order, and no notice."""
    stage.wait_shown(THIRD)
    ask_once_more(stage)
    wait_for(lambda: settled(stage), "all is settled")
    assert [stage.times(word) for word in (FIRST, SECOND, THIRD)] == [1, 1, 1]
    assert order(stage, FIRST, SECOND, THIRD) == [FIRST, SECOND, THIRD]
    assert stage.times(ANSWER_RESTARTED) == 0


@pytest.mark.parametrize("stage", ["telegram", "scripted"], indirect=True)
def test_blocks_arrive_while_the_model_still_writes(stage: Harness) -> None:
    latch = Latch()
    ask_for_blocks(stage, write_slowly(latch))
    stage.wait_shown(FIRST, SECOND)
    texts = [one.text for one in stage.peer.shown()]
    assert any(FIRST in text and SECOND not in text for text in texts)
    assert stage.times("Most") == 0
    latch.open()
    check_complete(stage)


@pytest.mark.parametrize("stage", ["telegram", "scripted"], indirect=True)
def test_broken_stream_after_blocks_is_announced_and_repeated(stage: Harness) -> None:
    latch = Latch()
    broken = [*write_slowly(latch)[:-1], Cut("reset")]
    ask_for_blocks(stage, broken, [Say(AGAIN)])
    stage.wait_shown(FIRST, SECOND)
    latch.open()
    check_restarted(stage, FIRST, SECOND)


@pytest.mark.parametrize("stage", ["telegram"], indirect=True)
def test_stop_after_blocks_leaves_them_and_drops_the_rest(stage: Harness) -> None:
    ask_for_blocks(stage, write_slowly(Latch()))
    stage.wait_shown(FIRST, SECOND)
    stage.peer.write("/stop")
    wait_for(lambda: all(row.settled_ms for row in stage.rows()), "the run is stopped")
    ask_once_more(stage)
    shown = [stage.times(word) for word in (FIRST, SECOND, THIRD[:4], ANSWER_RESTARTED)]
    assert shown == [1, 1, 0, 0]


@pytest.mark.parametrize("stage", ["telegram", "scripted"], indirect=True)
def test_row_110_enqueued_block_is_sent_before_notice_and_new_answer(stage: Harness) -> None:
    ask_for_blocks(stage, write_one_block(), [Say(AGAIN)], fault="block.saved:kill9")
    stage.died()
    stage.start()
    check_restarted(stage, FIRST)


@pytest.mark.parametrize("step", ["started", "answered", "ended"])
@pytest.mark.parametrize("stage", ["telegram", "scripted"], indirect=True)
def test_row_111_block_being_sent_is_not_doubled(stage: Harness, step: str) -> None:
    fault = f"deliver.{step}:kill9:2"  # the first is hello
    ask_for_blocks(stage, write_one_block(), [Say(AGAIN)], fault=fault)
    stage.died()
    stage.start()
    check_restarted(stage, FIRST)


@pytest.mark.parametrize("stage", ["telegram", "scripted"], indirect=True)
def test_row_112_kill_between_blocks_is_followed_by_one_notice(stage: Harness) -> None:
    ask_for_blocks(stage, write_slowly(Latch()), [Say(AGAIN)])
    stage.wait_shown(FIRST, SECOND)
    wait_for(lambda: settled_parcels(stage), "both are marked as sent")
    stage.kill()
    stage.start()
    check_restarted(stage, FIRST, SECOND)


def settled_parcels(stage: Harness) -> bool:
    return all(record.state == "sent" for record in stage.parcels())


@pytest.mark.parametrize("fault", ["reply.saved:kill9:2", "tool.asked:kill9"])
@pytest.mark.parametrize("stage", ["telegram", "scripted"], indirect=True)
def test_row_113_saved_message_of_blocks_is_complete(stage: Harness, fault: str) -> None:
    latch = Latch()
    tools = [CallTools(ScriptedCall("read", {"path": "AGENTS.md"}))]
    answer = [*write_slowly(latch), *(tools if fault.startswith("tool") else [])]
    ask_for_blocks(stage, answer, [Say(ANSWER)], fault=fault)
    stage.wait_shown(FIRST, SECOND)
    wait_for(lambda: settled_parcels(stage), "both are marked as sent")
    latch.open()
    stage.died()
    stage.start()
    if fault.startswith("tool"):
        stage.wait_shown(ANSWER)
    check_complete(stage)


@pytest.mark.parametrize("stage", ["telegram", "scripted"], indirect=True)
def test_row_114_notice_is_sent_once_by_two_interruptions(stage: Harness) -> None:
    again: ScriptedAnswer = [Say(AGAIN)]
    ask_for_blocks(stage, write_one_block(), again, again, fault="block.saved:kill9")
    stage.died()
    stage.start("provider.asked:kill9")
    stage.died()
    stage.start()
    check_restarted(stage, FIRST)


@pytest.mark.parametrize("stage", ["scripted"], indirect=True)
def test_row_114_kill_before_the_first_block_gives_no_notice(stage: Harness) -> None:
    ask_for_blocks(stage, [Say(WHOLE)], [Say(WHOLE)], fault="provider.streaming:kill9:3")
    stage.died()
    stage.start()
    check_complete(stage)


@pytest.mark.parametrize("stage", ["scripted"], indirect=True)
def test_rows_110_to_114_random_kills_leave_one_complete_answer(stage: Harness) -> None:
    """The last answer is complete, and a notice is there exactly if blocks of another are."""
    chance = Random(SEED)
    stream_blocks(stage)
    stage.start()
    for number in range(KILLS):
        tries = [[f"Number {number}{word} is {end}." for end in "abcde"] for word in ("x", "y")]
        stage.model.script(*(pausing_answer(blocks) for blocks in tries))
        notices = stage.times(ANSWER_RESTARTED)
        stage.peer.write(f"question {number}")
        wait_for(partial(has_rows, stage, number + 1), "it is accepted")
        time.sleep(chance.uniform(0, 0.4))
        stage.kill()
        stage.start()
        wait_for(lambda: settled(stage), "all is settled")
        stage.model._answers.clear()
        first, second = ([stage.times(block) for block in blocks] for blocks in tries)
        if any(second):
            assert second == [1] * 5 and max(first) <= 1
            assert stage.times(ANSWER_RESTARTED) - notices == any(first)
        else:
            assert first == [1] * 5 and stage.times(ANSWER_RESTARTED) == notices


def has_rows(stage: Harness, count: int) -> bool:
    return len(stage.rows()) >= count


def pausing_answer(blocks: Sequence[str]) -> ScriptedAnswer:
    steps = [(Say(f"{block}\n\n"), Delay(0.03)) for block in blocks]
    return [step for pair in steps for step in pair]


# In a live message


def grow(stage: Harness, fault: str = "") -> Latch:
    """Ask in the group and wait for the start of the answer."""
    choose(stage, streamMode="partial")
    opened = Latch()
    stage.start(fault)
    stage.model.script([Say(BEGUN), WaitForTest(opened), Say(f". {END}")])
    stage.peer.write(stage.peer.call("tell me"), room=True)
    stage.wait_shown(BEGUN, room=True)
    return opened


@pytest.mark.parametrize("stage", ["telegram"], indirect=True)
def test_row_06_live_message_at_kill_stays_and_answer_is_sent_once(
    stage: Harness,
) -> None:
    grow(stage)
    stage.kill()
    stage.model.script([Say(f"{BEGUN}. {END}")])
    stage.start()
    stage.wait_shown(END, room=True)
    wait_for(lambda: settled(stage), "all is settled")
    half, whole = (one.text for one in stage.peer.shown(room=True))
    assert half == BEGUN and whole == f"{BEGUN}. {END}"


@pytest.mark.parametrize(
    "fault", ["reply.saved", "deliver.started", "deliver.answered", "deliver.ended"]
)
@pytest.mark.parametrize("stage", ["telegram"], indirect=True)
def test_rows_11_to_13_live_message_becomes_answer_after_kill(stage: Harness, fault: str) -> None:
    grow(stage, f"{fault}:kill9").open()
    stage.died()
    stage.start()
    stage.wait_shown(END, room=True)
    wait_for(lambda: settled(stage), "all is settled")
    assert [one.text for one in stage.peer.shown(room=True)] == [f"{BEGUN}. {END}"]
    assert stage.times(NOTICE, room=True) == 0


@pytest.mark.parametrize("stage", ["telegram"], indirect=True)
def test_live_message_without_answer_is_deleted(stage: Harness) -> None:
    """A person sends stop while the message is live."""
    choose(stage, streamMode="partial")
    stage.start()
    stage.model.script([Say(BEGUN), HangUntilDisconnect()])
    stage.peer.write(stage.peer.call("tell me"), room=True)
    stage.wait_shown(BEGUN, room=True)
    stage.peer.write(stage.peer.call("/stop"), room=True)
    wait_for(lambda: stage.times(BEGUN, room=True) == 0, "it is taken back")
