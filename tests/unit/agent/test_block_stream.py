"""Blocks of a message that is being written: cut, held back, joined and left for the end."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.agent.reply.block_stream import BlockStream
from homarus.agent.reply.blocks import Block, BlockLimits, ChunkLimits, CoalesceLimits
from homarus.agent.reply.builder import ReplyBuilder
from homarus.agent.reply.reply_cleaner import clean_reply
from homarus.agent.reply.settings import ReplySettings
from homarus.core.event import AttemptFailed, TextAdded, ToolEnded, ToolStarted
from homarus.core.fast_dataclass import replace
from homarus.core.message import Address, Message, Origin, Text, ToolCall, ToolResult
from homarus.testing.clock import FakeClock
from tests.unit.agent.builders import cut, streamed_events

SMALL = BlockLimits(ChunkLimits(10, 40), CoalesceLimits(1, 200, 1.0))
PIECES = st.sampled_from(
    ["Lobsters walk. ", "word ", "é🦞", "\n", "\n\n", "HEARTBEAT_OK", "HEART", "NO_REPLY",
     "[[reply_to:5]]", "[[reply_to_current]]", "MEDIA:./a.png\n", "<think>secret</think>", "`x` "]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join)
FENCED = st.builds(
    lambda marker, lines: f"\n{marker}py\n{''.join(lines)}{marker}\n",
    st.sampled_from(["```", "~~~"]),
    st.lists(st.sampled_from(["x = 1\n", "\n", "if x:\n", "    call(x)\n"]), max_size=12),
)
CODE = st.lists(st.one_of(FENCED, st.sampled_from(["Words here. ", "More\n\n"])), max_size=8)
FENCE_LINE = re.compile(r"^(?:```|~~~)(?:py)?$", re.MULTILINE)
LIMITS = st.builds(
    lambda chunk, low, high, waits: BlockLimits(chunk, CoalesceLimits(low, high, 1.0), waits),
    st.builds(
        ChunkLimits,
        st.integers(1, 80),
        st.integers(12, 90),
        st.sampled_from(["paragraph", "newline", "sentence"]),
        st.booleans(),
    ),
    st.integers(1, 120),
    st.integers(20, 200),
    st.booleans(),
)
STEPS = st.lists(st.integers(1, 20), min_size=1, max_size=8)
PAUSES = st.lists(st.sampled_from([0.0, 0.0, 2.0]), min_size=1, max_size=8)


class Writing:
    """A builder that streams blocks, and what it gave so far."""

    def __init__(self, limits: BlockLimits = SMALL, *, prefix: str = "") -> None:
        self.clock = FakeClock(patient=False)
        chat = Address("test", "1")
        self.builder = ReplyBuilder(ReplySettings(prefix=prefix, address=chat), sends_on_save=True)
        self.stream = BlockStream(limits, self.clock.monotonic, self.builder.sent_texts.may_contain)
        self.builder.set_stream(self.stream)
        self.streamed: list[Block] = []

    def write(self, text: str, steps: list[int] | None = None) -> None:
        for data in streamed_events(cut(text, steps or [len(text) or 1])):
            self.builder.feed(data)
            self.streamed += self.builder.take_streamed()

    def add(self, text: str, reply_to: str = "") -> list[str]:
        self.builder.feed(TextAdded(text, (), reply_to))
        taken = self.builder.take_streamed()
        self.streamed += taken
        return [block.text for block in taken]

    def end(self, text: str) -> list[Block]:
        return [*self.builder.finish(said(text)).blocks]


def said(text: str) -> Message:
    return Message("assistant", (Text(text),), 0, Origin("a", "p", "m"))


def bare(text: str) -> str:
    return "".join(text.split())


def joined(blocks: list[Block]) -> str:
    return "".join(block.text for block in blocks if block.kind == "text")


async def stream_slowly(
    text: str, limits: BlockLimits, steps: list[int], pauses: list[float]
) -> list[Block]:
    writing = Writing(limits)
    for at, data in enumerate(streamed_events(cut(text, steps))):
        writing.builder.feed(data)
        await writing.clock.sleep(pauses[at % len(pauses)])
        writing.streamed += writing.builder.take_streamed()
    return [*writing.streamed, *writing.end(text)]


@settings(max_examples=400)
@given(TEXTS, LIMITS, STEPS, PAUSES)
async def test_streamed_blocks_have_all_of_any_text_once(
    text: str, limits: BlockLimits, steps: list[int], pauses: list[float]
) -> None:
    """The same text as without streaming, however it is cut, in pieces and into blocks."""
    blocks = await stream_slowly(text, limits, steps, pauses)
    whole = ReplyBuilder(ReplySettings()).finish(said(text)).blocks
    assert bare(joined(blocks)) == bare(joined([*whole]))
    assert [name for block in blocks for name in block.media] == [*clean_reply(text).media]
    assert not any(word in block.text for block in blocks for word in ("secret", "[[reply"))


@settings(max_examples=400)
@given(CODE.map("".join), LIMITS, STEPS, PAUSES)
async def test_streamed_code_is_complete_and_fenced_in_each_block(
    text: str, limits: BlockLimits, steps: list[int], pauses: list[float]
) -> None:
    blocks = [one for one in await stream_slowly(text, limits, steps, pauses) if one.kind == "text"]
    found = "\n".join(block.text for block in blocks)
    assert bare(FENCE_LINE.sub("", found)) in {bare(FENCE_LINE.sub("", text)), ""}
    assert all(len(FENCE_LINE.findall(block.text)) % 2 == 0 for block in blocks)


@settings(max_examples=300)
@given(CODE.map("".join), LIMITS, STEPS)
async def test_blocks_joined_to_one_are_the_text_line_by_line(
    text: str, limits: BlockLimits, steps: list[int]
) -> None:
    """Nothing that cutting added is left, and no line end is lost."""
    limits = replace(limits, coalesce=CoalesceLimits(100_000, 100_000, 9.0))
    blocks = [one for one in await stream_slowly(text, limits, steps, [0.0]) if one.kind == "text"]
    assert len(blocks) <= 1
    whole = ReplyBuilder(ReplySettings()).finish(said(text)).blocks
    assert lines("".join(block.text for block in blocks)) == lines(joined([*whole]))


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.split("\n") if line.strip()]


def test_block_is_ready_while_message_is_written() -> None:
    writing = Writing()
    assert writing.add("A first paragraph.\n\nThe sec") == ["A first paragraph."]
    assert writing.add("ond.") == []
    assert [block.text for block in writing.end("A first paragraph.\n\nThe second.")] == [
        "The second."
    ]


def test_each_streamed_block_has_the_response_prefix() -> None:
    writing = Writing(prefix="[ada]")
    writing.add("A first paragraph.\n\nThe sec")
    blocks = [*writing.streamed, *writing.end("A first paragraph.\n\nThe second.")]
    assert [block.text for block in blocks] == ["[ada] A first paragraph.", "[ada] The second."]


async def test_short_blocks_are_joined_until_idle() -> None:
    writing = Writing(BlockLimits(ChunkLimits(10, 40), CoalesceLimits(60, 200, 1.0)))
    assert writing.add("A first paragraph.\n\nA sec") == []
    assert writing.add("ond paragraph.\n\nA th") == []
    assert writing.stream.due_s == writing.clock.monotonic() + 1.0
    await writing.clock.sleep(0.5)
    assert writing.add("ird") == []
    await writing.clock.sleep(0.5)
    assert writing.add(" one") == ["A first paragraph.\n\nA second paragraph."]


def test_blocks_beyond_min_chars_are_sent_without_waiting() -> None:
    writing = Writing(BlockLimits(ChunkLimits(10, 40), CoalesceLimits(30, 200, 1.0)))
    assert writing.add("A first paragraph.\n\nA sec") == []
    assert writing.add("ond paragraph.\n\nA th") == ["A first paragraph.\n\nA second paragraph."]


def test_joined_parts_of_one_code_fence_are_one_fence() -> None:
    """A fence that the chunker cut is whole again where its parts are in one block."""
    code = "".join(f"line_{number} = {number}\n" for number in range(20))
    text = f"Look:\n\n```py\n{code}```\n\nThat is all."
    writing = Writing(BlockLimits(ChunkLimits(40, 60), CoalesceLimits(500, 1_000, 1.0)))
    writing.write(text, [7])
    assert [one.text for one in [*writing.streamed, *writing.end(text)]] == [text]


def test_message_end_streams_nothing_and_flushes_as_blocks() -> None:
    limits = BlockLimits(ChunkLimits(10, 25), CoalesceLimits(1, 200, 1.0), waits_for_end=True)
    writing, text = Writing(limits), "A first paragraph.\n\nA second paragraph.\n\nA third."
    writing.write(text)
    assert writing.streamed == []
    assert [block.text for block in writing.end(text)] == [
        "A first paragraph.", "A second paragraph.", "A third."
    ]  # fmt: skip


def test_point_of_a_number_ends_no_block() -> None:
    writing = Writing()
    writing.write("It weighs about 3.14 grams and it walks.", [1])
    assert [block.text for block in writing.streamed] == []


def test_silent_word_and_its_beginning_are_never_streamed() -> None:
    writing = Writing(BlockLimits(ChunkLimits(1, 40, by_paragraph=True), CoalesceLimits(1, 99)))
    writing.write("NO_REPLY", [1])
    assert writing.streamed == [] and writing.end("NO_REPLY") == []


def test_ack_word_after_streamed_text_is_removed() -> None:
    writing = Writing()
    text = "A first paragraph.\n\nThe second. HEARTBEAT_OK"
    writing.write(text, [3])
    blocks = [*writing.streamed, *writing.end(text)]
    assert writing.streamed and [one.text for one in blocks] == [
        "A first paragraph.", "The second.",
    ]  # fmt: skip


def test_text_that_a_tool_has_sent_is_held_back_until_it_differs() -> None:
    sent = "A first paragraph.\n\nA second paragraph.\n\nA third one."
    call = ToolCall("c", "message", {"action": "send", "message": sent})
    for text, is_sent in ((sent, False), (f"{sent}\n\n{'It says more. ' * 5}And more.", True)):
        writing = Writing()
        writing.builder.feed(ToolStarted(call))
        writing.builder.feed(ToolEnded(ToolResult("c", "message", (Text("sent"),))))
        writing.write(text, [5])
        blocks = [*writing.streamed, *writing.end(text)]
        assert bare(joined(blocks)) == (bare(text) if is_sent else "")
        assert bool(writing.streamed) == is_sent


def test_changed_reply_target_ends_the_waiting_block() -> None:
    writing = Writing(BlockLimits(ChunkLimits(10, 40), CoalesceLimits(60, 200, 1.0)))
    writing.add("A first paragraph.\n\nThe sec", "5")
    writing.add("ond paragraph.\n\nThe th", "6")
    text = "[[reply_to:5]]A first paragraph.\n\n[[reply_to:6]]The second paragraph.\n\nThe third."
    blocks = [*writing.streamed, *writing.end(text)]
    assert [(block.reply_to, block.text) for block in blocks] == [
        ("5", "A first paragraph."),
        ("6", "The second paragraph.\n\nThe third."),
    ]


def test_media_go_with_the_last_block() -> None:
    writing, text = Writing(), "A first paragraph.\n\nMEDIA:./a.png\nThe second."
    writing.write(text, [7])
    blocks = [*writing.streamed, *writing.end(text)]
    assert [(block.text, block.media) for block in blocks] == [
        ("A first paragraph.", ()), ("The second.", ("./a.png",)),
    ]  # fmt: skip


def test_media_after_the_streamed_text_are_a_block_alone() -> None:
    writing, text = Writing(), "A first paragraph.\n\nMEDIA:./a.png"
    writing.builder.feed(TextAdded("A first paragraph.\n\nx"))
    assert writing.builder.take_streamed()
    writing = Writing(BlockLimits(ChunkLimits(1, 40, by_paragraph=True), CoalesceLimits(1, 99)))
    writing.add("A first paragraph.\n\n")
    last = writing.end(text)[-1]
    assert last.media == ("./a.png",)


def test_restarted_attempt_is_streamed_from_its_beginning() -> None:
    writing = Writing()
    writing.add("A first paragraph.\n\nThe sec")
    writing.builder.feed(AttemptFailed("p", "m", "overloaded", "busy", "p/m2"))
    assert writing.add("Another start.\n\nAnd") == ["Another start."]
    assert [one.text for one in writing.end("Another start.\n\nAnd end.")] == ["And end."]


def test_message_other_than_its_deltas_is_given_whole() -> None:
    writing = Writing()
    writing.add("A first paragraph.\n\nThe sec")
    assert [one.text for one in writing.end("Something else.")] == ["Something else."]
    assert writing.stream.has_diverged
