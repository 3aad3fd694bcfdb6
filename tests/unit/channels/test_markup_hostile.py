"""Texts that try to break markup, hide something or mention everyone."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from homarus.channels import markup
from homarus.channels.base import Capabilities
from homarus.channels.markup.tree import MAX_CHARS
from homarus.core.channel_traits import Dialect

TELEGRAM_TAGS = {
    **{tag: set[str]() for tag in ("b", "i", "u", "s", "code", "pre", "tg-spoiler", "blockquote")},
    "a": {"href"},
}
MATRIX_TAGS = {
    **{f"h{level}": set[str]() for level in range(1, 7)},
    **{tag: set[str]() for tag in ("p", "strong", "em", "del", "pre", "ul", "li", "blockquote")},
    **{tag: set[str]() for tag in ("table", "thead", "tbody", "tr", "th", "td", "br", "hr")},
    "ol": {"start"},
    "code": {"class"},
    "span": {"data-mx-spoiler"},
    "a": {"href"},
}
ALLOWED = {"telegram": TELEGRAM_TAGS, "matrix": MATRIX_TAGS}


class Checker(HTMLParser):
    """Fail on tags that are not paired or not allowed."""

    def __init__(self, allowed: dict[str, set[str]]) -> None:
        super().__init__(convert_charrefs=False)
        self.allowed = allowed
        self.opened: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.allowed, tag
        assert {name for name, _ in attrs} <= self.allowed[tag]
        for name, value in attrs:
            if name == "href":
                assert re.match(r"https?://|mailto:|tel:|tg://", value or "", re.IGNORECASE)
        if tag not in {"br", "hr"}:
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        assert "<" not in data and ">" not in data and "&" not in data

    def handle_entityref(self, name: str) -> None:
        assert name in {"amp", "lt", "gt", "quot"}

    def handle_charref(self, name: str) -> None:
        assert name == "x27"

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)


def check(html: str, dialect: Dialect) -> None:
    checker = Checker(ALLOWED[dialect])
    checker.feed(html)
    checker.close()
    assert not checker.opened
    assert checker.rawdata == ""
    assert not re.search(r"&(?!(?:amp|lt|gt|quot|#x27);)", html)


SOUP = st.lists(
    st.sampled_from(
        [
            *("a", "b9", "😀", " ", "  ", "\n", "\n\n", "\t", "\n    ", "\\", "&", "&lt;", "&#10;"),
            *("*", "**", "***", "_", "__", "~~", "~", "||", "|", "`", "``", "```", "\n```js\n"),
            *("~~~", "[", "]", "(", ")", "![", "](", "](https://x.y)", "](javascript:x)", "<"),
            *(">", "<b>", "</b>", "<!--", "<https://x.y>", "<a@b.c>", "<?", "</pre></code>"),
            *("\n> ", "\n>", "\n- ", "\n1. ", "\n999999999. ", "\n# ", "\n#### ", "\n---\n"),
            *("\n|a|b|\n|-|-|\n|", "'", '"', "{}", "@everyone", "@here", "<@1>", "<@!2>", "<@&3>"),
            *("<!channel>", "<!here>", "@room", "\u202e", "\u2066", "\x00", "\x02", "\x03", "\r"),
            *(
                "\r\n",
                "\x85",
                "\u2028",
                "\ud800",
                "&#x202e;",
                "&#13;",
                "https://x.y/@everyone",
                "https://x.y/@room",
            ),
            *(
                "https://x.y/_a_",
                "x.md",
                "](https://x.y/@here)",
                "](https://x.y/@room)",
                '](https://x.y/">x)',
            ),
        ]
    ),
    max_size=50,
).map("".join)
TEXTS = SOUP | st.text(max_size=200)
LIMITS = st.sampled_from([0, 10, 30, 90, 400])


def cut(text: str, dialect: Dialect, limit: int = 0) -> list[str]:
    rendered = markup.parts(text, Capabilities(dialect=dialect), limit=limit)
    return [part.text for part in rendered]


@given(TEXTS, st.sampled_from(["telegram", "matrix"]), LIMITS)
def test_render_any_text_is_well_formed_html_with_allowed_tags(
    text: str, dialect: Dialect, limit: int
) -> None:
    for part in cut(text, dialect, limit):
        check(part, dialect)


@given(TEXTS, LIMITS)
def test_render_discord_any_text_mentions_no_one(text: str, limit: int) -> None:
    for part in cut(text, "discord", limit):
        outside_code = re.sub(r"```.*?```", "", part, flags=re.DOTALL)
        assert "```" not in outside_code
        assert not re.search(r"@(everyone|here)|<@[!&]?\d", outside_code)


@pytest.mark.parametrize("dialect", sorted({*get_args(Dialect)} - {"markdown"}))
def test_render_link_without_address_is_its_label(dialect: Dialect) -> None:
    assert cut("a![]()", dialect) == ["a"]
    assert cut("a![b]() [c]()", dialect) == ["ab c"]


@given(TEXTS, LIMITS)
def test_render_slack_any_text_mentions_no_group(text: str, limit: int) -> None:
    for part in cut(text, "slack", limit):
        assert all(
            re.match(
                r"<(?:(?:https?://|mailto:|tel:)[^<>|]*(?:\|[^<>]*)?"
                r"|(?:@[UW]|#[CG])[A-Z0-9]+(?:\|[^<>]*)?)>",
                part[found.start() :],
            )
            for found in re.finditer("<", part)
        )
        assert not re.search(r"&(?!(?:amp|lt|gt);)", part)
        assert part.count("```") % 2 == 0
        if "`" not in part:
            assert not re.search(r"@(everyone|here|channel)", part)


@given(TEXTS, LIMITS)
def test_render_matrix_any_text_mentions_no_room(text: str, limit: int) -> None:
    for part in cut(text, "matrix", limit):
        assert "@room" not in part and "@room" not in markup.plain(part, "matrix")


@given(TEXTS, st.integers(0, 100))
def test_render_irc_any_text_has_no_line_breaks_or_commands(text: str, limit: int) -> None:
    capabilities = Capabilities(dialect="irc", unit="byte", by_line=True, text_limit=limit)
    for part in (rendered.text for rendered in markup.parts(text, capabilities)):
        assert part.strip()
        assert not re.search(r"[\x00\x01\x03\r\n\x0f\x11\x16\x1e\x1f\x7f]", part)
        assert part.count("\x02") % 2 == part.count("\x1d") % 2 == 0


@given(TEXTS, st.sampled_from(sorted(get_args(Dialect))))
def test_render_any_text_has_no_bidi_override_or_broken_encoding(
    text: str, dialect: Dialect
) -> None:
    assume(dialect != "markdown")
    shown = markup.render(text, dialect)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b\x7f-\x9f]", shown)
    shown.encode()


@given(TEXTS, st.sampled_from(["off", "code"]))
def test_signal_styles_are_within_text(text: str, tables: markup.Tables) -> None:
    found = markup.signal(text, tables)
    size = len(found.text.encode("utf-16-le")) // 2
    assert all(s.start >= 0 and s.length > 0 and s.start + s.length <= size for s in found.styles)
    assert found.text == markup.render(text, "signal", tables)


WORDS = st.lists(
    st.sampled_from(
        [
            *(f" word{n} " for n in range(20)),
            *(f"word{n}" for n in range(20, 26)),
            *(" ", "\n", "\n\n", "*", "**", "_", "~~", "||", " ` ", "\n```\n", "\n> ", "\n- "),
            *("\n1. ", "\n# ", "[", "](https://x.y)", "]", "(", ")", "<", ">", "&", "\\", "|"),
            *("\n|a|b|\n|-|-|\n|", "\n    ", "\n---\n", ": ", "[a]: ", "!", "\t"),
        ]
    ),
    max_size=50,
).map("".join)


@given(WORDS, st.sampled_from(sorted(get_args(Dialect))), st.sampled_from(["off", "code"]))
def test_render_any_text_keeps_its_words(
    text: str, dialect: Dialect, tables: markup.Tables
) -> None:
    assume(not re.search(r"(?:`{3}|~{3})[^\n]*word", text))  # a language is no word
    shown = markup.plain(markup.render(text, dialect, tables), dialect)
    left = [word for word in re.findall(r"word\d+", text) if word not in shown]
    assert not left


N = 50_000
MONSTERS = {
    "stars": "*" * N + "a",
    "brackets": "[" * N,
    "pictures": "![" * (N // 2),
    "quotes": ">" * N + "a",
    "lists": "- " * (N // 2) + "a",
    "emphasis": "*_" * (N // 4) + "a" + "_*" * (N // 4),
    "unclosed": "**a *" * (N // 5),
    "spoilers": "||a" * (N // 3),
    "backticks": "".join("`" * (n % 200) + " " for n in range(500)),
    "links": "[a](" * (N // 4),
    "bars": "|" * N + "\n" + "|-" * (N // 2),
    "emoji": "😀" * N,
    "paths": "a.b/" * (N // 4),
    "dots": "a." * (N // 2),
    "schemes": "https://" * (N // 8),
    "colons": "://" * (N // 3),
    "rows": "|a|b|\n|-|-|\n" * (N // 12),
    "lines": "a\n" * (N // 2),
    "angles": "<a:" * (N // 3),
    "spaces": " " * N + "a",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MONSTERS)
def test_render_pathological_text_takes_linear_time(name: str) -> None:
    # Quadratic time would exceed the timeout of the test.
    for dialect in ("telegram", "matrix", "irc"):
        text = MONSTERS[name]
        shown = "".join(cut(text, dialect, 400))
        assert len(shown) < 20 * len(text) + 1_000


@pytest.mark.parametrize("dialect", ["telegram", "matrix", "discord", "irc", "plain"])
def test_render_text_too_long_to_parse_is_plain(dialect: Dialect) -> None:
    line = "**word** <b> & @everyone @room [x](https://x.y) | `c`"
    text = "|a|b|\n|-|-|\n" + f"{line}\n\n" * (MAX_CHARS // len(line))
    assert len(text) > MAX_CHARS
    shown = cut(text, dialect, 400)
    for part in shown:
        if dialect in ALLOWED:
            check(part, dialect)
        assert dialect != "discord" or "@everyone" not in part
        assert dialect != "matrix" or "@room" not in part
    words = "\n".join(markup.plain(part, dialect) for part in shown)
    assert words.count("word") == text.count("word")
    assert "<strong>" not in "".join(shown) and "<table>" not in "".join(shown)


def test_render_deeply_nested_blocks_keep_words() -> None:
    text = ">" * 500 + " deep\n\n" + "- " * 300 + "down\n\nafter **all**"
    for dialect in ("telegram", "matrix", "plain"):
        shown = markup.render(text, dialect)
        assert "deep" in shown and "down" in shown
    assert markup.render(text, "telegram").endswith("after <b>all</b>")


def test_markup_import_does_not_load_parser() -> None:
    code = (
        "import sys\nfrom homarus.channels import markup\n"
        "assert 'markdown_it' not in sys.modules\n"
        "markup.render('x', 'markdown')\nassert 'markdown_it' not in sys.modules\n"
        "markup.render('x', 'plain')\nassert 'markdown_it' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
