"""Chat commands: the table, and reading a message as one."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.commands.catalog import (
    ABORT_WORDS,
    COMMANDS,
    CommandSpec,
    has_control_command,
    has_inline_command_tokens,
    is_abort_request_text,
    is_command_name,
    normalize_command_body,
    parse_command,
)


def test_no_name_is_used_twice() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][a-z_-]*", name) for name in names)


def test_every_command_has_one_line_of_help() -> None:
    assert all(re.fullmatch(r"[A-Z][^\n]{5,70}\.", command.help) for command in COMMANDS)


@given(st.sampled_from(COMMANDS), st.text(max_size=30), st.data())
def test_a_command_is_read_by_any_of_its_names(
    command: CommandSpec, args: str, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([command.name, *command.aliases]))
    spoken = parse_command(f"/{name.upper()} {args}")
    if args.strip() and not command.args and args.strip() != ":":
        assert spoken is None
    else:
        assert spoken and spoken.command == command


def test_arguments_keep_their_lines_and_case() -> None:
    text = "/new@Bot:  Opus\n\nFirst Line\n  second"
    assert normalize_command_body(text, "bot") == "/new Opus\n\nFirst Line\n  second"


def test_a_message_for_another_bot_is_no_command() -> None:
    assert not has_control_command("/status@other", "mybot")
    assert has_control_command("/status@MyBot", "@mybot")
    assert not has_control_command("/status@mybot")


@pytest.mark.parametrize("text", ["/", "//", "/ status", "/tmp/x: y", "/:x", "/@bot", "status", ""])
def test_what_is_no_command_stays_as_it_is(text: str) -> None:
    assert normalize_command_body(text, "bot") == text
    assert not has_control_command(text, "bot")


def test_words_after_a_command_without_arguments_make_it_a_sentence() -> None:
    assert not has_control_command("/stop the press")
    assert not is_abort_request_text("/stop the press")


@given(st.sampled_from(sorted(ABORT_WORDS)))
def test_an_abort_word_stops_only_as_the_whole_message(word: str) -> None:
    assert is_abort_request_text(f"  {word.title()}\n")
    assert not is_abort_request_text(f"please {word}")
    assert not is_abort_request_text(f"{word} it")


@given(st.text(max_size=60))
def test_writing_a_command_in_full_twice_changes_nothing(text: str) -> None:
    once = normalize_command_body(text, "bot")
    assert normalize_command_body(once, "bot") == once or ":" in text or "@" in text
    if has_control_command(text):
        assert is_command_name(once.split()[0][1:])
        assert has_inline_command_tokens(text)


@pytest.mark.parametrize("text", ["/" * 10**6, "/a" + " " * 10**6 + "b", "/status:" * 10**5])
def test_a_megabyte_takes_no_time(text: str) -> None:
    started = time.process_time()
    normalize_command_body(text, "bot")
    has_inline_command_tokens(text)
    is_abort_request_text(text)
    assert time.process_time() - started < 2
