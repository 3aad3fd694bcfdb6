"""Splitting text: nothing lost, within the limit, fences well-formed."""

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from homarus.channels.chunk import (
    Unit,
    chunk_by_newline,
    chunk_by_paragraph,
    chunk_markdown_text,
    chunk_markdown_with_mode,
    chunk_text,
    measure,
    text_chunk_limit,
)
from homarus.core.fences import closes_fence, find_fences, match_marker

UNITS = st.sampled_from(("utf16", "codepoint", "byte"))
WIDE = st.text(st.sampled_from("ab( )\n\té日😀`~"), max_size=120)
LIMITS = st.integers(4, 60)

PROSE = st.text(st.sampled_from("abc ()\n.é😀"), max_size=60).filter(lambda text: "```" not in text)
CODE = st.text(st.sampled_from("xy =()\n😀"), max_size=60)
FENCED = st.builds(
    lambda indent, marker, info, code: f"\n{indent}{marker}{info}\n{code}\n{indent}{marker}\n",
    st.sampled_from(["", " ", "   "]),
    st.sampled_from(["```", "~~~", "````"]),
    st.sampled_from(["", "py", " js title"]),
    CODE,
)
MARKDOWN = st.lists(PROSE | FENCED, max_size=5).map("".join)


def letters(text: str) -> str:
    return "".join(text.split())


def is_balanced(text: str) -> bool:
    for fence in find_fences(text):
        _, newline, last = text[fence.start : fence.end].rpartition("\n")
        marker = match_marker(last)
        if not (newline and marker and closes_fence(fence.marker, *marker)):
            return False
    return True


@given(WIDE, LIMITS, UNITS)
def test_chunk_text_keeps_all_letters_and_limit(text: str, limit: int, unit: Unit) -> None:
    chunks = chunk_text(text, limit, unit)
    assert letters("".join(chunks)) == letters(text)
    assert all(measure(chunk, unit) <= limit for chunk in chunks)


@given(WIDE, LIMITS, UNITS, st.booleans())
def test_chunk_lines_keeps_all_letters_and_limit(
    text: str, limit: int, unit: Unit, trim: bool
) -> None:
    chunks = chunk_by_newline(text, limit, unit, trim_lines=trim)
    assert letters("".join(chunks)) == letters(text)
    assert all(measure(chunk, unit) <= limit for chunk in chunks)


@given(WIDE, LIMITS, UNITS)
def test_chunk_paragraphs_keeps_all_letters_and_limit(text: str, limit: int, unit: Unit) -> None:
    chunks = chunk_by_paragraph(text, limit, unit)
    assert letters("".join(chunks)) == letters(text)
    assert all(measure(chunk, unit) <= limit for chunk in chunks)


@given(WIDE, LIMITS, UNITS, st.sampled_from(("length", "newline")))
def test_chunk_markdown_any_text_keeps_limit(text: str, limit: int, unit: Unit, mode: str) -> None:
    chunks = chunk_markdown_with_mode(
        text, limit, "length" if mode == "length" else "newline", unit
    )
    assert all(measure(chunk, unit) <= limit for chunk in chunks)


@given(MARKDOWN, st.integers(30, 80), UNITS)
def test_chunk_markdown_keeps_letters_and_closes_fences(text: str, limit: int, unit: Unit) -> None:
    chunks = chunk_markdown_text(text, limit, unit)
    assert all(measure(chunk, unit) <= limit for chunk in chunks)
    assert all(is_balanced(chunk) for chunk in chunks)
    assert _code_and_prose(chunks) == _code_and_prose([text])


def _code_and_prose(chunks: list[str]) -> tuple[str, str]:
    """Return the letters inside and outside of fences, without marker lines."""
    code, prose = "", ""
    for chunk in chunks:
        at = 0
        for fence in find_fences(chunk):
            prose += chunk[at : fence.start]
            lines = chunk[fence.start : fence.end].split("\n")
            code += "\n".join(lines[1:-1])
            at = fence.end
        prose += chunk[at:]
    return letters(code), letters(prose)


@given(st.lists(CODE.map(lambda code: code.strip("\n")), min_size=1, max_size=8))
def test_chunk_markdown_plain_fence_keeps_indentation(lines: list[str]) -> None:
    code = "\n".join(f"    {line}" for line in lines).split("\n")
    assume(all(measure(line, "utf16") < 50 for line in code))
    chunks = chunk_markdown_text("\n".join(["```py", *code, "```"]), 64)
    kept = [line for chunk in chunks for line in chunk.split("\n") if "```" not in line]
    assert kept == code


