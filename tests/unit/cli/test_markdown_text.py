"""Markdown at a terminal, complete and while it is being written."""

import re

import pytest

from homarus.cli.markdown_text import MarkdownRenderer, MarkdownStream
from homarus.cli.text_layout import QUESTION_MARK, width

TEXT = """# Title with **bold**

Some *emphasis*, `code`, ~~gone~~, a [link](https://example.org/x) and <https://a.b/>.
می‌خواهم

- one item which is long enough to be divided into two lines
  - nested
- two

  more of two
1. first
2. second
   ```sh
   ls | wc
   ```

> quoted text
> of two lines

```python
def f(x):
    return x + 1  # comment
```

| Name | Size | 日本 |
|------|-----:|:--|
| a | 1 | 語語語 |
| long `cell` | 22 | b |

---
last line
"""
PLAIN = """# Title with **bold**

Some *emphasis*, `code`, ~~gone~~, a
link (https://example.org/x) and
https://a.b/.
می‌خواهم

• one item which is long enough to be
  divided into two lines
  • nested
• two

  more of two
1. first
2. second
     ls | wc

│ quoted text
│ of two lines

  def f(x):
      return x + 1  # comment

Name        │ Size │ 日本
────────────┼──────┼───────
a           │    1 │ 語語語
long `cell` │   22 │ b

────────────────────────────────────────
last line"""
STYLES = re.compile(r"\x1b\[[\d;]*m")


def renderer(columns: int = 40, *, colour: bool = False) -> MarkdownRenderer:
    return MarkdownRenderer(lambda: columns, colour=colour)


def rendered(text: str, columns: int = 40, *, colour: bool = False) -> list[str]:
    stream = MarkdownStream(renderer(columns, colour=colour))
    return [line.rstrip() for line in (*stream.feed(text), *stream.end())]


def test_blocks_are_laid_out_in_the_columns() -> None:
    assert "\n".join(rendered(TEXT)) == PLAIN


def test_colours_replace_the_marks_of_emphasis() -> None:
    lines = rendered(TEXT, colour=True)
    assert lines[0] == "\x1b[1;36mTitle with \x1b[0m\x1b[1;36;1mbold\x1b[0m"
    assert "\x1b[3memphasis\x1b[0m" in lines[2] and "\x1b[36mcode\x1b[0m" in lines[2]
    assert any("\x1b[35mdef\x1b[0m \x1b[34mf\x1b[0m" in line for line in lines)


@pytest.mark.parametrize("columns", [10, 23, 40, 100])
@pytest.mark.parametrize("size", [1, 7])
def test_text_in_pieces_gives_the_same_lines(columns: int, size: int) -> None:
    stream, lines = MarkdownStream(renderer(columns, colour=True)), list[str]()
    for place in range(0, len(TEXT), size):
        lines += stream.feed(TEXT[place : place + size])
        assert all(width(STYLES.sub("", line)) <= columns for line in stream.pending())
    lines += stream.end()
    assert [line.rstrip() for line in lines] == rendered(TEXT, columns, colour=True)
    assert stream.end() == [] == stream.pending()


def test_text_under_way_is_pending_until_its_block_ends() -> None:
    stream = MarkdownStream(renderer())
    assert stream.feed("Some **bo") == [] and stream.pending() == ["Some **bo"]
    assert stream.feed("ld**\n\n") == [] and stream.pending() == ["Some **bold**"]
    assert stream.feed("Next") == ["Some **bold**"] and stream.pending() == ["", "Next"]
    assert stream.feed("\n\n```python\nx = 1\ny") == ["", "Next", "", "  x = 1"]
    assert stream.pending() == ["  y"]


def test_long_text_without_a_break_is_printed_on_the_way() -> None:
    stream = MarkdownStream(renderer())
    lines = [line for _ in range(100) for line in stream.feed("word " * 100)]
    assert len(lines) > 1_000 and len(stream.pending()) < 400


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[2J\x1b]0;title\x07",
        "&#27;[7m&#x1b;]52;c;eA==&#7;",
        "&#x202e;gnp.exe &rlm; &#x2503; Allow? [y/N]",
        f"`\x9b7m {QUESTION_MARK}`",
        f"```\n\x1b[7m{QUESTION_MARK} Allow? [y/N]\x1b[0m\n```",
        f"| a |\n|---|\n| \x1b[7m{QUESTION_MARK} |",
        f"[x](https://a.b/\x1b[7m{QUESTION_MARK}) ![\x1b[7m](y)",
        "```\x1b[7m\ncode\n```",
        "a\rb\u2028\x0b\x0c\x85",
    ],
)
def test_no_markup_gives_a_control_character(hostile: str, *, colour: bool) -> None:
    text = "\n".join(rendered(hostile, colour=colour))
    plain = STYLES.sub("", text)
    assert not any(ch < " " and ch != "\n" for ch in plain)
    assert not any("\x7f" <= ch <= "\x9f" or ch in "\u202e\u200f\u2028" for ch in plain)
    assert QUESTION_MARK not in text and "\x1b[7m" not in text
