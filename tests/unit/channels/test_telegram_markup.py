"""Our HTML for Telegram parses in the strict fake, for any text of a model."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homarus.channels.base import Capabilities
from homarus.channels.markup import parts, plain
from homarus.core.text import utf16_len
from homarus.testing.telegram_server.telegram_html import parse, trimmed

PIECES = (
    "word ", "**bold** ", "_it_ ", "~~no~~ ", "||spoiler|| ", "`code` ", "\n\n", "\n", "# head\n",
    "- item\n", "1. one\n", "> quote\n", "```py\nx < y && z\n```\n", "```\n", "| 1 | 2 |\n",
    "| a | b |\n|---|---|\n", "[link](https://x.org/?a=1&b=2) ", "[bad](javascript:alert(1)) ",
    "<b>raw</b> ", "</b>", "<", "&", "&amp;lt; ", '"', "🦞", "ä", "\u202e", "@everyone ", "***",
    "[x](", "![p](q) ",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=12), max_size=40).map("".join)


@pytest.mark.parametrize("limit", [60, 4_000])
@given(text=TEXTS)
@example(text="**a" * 500)
@example(text="> " * 300 + "x")
@example(text="🦞" * 5_000)
def test_telegram_parts_any_text_parses_and_fits_limit(limit: int, text: str) -> None:
    able = Capabilities(text_limit=limit, unit="utf16", dialect="telegram")
    for part in (rendered.text for rendered in parts(text, able)):
        shown, marked = trimmed(*parse(part))
        assert utf16_len(shown) <= limit
        assert all(one["offset"] + one["length"] <= utf16_len(shown) for one in marked)
        assert plain(part, "telegram").split() == parse(part)[0].split()
