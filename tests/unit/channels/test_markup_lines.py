"""Messages with at most a number of lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels import markup
from homarus.channels.base import Capabilities
from homarus.channels.markup.line_limit import limit_lines


def cut(text: str, lines: int, limit: int = 2_000) -> list[str]:
    return [*limit_lines(text, lines, limit, "utf16")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a\nb\nc", ["a\nb\nc"]),
        ("a\nb\nc\nd", ["a\nb\nc", "d"]),
        ("a\nb\nc\n\n\nd", ["a\nb\nc", "d"]),
        ("```py\na\nb\nc\n```\nd", ["```py\na\n```", "```py\nb\n```", "```py\nc\n```", "d"]),
        ("> ```\n> a\n> b\n> ```", ["> ```\n> a\n> ```", "> ```\n> b\n> ```"]),
        ("a\n```\n\n\n\n\nb", ["a\n```\n```", "```\nb"]),
    ],
)
def test_limit_lines_cuts_and_reopens_code(text: str, parts: list[str]) -> None:
    assert cut(text, 3) == parts


def test_limit_lines_keeps_added_marks_within_limit() -> None:
    parts = cut("```\n" + "\n".join(["x" * 20] * 6) + "\n```", 4, 40)
    assert max(map(len, parts)) <= 40 and "".join(parts).count("x") == 120


@given(st.lists(st.sampled_from(["a", "", "```", "```py", "b c"]), max_size=40))
def test_limit_lines_any_text_is_whole_and_within_limit(lines: list[str]) -> None:
    parts = cut("\n".join(lines), 5)
    assert all(len(part.split("\n")) <= 5 for part in parts)
    words = [line for line in lines if line in {"a", "b c"}]
    assert [x for part in parts for x in part.split("\n") if x in {"a", "b c"}] == words


def test_parts_of_discord_have_at_most_that_many_lines() -> None:
    capabilities = Capabilities(text_limit=2_000, dialect="discord", max_lines=17)
    found = markup.parts("\n".join(f"- line {n}" for n in range(40)), capabilities)
    assert [part.text.count("\n") + 1 for part in found] == [17, 17, 6]
