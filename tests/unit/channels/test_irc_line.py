import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homarus.channels.irc.message import (
    IrcMessage,
    UnsendableLineError,
    fold_name,
    format_message,
    is_channel,
    is_nick,
    mentions_nick,
    parse_message,
    parse_time_tag,
    read_text,
)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"PING :abc\r\n", IrcMessage("PING", ("abc",))),
        (b"PING abc\n", IrcMessage("PING", ("abc",))),
        (
            b":a!b@c PRIVMSG #x :hello there\r\n",
            IrcMessage("PRIVMSG", ("#x", "hello there"), "a!b@c"),
        ),
        (b":s 001 me :\r\n", IrcMessage("001", ("me", ""), "s")),
        (b":s 005 me  A=1   B :x y\r\n", IrcMessage("005", ("me", "A=1", "B", "x y"), "s")),
        (b"@a=1;b;+c=x\\sy\\:z\\\\ :s cmd ::)\r\n",
         IrcMessage("CMD", (":)",), "s", {"a": "1", "b": "", "+c": "x y;z\\"})),
        (b"@a=x\\ :s JOIN #x\r\n", IrcMessage("JOIN", ("#x",), "s", {"a": "x"})),
        ("PRIVMSG x :grüß".encode("latin-1"), IrcMessage("PRIVMSG", ("x", "grüß"))),
        ("PRIVMSG x :grüß 👩".encode(), IrcMessage("PRIVMSG", ("x", "grüß 👩"))),
    ],
)  # fmt: skip
def test_parse_line_returns_its_parts(raw: bytes, line: IrcMessage) -> None:
    assert parse_message(raw) == line


@pytest.mark.parametrize("raw", [b"", b"\r\n", b" ", b":only.a.source\r\n", b"@only=tags\r\n"])
def test_parse_empty_line_returns_none(raw: bytes) -> None:
    assert parse_message(raw) is None


@given(st.binary(max_size=300))
def test_parse_any_bytes_returns_message_or_none(raw: bytes) -> None:
    line = parse_message(raw)
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
        raw = format_message("PRIVMSG", *params)
    except UnsendableLineError:
        return
    assert raw.endswith(b"\r\n") and raw.count(b"\n") == 1 and raw.count(b"\r") == 1
    assert parse_message(raw) == IrcMessage("PRIVMSG", tuple(params))


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
    with pytest.raises(UnsendableLineError):
        format_message("PRIVMSG", *params)


def test_fold_name_has_one_form_for_all_spellings() -> None:
    assert fold_name("Bob[\\]^") == "bob{|}~"
    assert fold_name("Bob[\\]^", "rfc1459-strict") == "bob{|}^"
    assert fold_name("Bob[\\]^", "ascii") == "bob[\\]^"
    assert fold_name("BÖB", "utf-8-something") == "bÖb"


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
    assert mentions_nick(text, "bot")


@pytest.mark.parametrize("text", ["robot", "bots", "bot_2: hi", "bot-2", "[bot]", "", "bot`"])
def test_mentions_nick_inside_word_returns_false(text: str) -> None:
    assert not mentions_nick(text, "bot")


def test_mentions_nick_with_special_characters_returns_true() -> None:
    assert mentions_nick("hi b[o]t|x, there", "b[o]t|x") and not mentions_nick("bot", "b.t")


def test_parse_time_tag_returns_milliseconds() -> None:
    assert parse_time_tag("2026-11-15T16:12:38.123Z") == 1794759158123
    assert [parse_time_tag(bad) for bad in ("", "yesterday", "1900-01-01T00:00:00.000Z")] == [
        0,
        0,
        0,
    ]
