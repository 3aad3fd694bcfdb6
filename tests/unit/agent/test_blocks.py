"""Chunker, Coalescer and the human delay."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from homarus.agent.reply.blocks import (
    NATURAL_MS,
    Block,
    Chunker,
    ChunkLimits,
    CoalesceLimits,
    Coalescer,
    HumanDelayTimer,
    Preference,
)
from tests.unit.agent.builders import cut

WORDS = st.sampled_from(
    ["a", "word", "Lobster", " ", "\n", "\n\n", ". ", "!", "x" * 30, "。", "é🦞"]
)
TEXTS = st.lists(WORDS, max_size=60).map("".join)
NOISE = st.lists(
    st.sampled_from(["```py\n", "```", "~~~\n", "\n", "x = 1\n", "word ", "\n\n", "   ", "`", "."]),
    max_size=40,
).map("".join)
FENCED = st.builds(
    lambda marker, lines: f"\n{marker}py\n{lines}{marker}\n",
    st.sampled_from(["```", "~~~"]),
    st.lists(st.sampled_from(["x = 1\n", "\n", "if x:\n", "    call(x)\n"]), max_size=12).map(
        "".join
    ),
)
CODE = st.lists(st.one_of(FENCED, st.sampled_from(["Words here. ", "More\n\n"])), max_size=6).map(
    "".join
)
FENCE_LINE = re.compile(r"^(?:```|~~~)(?:py)?$", re.MULTILINE)
RULES = st.builds(
    ChunkLimits,
    st.integers(1, 80),
    st.integers(12, 90),
    st.sampled_from(["paragraph", "newline", "sentence"]),
    st.booleans(),
)
STEPS = st.lists(st.integers(1, 20), min_size=1, max_size=8)


def chunks(text: str, rules: ChunkLimits, steps: list[int]) -> list[str]:
    chunker = Chunker(rules)
    found = [chunk for piece in cut(text, steps) for chunk in chunker.add(piece)]
    return [chunk.text for chunk in (*found, *chunker.flush())]


def bare(text: str) -> str:
    return "".join(text.split())


@given(TEXTS, RULES, STEPS)
def test_chunker_any_text_keeps_all_of_it_within_max_chars(
    text: str, rules: ChunkLimits, steps: list[int]
) -> None:
    found = chunks(text, rules, steps)
    assert bare("".join(found)) == bare(text)
    assert all(0 < len(chunk) <= rules.max_chars and chunk.strip() for chunk in found)


@given(TEXTS, RULES, STEPS)
def test_chunker_only_last_chunk_is_below_min_chars(
    text: str, rules: ChunkLimits, steps: list[int]
) -> None:
    if rules.by_paragraph or any(len(word) > 8 for word in text.split()):
        return
    for chunk in chunks(text, rules, steps)[:-1]:
        # White space at its ends is dropped; a word that does not fit may leave a short chunk.
        assert len(chunk) + 16 >= min(rules.min_chars, rules.max_chars)


@settings(max_examples=300)
@given(CODE, RULES, STEPS)
def test_chunker_cut_code_fence_is_closed_in_every_chunk(
    text: str, rules: ChunkLimits, steps: list[int]
) -> None:
    found = chunks(text, rules, steps)
    # Apart from fence lines, the text is complete and in order.
    assert bare(re.sub(FENCE_LINE, "", "\n".join(found))) == bare(re.sub(FENCE_LINE, "", text))
    for chunk in found:
        assert len(re.findall(FENCE_LINE, chunk)) % 2 == 0
        assert len(chunk) <= rules.max_chars + 5


@settings(max_examples=300)
@given(NOISE, RULES, STEPS)
def test_chunker_stray_fence_markers_keep_text_in_order(
    text: str, rules: ChunkLimits, steps: list[int]
) -> None:
    out = iter(bare("".join(chunks(text, rules, steps))))
    assert all(ch in out for ch in bare(text).replace("`", "").replace("~", ""))


def test_chunker_long_code_is_cut_after_a_line() -> None:
    code = "".join(f"line_{number} = {number}\n" for number in range(30))
    found = chunks(f"```py\n{code}```\n", ChunkLimits(50, 100), [7])
    assert len(found) > 3
    for chunk in found:
        lines = chunk.strip().split("\n")
        assert lines[0] == "```py" and lines[-1] == "```"
        assert all(line.count("=") == 1 for line in lines[1:-1])


def test_chunker_text_after_cut_fence_starts_without_empty_fence() -> None:
    code = "x = 1\n" * 9
    found = chunks(
        f"```py\n{code}```\nand then some more text follows here", ChunkLimits(20, 60), [60]
    )
    assert found[-1] == "and then some more text follows here"


@pytest.mark.parametrize("info", ["x" * 5_000, "`", "py"])
def test_chunker_fence_with_long_info_string_terminates(info: str) -> None:
    text = f"```{info}\n" + "y" * 3_000
    found = chunks(text, ChunkLimits(10, 20), [50])
    assert sum(len(chunk) for chunk in found) < 10 * len(text)


def test_chunker_mid_line_marker_starts_no_chunk() -> None:
    found = chunks("a" * 18 + "```" + "b" * 30, ChunkLimits(5, 20), [9])
    assert not any(chunk.startswith("```") for chunk in found)


@pytest.mark.parametrize(
    ("prefer", "first"),
    [
        ("paragraph", "One two. Three\nfour."),
        ("newline", "One two. Three\nfour."),
        ("sentence", "One two. Three\nfour.\n\nFive six."),
    ],
)
def test_chunker_preference_selects_cut_position(prefer: Preference, first: str) -> None:
    chunker = Chunker(ChunkLimits(5, 40, prefer))
    assert chunker.add("One two. Three\nfour.\n\nFive six. Seven")[0].text == first


def test_chunker_long_link_is_cut_at_the_space_before_it() -> None:
    link = "https://example.org/" + "x" * 30
    assert chunks(f"See {link} now", ChunkLimits(20, 52), [99])[:2] == ["See", link]


RULES_OF_JOINING = CoalesceLimits(20, 40, 1.0)


@example("a" + "x" * 30 + "é🦞 a", ChunkLimits(1, 33), [2])
@given(TEXTS, RULES, STEPS)
def test_chunker_chunks_joined_by_gaps_equal_the_text(
    text: str, rules: ChunkLimits, steps: list[int]
) -> None:
    chunker = Chunker(rules)
    found = [chunk for piece in cut(text, steps) for chunk in chunker.add(piece)]
    found += chunker.flush()
    joined = "".join(chunk.gap + chunk.text.strip() for chunk in found)
    assert joined.split() == text.split()
    assert len(re.findall(r"\n\s*\n", joined)) == len(re.findall(r"\n\s*\n", text.strip()))


def test_coalescer_small_blocks_are_joined_up_to_min_chars() -> None:
    joined = Coalescer(RULES_OF_JOINING)
    assert joined.add(Block("eight ch"), 0.0) == []
    assert joined.due_s == 1.0
    assert joined.add(Block("and ten ch"), 0.5) == [Block("eight ch\n\nand ten ch")]
    assert joined.flush() == []


def test_coalescer_idle_timeout_releases_pending_block() -> None:
    joined = Coalescer(RULES_OF_JOINING)
    joined.add(Block("eight ch"), 3.0)
    assert joined.tick(3.9) == []
    assert joined.tick(4.0) == [Block("eight ch")]
    assert joined.tick(99.0) == []


@pytest.mark.parametrize(
    "other",
    [
        Block("to another", reply_to="7"),
        Block("with a picture", media=("./a.png",)),
        Block("a thought", "reasoning"),
        Block("this one is too long for both of them to fit"),
    ],
)
def test_coalescer_different_targets_or_kinds_are_not_joined(other: Block) -> None:
    joined = Coalescer(RULES_OF_JOINING)
    joined.add(Block("first"), 0.0)
    assert [*joined.add(other, 0.0), *joined.flush()] == [Block("first"), other]


@given(st.lists(st.sampled_from([Block("a"), Block("b" * 15), Block("c", reply_to="1")])))
def test_coalescer_any_blocks_keep_order_and_content(blocks: list[Block]) -> None:
    joined = Coalescer(RULES_OF_JOINING)
    out = [ready for block in blocks for ready in joined.add(block, 0.0)] + joined.flush()
    assert bare("".join(b.text for b in out)) == "".join(b.text for b in blocks)
    assert all(len(block.text) <= 40 for block in out)


def test_human_delay_applies_after_first_block_and_repeats_by_seed() -> None:
    pace, again = HumanDelayTimer(NATURAL_MS, "run-1"), HumanDelayTimer(NATURAL_MS, "run-1")
    waits = [pace.next_s() for _ in range(20)]
    assert waits[0] == 0 and all(0.8 <= wait <= 2.5 for wait in waits[1:])
    assert len(set(waits)) > 10
    assert waits == [again.next_s() for _ in range(20)]
    assert HumanDelayTimer((900, 100), "x").next_s() == 0  # a reversed range is accepted
    assert [HumanDelayTimer(None, "x").next_s() for _ in range(3)] == [0, 0, 0]
