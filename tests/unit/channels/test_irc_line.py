import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homarus.channels.irc.line import (
    Line,
    Unsendable,
    compose,
    fold,
    is_channel,
    is_nick,
    names,
    parse,
    read_text,
    stamp_ms,
)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"PING :abc\r\n", Line("PING", ("abc",))),
        (b"PING abc\n", Line("PING", ("abc",))),
        (b":a!b@c PRIVMSG #x :hello there\r\n", Line("PRIVMSG", ("#x", "hello there"), "a!b@c")),
        (b":s 001 me :\r\n", Line("001", ("me", ""), "s")),
        (b":s 005 me  A=1   B :x y\r\n", Line("005", ("me", "A=1", "B", "x y"), "s")),
        (b"@a=1;b;+c=x\\sy\\:z\\\\ :s cmd ::)\r\n",
         Line("CMD", (":)",), "s", {"a": "1", "b": "", "+c": "x y;z\\"})),
        (b"@a=x\\ :s JOIN #x\r\n", Line("JOIN", ("#x",), "s", {"a": "x"})),
        ("PRIVMSG x :grüß".encode("latin-1"), Line("PRIVMSG", ("x", "grüß"))),
        ("PRIVMSG x :grüß 👩".encode(), Line("PRIVMSG", ("x", "grüß 👩"))),
    ],
)  # fmt: skip
def test_parse_line_returns_its_parts(raw: bytes, line: Line) -> None:
    assert parse(raw) == line


@pytest.mark.parametrize("raw", [b"", b"\r\n", b" ", b":only.a.source\r\n", b"@only=tags\r\n"])
def test_parse_empty_line_returns_none(raw: bytes) -> None:
    assert parse(raw) is None


@given(st.binary(max_size=300))
def test_parse_any_bytes_returns_message_or_none(raw: bytes) -> None:
    line = parse(raw)
    assert line is None or (line.command and not set("\0\r\n") & set("".join(line.params)))


@given(st.lists(st.text(max_size=20), max_size=4))
@example(["#x", "hi\r\nQUIT"])
@example(["a\nb", "text"])
@example(["a b", "text"])
@example([":a", "text"])
@example(["", "text"])
@example(["x\0", "text"])
@example(["x", "\ud800"])
def test_format_line_is_one_line_and_parses_back(params: list[str]) -> None:
    try:
        raw = compose("PRIVMSG", *params)
    except Unsendable:
        return
    assert raw.endswith(b"\r\n") and raw.count(b"\n") == 1 and raw.count(b"\r") == 1
    assert parse(raw) == Line("PRIVMSG", tuple(params))


@pytest.mark.parametrize(
    "params",
    [
        ("#x", "hi\r\nQUIT"),
        ("#x", "hi\nQUIT"),
        ("#x y", "hi"),
        (":x", "hi"),
        ("", "hi"),
        ("#x", "\0"),
    ],
)
def test_format_line_with_line_break_is_refused(params: tuple[str, ...]) -> None:
    with pytest.raises(Unsendable):
        compose("PRIVMSG", *params)


def test_fold_name_has_one_form_for_all_spellings() -> None:
    assert fold("Bob[\\]^") == "bob{|}~"
    assert fold("Bob[\\]^", "rfc1459-strict") == "bob{|}^"
    assert fold("Bob[\\]^", "ascii") == "bob[\\]^"
    assert fold("BÖB", "utf-8-something") == "bÖb"


@pytest.mark.parametrize("name", ["bob", "Bob[]", "a|b`_-^", "x1", "ünï"])
def test_is_nick_valid_name_returns_true(name: str) -> None:
    assert is_nick(name) and not is_channel(name)


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a,b", "a\nb", "a\rb", "a\0", ":a", "#a", "&a", "a!b@c", "a@b", "*", "$a", "\x01a"],
)
def test_is_nick_invalid_name_returns_false(name: str) -> None:
    assert not is_nick(name)


@pytest.mark.parametrize("name", ["#", "#a", "&a", "##a:b", "#ünï", "+a"])
def test_is_channel_valid_name_returns_true(name: str) -> None:
    assert is_channel(name) and not is_nick(name)


@pytest.mark.parametrize("name", ["", "a", "#a b", "#a,#b", "#a\r\nQUIT", "#\x07"])
def test_is_channel_invalid_name_returns_false(name: str) -> None:
    assert not is_channel(name)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("hello", "hello"),
        ("  hello  ", "hello"),
        (
            "\x02bold\x02 \x1dit\x1d \x1fun\x1f \x1est\x1e \x11mo\x11 \x16re\x16\x0f",
            "bold it un st mo re",
        ),
        ("\x0304red\x03 \x034,12both\x03", "red both"),
        ("\x03,5", ",5"),
        ("\x0312345", "345"),
        ("\x04ff0000red\x04", "red"),
        ("\x01ACTION waves\x01", "* bob waves"),
        ("\x01ACTION \x02waves\x02", "* bob waves"),
        ("\x01VERSION\x01", ""),
        ("\x01PING 123\x01", ""),
        ("\x01DCC SEND x 1 2 3\x01", ""),
        ("\x01ACTIONS\x01", ""),
        ("\x02\x03", ""),
    ],
)
def test_plain_text_has_no_colours_and_no_ctcp(said: str, text: str) -> None:
    assert read_text(said, "bob") == text


@pytest.mark.parametrize(
    "text", ["bot: hi", "bot, hi", "Bot hi", "hi bot", "hi BOT!", "(bot)", "bot", "@bot hi"]
)
def test_mentions_nick_as_word_returns_true(text: str) -> None:
    assert names(text, "bot")


@pytest.mark.parametrize("text", ["robot", "bots", "bot_2: hi", "bot-2", "[bot]", "", "bot`"])
def test_mentions_nick_inside_word_returns_false(text: str) -> None:
    assert not names(text, "bot")


def test_mentions_nick_with_special_characters_returns_true() -> None:
    assert names("hi b[o]t|x, there", "b[o]t|x") and not names("bot", "b.t")


def test_parse_time_tag_returns_milliseconds() -> None:
    assert stamp_ms("2026-11-15T16:12:38.123Z") == 1794759158123
    assert [stamp_ms(bad) for bad in ("", "yesterday", "1900-01-01T00:00:00.000Z")] == [0, 0, 0]