def test_chunk_markdown_fence_that_fits_is_not_cut() -> None:
    text = "words " * 8 + "\n\n```\n" + "x" * 40 + "\n```\n\nmore words"
    chunks = chunk_markdown_text(text, 60)
    assert "```\n" + "x" * 40 + "\n```" in "".join(chunks)
    assert all(chunk.count("```") in {0, 2} for chunk in chunks)


def test_chunk_markdown_long_info_line_is_not_repeated() -> None:
    text = "```" + "i" * 60 + "\n" + "x" * 1_000 + "\n```"
    chunks = chunk_markdown_text(text, 100)
    assert sum(map(len, chunks)) < 2 * len(text)
    assert all(chunk.endswith("\n```") for chunk in chunks)
    assert all(chunk.startswith("```\n") for chunk in chunks[1:])


def test_chunk_markdown_longer_closing_line_makes_no_empty_block() -> None:
    chunks = chunk_markdown_text("```\n" + "x" * 30 + "\n" + "`" * 12 + "\nafter the code", 40)
    assert chunks == ["```\n" + "x" * 30 + "\n```", "after the code"]


def test_chunk_markdown_backticks_in_text_open_no_fence() -> None:
    chunks = chunk_markdown_text("some words about ```code``` and about ``` alone in a line", 20)
    assert all(not find_fences(chunk) for chunk in chunks)


def test_chunk_markdown_word_in_long_parentheses_is_not_cut() -> None:
    assert chunk_text("(aaaa bbbb cccc dddd)", 12) == ["(aaaa bbbb", "cccc dddd)"]


def test_chunk_unit_decides_how_much_fits() -> None:
    text = "日本😀" * 4
    assert [len(chunk_text(text, 8, unit)) for unit in ("codepoint", "utf16", "byte")] == [2, 2, 6]
    assert measure("日😀", "byte") == 7 and measure("日😀", "utf16") == 3


def test_chunk_character_wider_than_limit_is_one_chunk() -> None:
    assert chunk_text("😀😀", 1, "byte") == ["😀", "😀"]
    assert chunk_markdown_text("😀😀", 1) == ["😀", "😀"]


def test_chunk_blank_text_over_limit_returns_nothing() -> None:
    assert chunk_markdown_text(" \n" * 50, 20) == []
    assert chunk_text(" \n" * 50, 20) == []


def test_chunk_limit_of_wrong_type_is_ignored() -> None:
    wrongs: list[object] = ["9", -1, 0, True, 1.5, None, []]
    for wrong in wrongs:
        assert text_chunk_limit({"irc": {"textChunkLimit": wrong}}, "irc", default=350) == 350
    assert text_chunk_limit({"irc": "on"}, "irc", "work", default=350) == 350
    config = {"irc": {"textChunkLimit": 7, "accounts": {"Work": {"textChunkLimit": 0}}}}
    assert text_chunk_limit(config, "irc", "work", default=350) == 7


HOSTILE = {
    "backticks": "`" * 10**6,
    "spaces": " " * 10**6,
    "newlines": "\n" * 10**6,
    "empty fences": "```\n\n```\n" * 100_000,
    "fence lines": "```\n" * 250_000,
    "open parentheses": "( " * 500_000,
    "emoji": "😀 " * 300_000,
    "one line of code": "```py\n" + "x" * 10**6 + "\n```",
    "lines of code": "```py\n" + "x\n" * 400_000 + "```",
    "backticks in tildes": "~~~\n" + "`" * 10**6,
    "endless info": "```" + "x" * 10**6,
}


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize(("limit", "size"), [(20, 200_000), (4_000, 1_000_000)])
def test_chunk_one_megabyte_finishes_in_time(text: str, limit: int, size: int) -> None:
    text = text[:size]
    started = time.process_time()
    chunks = chunk_markdown_text(text, limit, "byte")
    chunk_text(text, limit)
    chunk_by_newline(text, limit)
    chunk_by_paragraph(text, limit)
    assert time.process_time() - started < 15
    assert sum(map(len, chunks)) <= 5 * len(text)
    assert all(measure(chunk, "byte") <= limit for chunk in chunks)


def test_chunk_lines_cuts_a_long_line_at_the_limit() -> None:
    assert chunk_by_newline("long line here", 5) == ["long ", "line", "here"]
    assert chunk_by_newline("hello world", 5) == ["hello", " worl", "d"]
    assert chunk_by_newline("\n\nabcdef", 4) == ["\n\nab", "cdef"]


def test_text_chunk_limit_without_a_valid_default_is_ours() -> None:
    assert text_chunk_limit({}, "x", default=0) == 4_000
