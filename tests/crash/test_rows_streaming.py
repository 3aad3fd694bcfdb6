"""Rows 10 to 14 where an answer is shown before it is done: by block, and in a live message.

The text before a tool call is enqueued in the commit that saves it, so it is sent once, whatever
happens. A live message is replaced by the answer; one that was live when the gateway died may stay
as it was, and the answer is sent all the same, once.
"""

import asyncio
import json
from typing import Any

import pytest

from homarus.testing.model_server import (
    CallTools,
    HangUntilDisconnect,
    Say,
    ScriptedAnswer,
    ScriptedCall,
    WaitForTest,
)
from tests.contract.channel_stage import Harness, wait_for
from tests.crash.test_rows_channels import NOTICE, ask_once_more, settled

pytestmark = pytest.mark.timeout(300)

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
