"""What a chat sees of a run: the plays show it case by case, here is what holds for all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.agent.reply.blocks import Block, Chunking, Coalescing
from homarus.agent.reply.manner import Manner
from homarus.agent.reply.shaping import Shape
from homarus.agent.reply.text import parse_reply, strip_reasoning_tags
from homarus.agent.reply.typing import TypingMode
from homarus.agent.reply.wording import EMPTY
from homarus.core.event import (
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from homarus.core.message import Address, Message, Origin, Text, ToolCall, ToolReturn
from homarus.sessions.levels import ReasoningLevel
from tests.unit.agent.talk import cut

WORDS = st.sampled_from(
    [
        *(
            "Lobsters ",
            "walk. ",
            "Really? ",
            "\n",
            "\n\n",
            "NO_REPLY",
            "\nNO_REPLY\n",
        ),
        *(
            "<think>",
            "<think>secret</think>",
            "</think>",
            "[[reply_to_current]]",
            "MEDIA:./a.png",
            "`x`",
            "a <b ",
            "3.14 ",
        ),
    ]
)
TEXTS = st.lists(WORDS, max_size=24).map("".join)
STEPS = st.lists(st.integers(1, 12), min_size=1, max_size=6)
MANNERS = st.builds(
    Manner,
    streams=st.booleans(),
    boundary=st.sampled_from(["text_end", "message_end"]),
    chunking=st.builds(Chunking, st.integers(1, 40), st.integers(12, 60)),
    coalescing=st.none() | st.builds(Coalescing, st.integers(1, 50), st.just(60)),
)


def said(text: str, stop: str = "stop") -> Message:
    parts = (Text(text),) if text else ()
    return Message(
        "assistant", parts, 0, Origin("a", "p", "m", "aborted" if stop == "aborted" else "stop")
    )


def tell(manner: Manner, text: str, steps: list[int]) -> list[Block]:
    """Every block of an answer that comes in pieces."""
    shape, blocks = Shape(manner), list[Block]()
    for turn, piece in enumerate(cut(text, steps)):
        blocks += shape.feed(TextAdded(piece), turn * 0.4).send
        blocks += shape.tick(turn * 0.4 + 0.3).send
    return [*blocks, *shape.finish(said(text)).blocks]


def bare(text: str) -> str:
    return "".join(text.split())


@settings(max_examples=300)
@given(MANNERS, TEXTS, STEPS)
def test_a_chat_gets_all_of_an_answer_and_nothing_twice(
    manner: Manner, text: str, steps: list[int]
) -> None:
    blocks = tell(manner, text, steps)
    reply = parse_reply(strip_reasoning_tags(text))
    told = "".join(block.text for block in blocks if block.kind == "text")
    if reply.silent or not bare(reply.text):
        assert not told
    else:
        assert bare(told) == bare(reply.text)
    assert sorted(item for block in blocks for item in block.media) == sorted(reply.media)


@settings(max_examples=300)
@given(MANNERS, TEXTS, STEPS)
def test_no_thought_and_no_tag_is_ever_visible(manner: Manner, text: str, steps: list[int]) -> None:
    whole = "A first line that is said.\n" + text
    for block in tell(manner, whole, steps):
        assert "secret" not in block.text
        assert "[[reply" not in block.text and "<think>" not in block.text


def test_saving_the_last_message_says_nothing_again() -> None:
    shape, reply = Shape(Manner(streams=True)), said("Hello.")
    shape.feed(TextAdded("Hello."))
    assert [block.text for block in shape.finish(reply).blocks] == ["Hello."]
    assert shape.feed(MessageSaved(reply)).send == ()
    assert shape.feed(RunEnded()).typing is False


def test_a_message_that_is_not_the_one_that_was_streamed_counts() -> None:
    manner = Manner(streams=True, chunking=Chunking(5, 40))
    shape = Shape(manner)
    first = shape.feed(TextAdded("Wrong words.\n\nMore")).send
    assert [block.text for block in first] == ["Wrong words."]
    assert [block.text for block in shape.finish(said("Right words.")).blocks] == ["Right words."]


def test_each_message_of_a_run_starts_afresh() -> None:
    shape = Shape(Manner(streams=True))
    shape.feed(TextAdded("<think>never closed"))
    shape.feed(MessageSaved(said("<think>never closed")))
    shape.feed(TextAdded("[[reply_to:7]] One."))
    assert shape.feed(MessageSaved(said("[[reply_to:7]] One."))).send == (
        Block("One.", reply_to="7"),
    )
    shape.feed(TextAdded("Two."))
    assert shape.finish(said("Two.")).blocks == (Block("Two."),)


def test_a_stopped_message_is_not_sent_later() -> None:
    shape = Shape(Manner())
    shape.feed(TextAdded("Half of"))
    shape.feed(MessageSaved(said("Half of", "aborted")))
    assert shape.fail("") == ()


@pytest.mark.parametrize(("word", "asked"), [("all done NO_REPLY", 1), ("NO_REPLY -- nothing", 1)])
def test_where_nobody_waits_silence_may_be_said_anywhere(word: str, asked: int) -> None:
    assert len(Shape(Manner()).finish(said(word)).blocks) == asked
    ending = Shape(Manner(unasked=True)).finish(said(word))
    assert (ending.blocks, ending.outcome) == ((), "silent")


def test_what_still_waits_for_company_is_not_sent_when_it_turns_out_to_be_silence() -> None:
    manner = Manner(streams=True, unasked=True, chunking=Chunking(5, 40), coalescing=Coalescing())
    shape, text = Shape(manner), "Nothing new.\n\nAs before.\n\nNO_REPLY"
    assert shape.feed(TextAdded(text)).send == () and shape.due_s == 1.0
    ending = shape.finish(said("As before. NO_REPLY"))
    assert (ending.blocks, ending.outcome) == ((), "silent")


def test_a_failed_send_of_the_tool_does_not_silence_the_answer() -> None:
    shape = Shape(Manner(here=Address("telegram", "42")))
    shape.feed(ToolStarted(ToolCall("1", "message", {"message": "Booked for eight."})))
    shape.feed(ToolEnded(ToolReturn("1", "message", (Text("no route"),), is_error=True)))
    assert shape.finish(said("Booked for eight.")).blocks == (Block("Booked for eight."),)


def test_where_nobody_sends_on_the_way_the_tools_are_told_of_with_the_answer() -> None:
    shape = Shape(Manner(verbose="on"), at_end=True)
    shape.feed(MessageSaved(said("Looking.")))
    assert shape.feed(ToolStarted(ToolCall("1", "ls", {}))).send == ()
    shape.feed(ToolEnded(ToolReturn("1", "ls", (Text("a"),))))
    blocks = shape.finish(said("One file.")).blocks
    assert [block.kind for block in blocks] == ["text", "tool", "text"]
    assert "ls" in blocks[1].text


def test_silence_takes_back_what_was_said_on_the_way_but_no_answer() -> None:
    asking = Message("assistant", (Text("Looking."), ToolCall("1", "ls", {})))
    shape = Shape(Manner())
    shape.feed(MessageSaved(asking))
    assert shape.finish(said("NO_REPLY")).outcome == "silent"
    shape = Shape(Manner())
    for message in (said("At eight."), asking):  # the answer, and then what steers: "thanks"
        shape.feed(MessageSaved(message))
    ending = shape.finish(said("NO_REPLY"))
    assert (ending.blocks, ending.outcome) == ((Block("At eight."),), "answered")


def test_an_empty_answer_is_said_to_be_one_whatever_was_told_beside_it() -> None:
    shape = Shape(Manner(verbose="on", new_session="0f3a"))
    shape.feed(RunStarted("p", "m"))
    assert [block.text for block in shape.finish(said("")).blocks][1:] == [EMPTY]


def test_typing_follows_its_mode() -> None:
    call = ToolCall("1", "read", {})

    def signs(mode: TypingMode) -> list[bool | None]:
        shape = Shape(Manner(typing=mode))
        facts = (RunStarted(), TextAdded("NO"), TextAdded("t me"), ToolProgressed(call, "x"))
        return [shape.feed(fact).typing for fact in facts]

    assert signs("never") == [None, None, None, None]
    assert signs("instant") == [True, None, True, True]
    assert signs("message") == signs("thinking") == [None, None, True, True]


def test_thoughts_are_live_only_where_asked_for() -> None:
    levels: dict[ReasoningLevel, str] = {"off": "", "on": "", "stream": "hm"}
    for level, seen in levels.items():
        shape = Shape(Manner(reasoning=level))
        shape.feed(TextAdded("<think>hm</think>x"))
        assert shape.thoughts == seen


def told(shape: Shape, texts: list[str], *, saves: bool) -> list[str]:
    """What a chat gets of a run whose messages call tools, but for the last."""
    blocks: list[Block] = []
    for text in texts[:-1]:
        message = said(text, "toolUse")
        shape.feed(TextAdded(text))
        if saves:
            blocks += shape.save(message)
        shape.feed(MessageSaved(message))
    shape.feed(TextAdded(texts[-1]))
    blocks += shape.finish(said(texts[-1])).blocks
    return [block.text for block in blocks]


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_message_by_message_or_at_the_end_a_chat_gets_the_same(texts: list[str]) -> None:
    at_end = told(Shape(Manner(), at_end=True), texts, saves=True)
    posted = told(Shape(Manner(), at_end=True, posts=True), texts, saves=True)
    if not parse_reply(strip_reasoning_tags(texts[-1])).silent:  # else the rest was chatter
        assert posted == at_end


@given(st.lists(TEXTS, min_size=2, max_size=4), st.integers(1, 3))
def test_a_run_that_goes_on_sends_what_was_not_sent_and_no_more(
    texts: list[str], cut_at: int
) -> None:
    cut_at = min(cut_at, len(texts) - 1)
    first, second = (Shape(Manner(), at_end=True, posts=True) for _ in range(2))
    before: list[str] = []
    for text in texts[:cut_at]:
        before += [block.text for block in first.save(said(text, "toolUse"))]
        second.recall(said(text, "toolUse"))
    after = told(second, texts[cut_at:], saves=True)
    whole = told(Shape(Manner(), at_end=True, posts=True), texts, saves=True)
    assert [*before, *after] == whole


@given(TEXTS, TEXTS, STEPS)
def test_a_preview_is_never_more_than_what_is_sent(one: str, two: str, steps: list[int]) -> None:
    shape = Shape(Manner(), at_end=True)
    shape.feed(TextAdded(one))
    shape.feed(MessageSaved(said(one, "toolUse")))
    previews = []
    for piece in cut(two, steps):
        shape.feed(TextAdded(piece))
        previews.append(shape.preview)
    sent = "".join("\n\n".join(block.text for block in shape.finish(said(two)).blocks).split())
    assert shape.preview == ""
    for preview in previews:
        shown = "".join(preview.split())
        assert not shown or "secret" not in shown
        if shown and not parse_reply(strip_reasoning_tags(two)).silent:
            assert sent.startswith(shown[: max(0, len(shown) - 12)]) or "NO_REPLY" in one + two


def test_a_preview_shows_thoughts_until_words_come_where_that_is_asked_for() -> None:
    shape = Shape(Manner(reasoning="stream", prefix="[bot]"), at_end=True)
    shape.feed(ThinkingAdded("Let me see"))
    assert shape.preview == "[bot] Reasoning:\n_Let me see_"
    shape.feed(TextAdded("It is so."))
    assert shape.preview == "[bot] It is so."
    assert Shape(Manner(reasoning="on"), at_end=True).preview == ""


def test_what_a_tool_has_said_before_a_crash_is_not_said_again() -> None:
    here = Address("telegram", "42")
    shape = Shape(Manner(here=here), at_end=True)
    call = ToolCall("c", "message", {"message": "The pump has failed."})
    shape.recall(Message("assistant", (call,), 0, Origin("a", "p", "m", "toolUse")))
    shape.recall(Message("tool", (ToolReturn("c", "message", (Text("Sent."),)),)))
    ending = shape.finish(said("The pump has failed."))
    assert (ending.blocks, ending.outcome) == ((), "answered")
