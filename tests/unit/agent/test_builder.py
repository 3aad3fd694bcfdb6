"""Properties of the reply builder; the golden scenarios show single cases."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.agent.reply.blocks import Block
from homarus.agent.reply.builder import ReplyBuilder
from homarus.agent.reply.reply_cleaner import clean_reply
from homarus.agent.reply.settings import ReplySettings, ReplyTarget, resolve_reply_settings
from homarus.agent.reply.typing_policy import TypingMode
from homarus.agent.reply.wording import EMPTY
from homarus.config.schema import Config
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
from homarus.core.message import Address, Message, Origin, Text, ToolCall, ToolResult
from homarus.sessions.levels import ReasoningLevel
from tests.unit.agent.builders import cut, streamed_events

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


def said(text: str, stop: str = "stop") -> Message:
    parts = (Text(text),) if text else ()
    return Message(
        "assistant", parts, 0, Origin("a", "p", "m", "aborted" if stop == "aborted" else "stop")
    )


def tell(text: str, steps: list[int], *, sends_on_save: bool) -> list[Block]:
    """Return the blocks of an answer that comes in pieces."""
    builder = ReplyBuilder(ReplySettings(), sends_on_save=sends_on_save)
    for data in streamed_events(cut(text, steps)):
        builder.feed(data)
    return [*builder.finish(said(text)).blocks]


def feed_text(builder: ReplyBuilder, text: str) -> None:
    for data in streamed_events([text]):
        builder.feed(data)


def bare(text: str) -> str:
    return "".join(text.split())


@settings(max_examples=300)
@given(TEXTS, STEPS, st.booleans())
def test_builder_any_text_sends_all_of_it_once(
    text: str, steps: list[int], sends_on_save: bool
) -> None:
    blocks = tell(text, steps, sends_on_save=sends_on_save)
    reply = clean_reply(text)
    text = "".join(block.text for block in blocks if block.kind == "text")
    if reply.silent or not bare(reply.text):
        assert not text
    else:
        assert bare(text) == bare(reply.text)
    assert sorted(item for block in blocks for item in block.media) == sorted(reply.media)


@settings(max_examples=300)
@given(TEXTS, STEPS, st.booleans())
def test_builder_any_text_hides_reasoning_and_tags(
    text: str, steps: list[int], sends_on_save: bool
) -> None:
    whole = "A first line that is said.\n" + text
    for block in tell(whole, steps, sends_on_save=sends_on_save):
        assert "secret" not in block.text
        assert "[[reply" not in block.text and "<think>" not in block.text


def test_builder_saved_event_of_last_message_adds_no_block() -> None:
    builder, reply = ReplyBuilder(ReplySettings()), said("Hello.")
    builder.feed(TextAdded("Hello."))
    assert [block.text for block in builder.finish(reply).blocks] == ["Hello."]
    builder.feed(MessageSaved(reply))
    assert builder.fail("") == ()
    assert builder.feed(RunEnded()) is False


def test_builder_message_differing_from_deltas_is_sent() -> None:
    builder = ReplyBuilder(ReplySettings())
    builder.feed(TextAdded("Wrong words.\n\nMore"))
    assert [block.text for block in builder.finish(said("Right words.")).blocks] == ["Right words."]


def test_builder_each_message_resets_reasoning_and_directives() -> None:
    builder = ReplyBuilder(ReplySettings(), sends_on_save=True)
    feed_text(builder, "<think>never closed")
    assert builder.save(said("<think>never closed")) == ()
    feed_text(builder, "[[reply_to:7]] One.")
    assert builder.save(said("[[reply_to:7]] One.")) == (Block("One.", reply_to="7"),)
    builder.feed(TextAdded("Two."))
    assert builder.finish(said("Two.")).blocks == (Block("Two."),)


def test_builder_aborted_message_is_not_sent() -> None:
    builder = ReplyBuilder(ReplySettings())
    builder.feed(TextAdded("Half of"))
    builder.feed(MessageSaved(said("Half of", "aborted")))
    assert builder.fail("") == ()


@pytest.mark.parametrize(
    ("word", "block_count"), [("all done NO_REPLY", 1), ("NO_REPLY -- nothing", 1)]
)
def test_builder_unasked_run_with_silent_word_anywhere_is_silent(
    word: str, block_count: int
) -> None:
    assert len(ReplyBuilder(ReplySettings()).finish(said(word)).blocks) == block_count
    ending = ReplyBuilder(ReplySettings(unasked=True)).finish(said(word))
    assert (ending.blocks, ending.status) == ((), "silent")


def test_builder_failed_message_tool_keeps_equal_answer() -> None:
    builder = ReplyBuilder(ReplySettings(address=Address("telegram", "42")))
    builder.feed(ToolStarted(ToolCall("1", "message", {"message": "Booked for eight."})))
    builder.feed(ToolEnded(ToolResult("1", "message", (Text("no route"),), is_error=True)))
    assert builder.finish(said("Booked for eight.")).blocks == (Block("Booked for eight."),)


def test_builder_verbose_tool_lines_are_sent_with_answer() -> None:
    builder = ReplyBuilder(ReplySettings(verbose="on"))
    builder.feed(MessageSaved(said("Looking.")))
    builder.feed(ToolStarted(ToolCall("1", "ls", {})))
    builder.feed(ToolEnded(ToolResult("1", "ls", (Text("a"),))))
    blocks = builder.finish(said("One file.")).blocks
    assert [block.kind for block in blocks] == ["text", "tool", "text"]
    assert "ls" in blocks[1].text


def test_builder_silent_end_drops_interim_text_but_no_answer() -> None:
    asking = Message("assistant", (Text("Looking."), ToolCall("1", "ls", {})))
    builder = ReplyBuilder(ReplySettings())
    builder.feed(MessageSaved(asking))
    assert builder.finish(said("NO_REPLY")).status == "silent"
    builder = ReplyBuilder(ReplySettings())
    for message in (said("At eight."), asking):  # an answer, then work for a steering message
        builder.feed(MessageSaved(message))
    ending = builder.finish(said("NO_REPLY"))
    assert (ending.blocks, ending.status) == ((Block("At eight."),), "answered")


def test_builder_empty_answer_after_notice_sends_empty_notice() -> None:
    builder = ReplyBuilder(ReplySettings(verbose="on", new_session="0f3a"))
    builder.feed(RunStarted("p", "m"))
    assert [block.text for block in builder.finish(said("")).blocks][1:] == [EMPTY]


def test_builder_typing_follows_mode() -> None:
    call = ToolCall("1", "read", {})

    def signs(mode: TypingMode) -> list[bool | None]:
        builder = ReplyBuilder(ReplySettings(typing=mode))
        written = [*streamed_events(["NO", "t me"])]  # text that may be silent is no event
        facts = (RunStarted(), *written, ToolProgressed(call, "x"))
        return [builder.feed(data) for data in facts]

    assert signs("never") == [None, None, None]
    assert signs("instant") == [True, True, True]
    assert signs("message") == signs("thinking") == [None, True, True]


def test_builder_live_reasoning_only_with_reasoning_stream() -> None:
    levels: dict[ReasoningLevel, str] = {"off": "", "on": "", "stream": "hm"}
    for level, seen in levels.items():
        builder = ReplyBuilder(ReplySettings(reasoning=level))
        for data in streamed_events(["<think>hm</th", "ink>x"]):
            builder.feed(data)
        assert builder.reasoning == seen


def sent_texts(builder: ReplyBuilder, texts: list[str], *, saves: bool) -> list[str]:
    """Return the texts that a chat gets of a run; all messages but the last call tools."""
    blocks: list[Block] = []
    for text in texts[:-1]:
        message = said(text, "toolUse")
        feed_text(builder, text)
        if saves:
            blocks += builder.save(message)
        builder.feed(MessageSaved(message))
    feed_text(builder, texts[-1])
    blocks += builder.finish(said(texts[-1])).blocks
    return [block.text for block in blocks]


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_builder_sends_on_save_gives_same_blocks_as_at_end(texts: list[str]) -> None:
    at_end = sent_texts(ReplyBuilder(ReplySettings()), texts, saves=True)
    posted = sent_texts(ReplyBuilder(ReplySettings(), sends_on_save=True), texts, saves=True)
    if not clean_reply(texts[-1]).silent:  # else interim text is dropped
        assert posted == at_end


@given(st.lists(TEXTS, min_size=2, max_size=4), st.integers(1, 3))
def test_builder_restored_run_sends_only_unsent_blocks(texts: list[str], cut_at: int) -> None:
    cut_at = min(cut_at, len(texts) - 1)
    first, second = (ReplyBuilder(ReplySettings(), sends_on_save=True) for _ in range(2))
    before: list[str] = []
    for text in texts[:cut_at]:
        before += [block.text for block in first.save(said(text, "toolUse"))]
        second.restore(said(text, "toolUse"))
    after = sent_texts(second, texts[cut_at:], saves=True)
    whole = sent_texts(ReplyBuilder(ReplySettings(), sends_on_save=True), texts, saves=True)
    assert [*before, *after] == whole


@given(TEXTS, TEXTS, STEPS)
def test_builder_preview_is_prefix_of_sent_text(one: str, two: str, steps: list[int]) -> None:
    builder = ReplyBuilder(ReplySettings())
    feed_text(builder, one)
    builder.feed(MessageSaved(said(one, "toolUse")))
    previews = []
    for data in streamed_events(cut(two, steps)):
        builder.feed(data)
        previews.append(builder.preview)
    sent = "".join("\n\n".join(block.text for block in builder.finish(said(two)).blocks).split())
    assert builder.preview == ""
    for preview in previews:
        shown = "".join(preview.split())
        assert not shown or "secret" not in shown
        if shown and not clean_reply(two).silent:
            assert sent.startswith(shown[: max(0, len(shown) - 12)]) or "NO_REPLY" in one + two


def test_builder_preview_shows_reasoning_until_text_comes() -> None:
    builder = ReplyBuilder(ReplySettings(reasoning="stream", prefix="[bot]"))
    builder.feed(ThinkingAdded("Let me see"))
    assert builder.preview == "[bot] Reasoning:\n_Let me see_"
    builder.feed(TextAdded("It is so."))
    assert builder.preview == "[bot] It is so."
    assert ReplyBuilder(ReplySettings(reasoning="on")).preview == ""


def test_builder_restored_message_tool_text_is_not_repeated() -> None:
    here = Address("telegram", "42")
    builder = ReplyBuilder(ReplySettings(address=here))
    call = ToolCall("c", "message", {"message": "The pump has failed."})
    builder.restore(Message("assistant", (call,), 0, Origin("a", "p", "m", "toolUse")))
    builder.restore(Message("tool", (ToolResult("c", "message", (Text("Sent."),)),)))
    ending = builder.finish(said("The pump has failed."))
    assert (ending.blocks, ending.status) == ((), "answered")


def finish_after(*results: ToolResult, suppress: bool = False, answer: str = "") -> list[str]:
    config = Config.model_validate({"messages": {"suppressToolErrors": suppress}})
    builder = ReplyBuilder(resolve_reply_settings(config, "main", ReplyTarget()))
    for result in results:
        builder.feed(ToolStarted(ToolCall(result.call_id, result.name, {"path": "private"})))
        builder.feed(ToolEnded(result))
    return [block.text for block in builder.finish(said(answer)).blocks]


BROKEN = ToolResult("1", "write", (Text("no such folder"),), is_error=True)


def test_failed_tool_before_empty_answer_is_named_without_its_output() -> None:
    (shown,) = finish_after(BROKEN)
    assert shown.startswith("⚠️ The tool write failed")
    assert "private" not in shown and "no such folder" not in shown


def test_failed_tool_is_not_named_with_suppressed_tool_errors() -> None:
    assert finish_after(BROKEN, suppress=True) == [EMPTY]


def test_failed_tool_is_not_named_when_repaired_or_answered() -> None:
    repaired = ToolResult("2", "write", (Text("written"),))
    assert finish_after(BROKEN, repaired) == [EMPTY]
    assert finish_after(BROKEN, answer="It failed.") == ["It failed."]
    assert finish_after(BROKEN, answer="NO_REPLY") == []


def test_failed_tool_of_an_earlier_attempt_is_named_after_a_restart() -> None:
    builder = ReplyBuilder(ReplySettings())
    builder.restore(Message("tool", (BROKEN,), 0))
    (block,) = builder.finish(said("")).blocks
    assert "write" in block.text
