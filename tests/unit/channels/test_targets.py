"""Targets as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.targets import MAX_CHARS, parse_target
from homarus.core.errors import UserError


@pytest.mark.parametrize(
    ("channel", "text", "chat", "thread"),
    [
        ("telegram", "42", "42", None),
        ("telegram", " telegram:42 ", "42", None),
        ("telegram", "Telegram:GROUP:-1001", "-1001", None),
        ("telegram", "-1001:topic:7", "-1001", "7"),
        ("matrix", "!room:example.org", "!room:example.org", None),
        ("matrix", "room:!room:example.org:thread:$abc", "!room:example.org", "$abc"),
        ("matrix", "@ann:example.org", "@ann:example.org", None),
        ("irc", "#homarus", "#homarus", None),
        ("irc", "user:ann", "ann", None),
    ],
)
def test_parse_target_returns_chat_and_thread(
    channel: str, text: str, chat: str, thread: str | None
) -> None:
    assert parse_target(channel, text) == (chat, thread)


@pytest.mark.parametrize(
    "text", ["", " ", "telegram:", "group:", "a\nb", "\u202e1", "\0", "x" * 600]
)
def test_parse_target_without_chat_raises_user_error(text: str) -> None:
    with pytest.raises(UserError, match="names no chat of telegram"):
        parse_target("telegram", text)


@given(st.text(max_size=600))
def test_parse_target_any_text_returns_printable_chat_or_error(text: str) -> None:
    try:
        chat, thread = parse_target("telegram", text)
    except UserError:
        return
    assert chat and chat == chat.strip() and chat.isprintable() and len(chat) <= MAX_CHARS
    assert thread is None or thread


def test_target_kind_is_kept_where_service_needs_it() -> None:
    assert parse_target("discord", "discord:USER:42", ("user",)) == ("user:42", None)
    assert parse_target("discord", "channel:42", ("user",)) == ("42", None)
    with pytest.raises(UserError):
        parse_target("discord", "user: ", ("user",))
