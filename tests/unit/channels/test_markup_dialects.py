"""What each dialect renders for the same markdown."""

import pytest

from homarus.channels import markup
from homarus.core.channel_traits import Dialect
from homarus.core.message import TextStyle

EVERY: list[Dialect] = [
    "telegram",
    "matrix",
    "slack",
    "whatsapp",
    "discord",
    "signal",
    "irc",
    "plain",
]


MATRIX_STYLES = (
    "<strong>a <em>b</em></strong> <del>c</del> <code>d</code> <span data-mx-spoiler>e</span>"
)


@pytest.mark.parametrize(
    ("dialect", "shown"),
    [
        ("telegram", "<b>a <i>b</i></b> <s>c</s> <code>d</code> <tg-spoiler>e</tg-spoiler>"),
        ("matrix", MATRIX_STYLES),
        ("slack", "*a _b_* ~c~ `d` ||e||"),
        ("whatsapp", "*a *b** ~c~ `d` ||e||"),
        ("discord", "**a *b*** ~~c~~ `d` ||e||"),
        ("irc", "\x02a \x1db\x1d\x02 ~~c~~ `d` ||e||"),
        ("plain", "a b ~~c~~ d ||e||"),
        ("signal", "a b c d e"),
        ("markdown", "**a *b*** ~~c~~ `d` ||e||"),
    ],
)
def test_render_styles_use_marks_of_dialect(dialect: Dialect, shown: str) -> None:
    assert markup.render("**a *b*** ~~c~~ `d` ||e||", dialect) == shown


@pytest.mark.parametrize(
    ("dialect", "shown"),
    [
        ("telegram", 'x <a href="https://e.io/?a=1&amp;b=&quot;2&quot;">y</a>'),
        ("matrix", 'x <a href="https://e.io/?a=1&amp;b=&quot;2&quot;">y</a>'),
        ("slack", "x <https://e.io/?a=1&amp;b=%222%22|y>"),
        ("whatsapp", "x [y](https://e.io/?a=1&b=%222%22)"),
        ("discord", "x [y](https://e.io/?a=1&b=%222%22)"),
        ("irc", "x y (https://e.io/?a=1&b=%222%22)"),
    ],
)
def test_render_link_keeps_address(dialect: Dialect, shown: str) -> None:
    found = markup.render('x [y](https://e.io/?a=1&b="2")', dialect)
    assert found == shown.replace("&quot;", "%22")


def test_render_headings_lists_quotes_and_rules_without_blocks() -> None:
    text = "intro\n\n## Head\n\n1. a\n   - b\n2. c\n\n> q\n> r\n>\n> > s\n\n***\n\nend"
    assert markup.render(text, "plain") == (
        "intro\n\nHead\n\n1. a\n  • b\n2. c\n\n> q\n> r\n\n> > s\n\n───\n\nend"
    )
    assert markup.render(text, "discord") == (
        "intro\n\n## Head\n\n1. a\n  - b\n2. c\n\n> q\n> r\n\n> > s\n\n───\n\nend"
    )


def test_render_matrix_produces_html_page() -> None:
    text = "## H\n\n3. a\n4. b\n   - c\n\n> q\n\n---\n\n```py\nx < 1\n\ny\n```\n\nl1\nl2"
    assert markup.render(text, "matrix") == (
        '<h2>H</h2><ol start="3"><li>a</li><li>b<ul><li>c</li></ul></li></ol>'
        "<blockquote><p>q</p></blockquote><hr>"
        '<pre><code class="language-py">x &lt; 1\n\ny</code></pre><p>l1<br>l2</p>'
    )
    assert markup.render("just **this**", "matrix") == "just <strong>this</strong>"


def test_plain_of_matrix_page_has_bullets_numbers_and_addresses() -> None:
    page = markup.render("# H\n\n2. a\n3. [b](https://e.io)\n\n> q\n> r\n\n- c\n\n  d", "matrix")
    assert markup.plain(page, "matrix") == ("H\n\n2. a\n3. b (https://e.io)\n\n> q\n> r\n\n• c\nd")


def test_plain_of_rendered_text_is_text_of_author() -> None:
    text = "**a** <b> & [c](https://e.io)"
    assert markup.plain(markup.render(text, "telegram"), "telegram") == "a <b> & c"
    assert markup.plain(markup.render(text, "slack"), "slack") == "*a* <b> & c"
    assert markup.plain("\x02a\x02 \x0304,01b\x0f", "irc") == "a b"
    assert markup.plain("**as it is**", "markdown") == "**as it is**"


