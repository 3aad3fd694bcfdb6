"""Messages within the limit, each well-formed."""

import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels import markup
from homarus.channels.base import Capabilities
from homarus.channels.chunk import ChunkMode, Unit, chunk_markdown_with_mode, measure
from homarus.core.channel_traits import Dialect

TELEGRAM = Capabilities(text_limit=4_096, unit="utf16", dialect="telegram")
IRC = Capabilities(text_limit=350, unit="byte", dialect="irc", by_line=True)


def split(text: str, capabilities: Capabilities, **options: Any) -> list[str]:
    return [part.text for part in markup.parts(text, capabilities, **options)]


def cut(text: str, dialect: Dialect, limit: int, mode: ChunkMode = "length") -> list[str]:
    return split(text, Capabilities(dialect=dialect), limit=limit, mode=mode)


def test_split_telegram_counts_visible_text() -> None:
    text = "**" + "a&" * 1_000 + "** [x](https://e.io/" + "p" * 1_000 + ")"
    assert len(split(text, TELEGRAM, limit=2_002)) == 1
    assert len(split(text, TELEGRAM, limit=2_001)) == 2


def test_split_telegram_counts_utf16_units() -> None:
    assert len(split("😀" * 2_048, TELEGRAM)) == 1
    assert [len(part) for part in split("😀" * 2_049, TELEGRAM)] == [2_048, 1]


def test_split_telegram_bounds_html_length() -> None:
    links = " ".join(f"[{n}](https://e.io/{'p' * 900}{n})" for n in range(70))
    found = split(links, TELEGRAM)
    assert len(found) > 1
    assert max(len(part.encode()) for part in found) <= 32_768
    assert sum(part.count("<a ") for part in found) == 70


def test_split_style_across_end_continues_in_next_message() -> None:
    assert cut("**one two three** four", "telegram", 8) == [
        "<b>one two</b>",
        "<b>three</b>",
        "four",
    ]
    assert cut("**one two three** four", "slack", 9) == ["*one two*", "*three*", "four"]


def test_split_fence_is_closed_and_reopened_with_language() -> None:
    code = "```py\nfirst = 1\n    second = 2\nthird = 3\n```"
    assert cut(code, "discord", 28) == [
        "```py\nfirst = 1\n```",
        "```py\n    second = 2\n```",
        "```py\nthird = 3\n```",
    ]
    assert cut(code, "telegram", 26) == [
        "<pre><code>first = 1\n    second = 2\n</code></pre>",
        "<pre><code>third = 3\n</code></pre>",
    ]


def test_split_long_code_line_keeps_spaces() -> None:
    found = cut("```\na  b  c  d  e  f\n```", "telegram", 8)
    words = [markup.plain(part, "telegram").removesuffix("\n") for part in found]
    assert "".join(words) == "a  b  c  d  e  f"


def test_split_list_is_cut_between_items_and_keeps_numbers() -> None:
    text = "\n".join(f"{n}. item number {n}" for n in range(1, 7))
    assert cut(text, "matrix", 90) == [
        "<ol><li>item number 1</li><li>item number 2</li><li>item number 3</li></ol>",
        '<ol start="4"><li>item number 4</li><li>item number 5</li><li>item number 6</li></ol>',
    ]
    assert cut("- a b\n  - c d\n    - e f", "telegram", 9) == ["• a b", "  • c d", "    • e f"]


def test_split_bullet_stays_with_its_item() -> None:
    assert cut("aaaa bbbb\n\n- " + "c" * 12, "plain", 16) == ["aaaa bbbb", "• " + "c" * 12]


def test_split_quote_continues_as_quote() -> None:
    assert cut("> one two three", "whatsapp", 10) == ["> one two", "> three"]
    assert cut("> one two three", "telegram", 8) == [
        "<blockquote>one two</blockquote>",
        "<blockquote>three</blockquote>",
    ]


def test_split_ends_with_block_that_fills_half() -> None:
    assert cut("aaaa bbbb\n\ncccc dddd", "plain", 16) == ["aaaa bbbb", "cccc dddd"]
    assert cut("aa\n\nbbbb cccc dddd", "plain", 16) == ["aa\n\nbbbb cccc", "dddd"]


def test_split_newline_mode_makes_message_per_block() -> None:
    text = "# A\n\nb\nc\n\n- d\n- e\n\n```\nf\n\ng\n```"
    assert cut(text, "telegram", 4_000, "newline") == [
        "A",
        "b\nc",
        "• d\n• e",
        "<pre><code>f\n\ng\n</code></pre>",
    ]


def test_split_irc_makes_message_per_line_in_bytes() -> None:
    found = split("**a\nb**\n\n```\nx\n\n\ty\n```\n\n" + "é" * 200, IRC)
    assert found == ["\x02a\x02", "\x02b\x02", "x", " y", "é" * 175, "é" * 25]


def test_split_markdown_equals_chunker() -> None:
    text = "a " * 50 + "\n\n```py\n" + "x\n" * 50 + "```"
    capabilities = Capabilities(text_limit=60, dialect="markdown")
    for mode in ("length", "newline"):
        assert split(text, capabilities, mode=mode) == chunk_markdown_with_mode(text, 60, mode)


def test_split_empty_text_returns_no_message() -> None:
    for dialect in get_args(Dialect):
        assert split("", Capabilities(dialect=dialect)) == []
    assert split("```\n\n```", TELEGRAM) == []
    assert split("\n\n>\n\n-\u200f", TELEGRAM, limit=5) != [""]


def test_split_without_limit_returns_one_message() -> None:
    assert len(cut("word " * 10_000, "telegram", 0)) == 1


PIECES = st.lists(
    st.sampled_from(
        [
            *(f"w{n}" for n in range(30)),
            *("é", "😀", "日本", "&", "<", ">", '"', " ", " ", " ", "\n", "\n\n", "\n> ", "\n- "),
            *("\n1. ", "\n# ", "**", "*", "_", "~~", "||", "`", "\n```py\n", "\n```\n", "\\", "|"),
            *("[", "]", "](https://x.y/)", "\n|a|b|\n|-|-|\n|c|d|\n", "\t", "\n    ", "&#10;"),
            *("@everyone", "<@1>", "@room", "\u202e", "\x02", "\r", "\x00", "README.md"),
        ]
    ),
    max_size=60,
).map("".join)
DIALECTS = st.sampled_from([dialect for dialect in get_args(Dialect) if dialect != "markdown"])
UNITS: st.SearchStrategy[Unit] = st.sampled_from(["utf16", "codepoint", "byte"])


@given(PIECES, DIALECTS, UNITS, st.integers(16, 200), st.booleans())
def test_split_any_text_fits_limit(
    text: str, dialect: Dialect, unit: Unit, limit: int, by_line: bool
) -> None:
    capabilities = Capabilities(text_limit=limit, unit=unit, dialect=dialect, by_line=by_line)
    for part in split(text, capabilities):
        seen = markup.plain(part, dialect) if dialect == "telegram" else part
        assert 0 < measure(seen, unit) <= limit


@given(PIECES, st.sampled_from(["telegram", "signal", "plain", "irc"]), st.integers(1, 60))
def test_split_any_text_keeps_every_letter_once(text: str, dialect: Dialect, limit: int) -> None:
    def letters(shown: str) -> str:
        return re.sub(r"[^\w&<@]", "", markup.plain(shown, dialect))

    whole = letters(markup.render(text, dialect))
    assert "".join(map(letters, cut(text, dialect, limit))) == whole


@given(PIECES, st.integers(1, 40))
def test_split_markdown_any_text_equals_chunker(text: str, limit: int) -> None:
    capabilities = Capabilities(text_limit=limit, dialect="markdown")
    assert split(text, capabilities) == chunk_markdown_with_mode(text, limit, "length")


@given(PIECES, DIALECTS)
def test_split_without_limit_equals_render(text: str, dialect: Dialect) -> None:
    whole = markup.render(text, dialect)
    found = cut(text, dialect, 0)
    assert found == ([whole] if whole else [])


def test_split_quote_larger_than_limit_terminates() -> None:
    assert cut("> a   **b**", "plain", 1) == ["> a", "> b"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.parametrize("dialect", ["telegram", "matrix", "slack", "discord"])
def test_split_limit_smaller_than_marks_keeps_words(dialect: Dialect, limit: int) -> None:
    found = cut("**[abc](https://e.io/x)** `def`\n\n```\nghi\n```", dialect, limit)
    assert "".join(markup.plain(part, dialect) for part in found).count("h") >= 1
    assert {"a", "d", "i"} <= set("".join(found))