def test_signal_styles_count_in_utf16_units() -> None:
    found = markup.signal("😀 **b😀** `c`")
    assert found.text == "😀 b😀 c"
    assert found.styles == (
        TextStyle(3, 3, "BOLD"),
        TextStyle(7, 1, "MONOSPACE"),
    )
    assert markup.signal("") == markup.RenderedPart("")


def test_render_code_in_quote_ends_quote() -> None:
    text = "> a\n>\n> ```\n> x\n> ```\n>\n> b"
    assert markup.render(text, "telegram") == (
        "<blockquote>a</blockquote>\n\n<pre><code>x\n</code></pre>\n<blockquote>b</blockquote>"
    )
    assert markup.render(text, "whatsapp") == "> a\n\n```\nx\n```\n> b"


def test_render_nested_quote_is_one_quote_for_telegram() -> None:
    assert markup.render("> a\n> > b", "telegram") == "<blockquote>a\n\nb</blockquote>"


def test_render_style_ends_with_line_where_service_ends_it() -> None:
    text = "**a\nb**"
    assert markup.render(text, "slack") == "*a*\n*b*"
    assert markup.render(text, "irc") == "\x02a\x02\n\x02b\x02"
    assert markup.render("> " + text.replace("\n", "\n> "), "whatsapp") == "> *a*\n> *b*"
    assert markup.render(text, "telegram") == "<b>a\nb</b>"


def test_render_bold_in_heading_is_bold_once() -> None:
    assert markup.render("# a **b** c", "slack") == "*a b c*"


@pytest.mark.parametrize("dialect", EVERY)
def test_render_file_names_are_no_links(dialect: Dialect) -> None:
    shown = markup.render("see README.md, src/app.py", dialect)
    assert "href" not in shown and "://" not in shown and "README.md" in shown


def test_render_telegram_file_names_are_code() -> None:
    shown = markup.render(
        "in README.md, ./a/b.sh (x.py). https://e.io/R.md a@b.pl e.md/x", "telegram"
    )
    assert shown == (
        "in <code>README.md</code>, <code>./a/b.sh</code> (<code>x.py</code>). "
        '<a href="https://e.io/R.md">https://e.io/R.md</a> '
        '<a href="mailto:a@b.pl">a@b.pl</a> e.md/x'
    )


@pytest.mark.parametrize(
    ("text", "address", "after"),
    [
        ("https://e.io/a_b", "https://e.io/a_b", ""),
        ("(HTTP://e.io).", "HTTP://e.io", ")."),
        ("https://e.io/a(b)!", "https://e.io/a(b)", "!"),
        ("https://e.io?a=1&b=2, x", "https://e.io?a=1&amp;b=2", ", x"),
        ("www.e.io/x", "www.e.io/x", ""),
        ("example.com: y", "example.com", ": y"),
        ("a.b@e.io", "a.b@e.io", ""),
        ("mailto:a@e.io;", "mailto:a@e.io", ";"),
    ],
)
def test_render_telegram_bare_address_is_a_link(text: str, address: str, after: str) -> None:
    shown = markup.render(text, "telegram", "off")
    schemes = {"w": "http://", "e": "http://", "a": "mailto:"}
    href = schemes.get(address[0], "") + address
    assert shown == f'{text[: text.index(address[:4])]}<a href="{href}">{address}</a>{after}'


@pytest.mark.parametrize(
    "text", ["10:30", "v1.2.com-x", "e.g. this", "`https://e.io`", "ftp://e.io"]
)
def test_render_telegram_other_text_is_no_link(text: str) -> None:
    assert "href" not in markup.render(text, "telegram", "off")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<@U12> hi & <https://e.io|z>", "<@U12> hi &amp; <https://e.io|z>"),
        ("**<#C12|general>**", "*<#C12|general>*"),
        ("<https://e.io>", "<https://e.io>"),
        ("<https://e.io/?a&b|x>", "<https://e.io/?a&amp;b|x>"),
        ("<!here> <!channel|x> <@U1", "&lt;!here&gt; &lt;!channel|x&gt; &lt;@U1"),
        ("<javascript:x|y> <@everyone>", "&lt;javascript:x|y&gt; &lt;@\u200beveryone&gt;"),
    ],
)
def test_render_slack_own_markup_passes_through(text: str, shown: str) -> None:
    assert markup.render(text, "slack", "off") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold *both* end**", "*bold *both* end*"),
        ("***x***", "**x**"),
        ("*i **b** i*", "*i *b* i*"),
        ("**b _i_**", "*b _i_*"),
    ],
)
def test_render_whatsapp_nested_stars_stay_stars(text: str, shown: str) -> None:
    assert markup.render(text, "whatsapp", "off") == shown


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\ntext",
        "#### Deep\n\ntext",
        "text\n\n---\n\nmore",
        "```js\nconst x = 1 < 2;\n```",
        "<@U123> hi & <https://x.y|z>",
    ],
)
def test_render_whatsapp_keeps_markup_without_counterpart(text: str) -> None:
    assert markup.render(text, "whatsapp", "off") == text


def test_render_signal_quote_starts_with_one_prefix() -> None:
    assert markup.signal("> one\n> two\n\nthree").text == "> one\ntwo\n\nthree"


def test_render_signal_autolink_names_an_encoded_address() -> None:
    assert markup.signal("<https://x.y|z>").text == "https://x.y|z (https://x.y%7Cz)"
    assert markup.signal("<https://x.y/z>").text == "https://x.y/z"


@pytest.mark.parametrize("dialect", EVERY)
@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd", "notes.md"],
)
def test_render_unsafe_address_stays_as_written(dialect: Dialect, address: str) -> None:
    shown = markup.render(f"[x]({address}) <{address}> ![y]({address})", dialect)
    assert "href" not in shown
    assert address in markup.plain(shown, dialect).replace("\\", "")
    assert not any(mark in shown for mark in (f"<{address}|", f" [x]({address}"))


def test_render_matrix_shows_address_it_would_drop() -> None:
    assert markup.render("[me](tg://user?id=1)", "matrix") == "me (tg://user?id=1)"
    assert markup.render("[me](tg://user?id=1)", "telegram") == '<a href="tg://user?id=1">me</a>'


def test_render_image_is_link() -> None:
    assert markup.render("![a](https://e.io/p)", "telegram") == '<a href="https://e.io/p">a</a>'
    assert markup.render("[![a](https://e.io/p)](https://b.io)", "slack") == "<https://b.io|a>"


def test_render_link_without_text_shows_address() -> None:
    for dialect in EVERY:
        assert "https://e.io" in markup.plain(markup.render("[](https://e.io)", dialect), dialect)


def test_render_code_cannot_end_its_fence() -> None:
    shown = markup.render("````\na\n```\n@everyone\n````", "discord")
    assert shown.count("```") == 2
    assert markup.render("`` a`b ``", "slack") == "a`b"
    assert markup.render("`` a`b ``", "discord") == "``a`b``"


def test_render_discord_has_no_mentions_and_keeps_versions() -> None:
    assert markup.render("@everyone <@12> `@here` a@1.2", "discord") == (
        "@\u200beveryone <@\u200b12> @\u200bhere a@1.2"
    )
    assert markup.render("```\n@everyone\n```", "discord") == "```\n@everyone\n```"


def test_render_discord_escapes_text_that_looks_like_markup() -> None:
    assert markup.render(r"\*a\* \# b", "discord") == r"\*a\* # b"
    assert markup.render(r"\# b", "discord") == r"\# b"
    assert markup.render("a_b_c https://e.io/_x_", "discord") == "a_b_c https://e.io/_x_"


@pytest.mark.parametrize("dialect", EVERY)
def test_render_markup_in_address_is_part_of_it(dialect: Dialect) -> None:
    address = "https://e.io/__init__/_x_?a=~~b~~&c"
    shown = markup.plain(markup.render(f"**see {address}**, (_{address}_)", dialect), dialect)
    assert shown.count(address) == 2


def test_render_reference_definitions_and_html_are_text() -> None:
    text = "[a]: https://e.io\n\n<div>x</div>"
    assert markup.plain(markup.render(text, "telegram"), "telegram") == text


def test_render_empty_text_is_empty() -> None:
    for dialect in EVERY:
        assert markup.render("", dialect) == ""
        assert markup.render(" \n\n ", dialect) == ""
