"""The catalogue of chat commands, and parsing a message as one."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.commands.catalog import (
    ABORT_WORDS,
    COMMANDS,
    RESETS,
    CommandSpec,
    has_control_command,
    has_inline_command_tokens,
    is_abort_request_text,
    is_command_name,
    normalize_command_body,
    parse_command,
    parse_reset,
)
from homarus.agent.commands.listing import command_handlers


def test_catalog_names_are_unique() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][a-z_-]*", name) for name in names)


def test_catalog_help_is_one_line() -> None:
    assert all(re.fullmatch(r"[A-Z][^\n]{5,70}\.", command.help) for command in COMMANDS)


@given(st.sampled_from(COMMANDS), st.text(max_size=30), st.data())
def test_parse_command_accepts_every_alias(
    command: CommandSpec, args: str, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([command.name, *command.aliases]))
    spoken = parse_command(f"/{name.upper()} {args}")
    if args.strip() and not command.args and args.strip() != ":":
        assert spoken is None
    else:
        assert spoken and spoken.command == command


def test_normalize_command_keeps_lines_and_case() -> None:
    text = "/new@Bot:  Opus\n\nFirst Line\n  second"
    assert normalize_command_body(text, "bot") == "/new Opus\n\nFirst Line\n  second"


def test_parse_command_for_another_bot_is_none() -> None:
    assert not has_control_command("/status@other", "mybot")
    assert has_control_command("/status@MyBot", "@mybot")
    assert not has_control_command("/status@mybot")


@pytest.mark.parametrize("text", ["/", "//", "/ status", "/tmp/x: y", "/:x", "/@bot", "status", ""])
def test_normalize_other_text_is_unchanged(text: str) -> None:
    assert normalize_command_body(text, "bot") == text
    assert not has_control_command(text, "bot")


def test_parse_command_with_unexpected_args_is_none() -> None:
    assert not has_control_command("/stop the press")
    assert not is_abort_request_text("/stop the press")


@given(st.sampled_from(sorted(ABORT_WORDS)))
def test_abort_word_inside_text_does_not_stop(word: str) -> None:
    assert is_abort_request_text(f"  {word.title()}\n")
    assert not is_abort_request_text(f"please {word}")
    assert not is_abort_request_text(f"{word} it")


@given(st.text(max_size=60))
def test_normalize_command_twice_equals_once(text: str) -> None:
    once = normalize_command_body(text, "bot")
    assert normalize_command_body(once, "bot") == once or ":" in text or "@" in text
    if has_control_command(text):
        assert is_command_name(once.split()[0][1:])
        assert has_inline_command_tokens(text)


@pytest.mark.parametrize("text", ["/" * 10**6, "/a" + " " * 10**6 + "b", "/status:" * 10**5])
def test_parse_command_of_a_megabyte_is_quick(text: str) -> None:
    started = time.process_time()
    normalize_command_body(text, "bot")
    has_inline_command_tokens(text)
    is_abort_request_text(text)
    assert time.process_time() - started < 2


def test_every_handler_is_in_the_catalog_and_found_by_its_name() -> None:
    assert command_handlers().keys() <= {spec.name for spec in COMMANDS}
    assert all(handler.name == name for name, handler in command_handlers().items())
    assert {
        "help",
        "status",
        "stop",
        "model",
        "queue",
        "export-session",
    } <= command_handlers().keys()
    assert not command_handlers().keys() & RESETS, "the dispatcher executes them itself"


@pytest.mark.parametrize(
    ("text", "name", "args"),
    [
        ("/new", "new", ""),
        ("/reset go on", "reset", "go on"),
        ("Start over", "new", ""),
        ("start over: hi", None, ""),
        ("start over hi", "new", "hi"),
        ("/status", None, ""),
        ("hello", None, ""),
    ],
)
def test_parse_reset_accepts_commands_and_triggers(text: str, name: str | None, args: str) -> None:
    parsed = parse_reset(text, ("/new", "start over"))
    assert (parsed.command.name if parsed else None) == name
    assert parsed is None or parsed.args == args


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("/unknown: X", "/unknown X"),
        ("/Foo BAR", "/Foo BAR"),
        ("/STATUS now", "/STATUS now"),
        ("/dock_slack x", "/dock_slack x"),
        ("/T: high", "/think high"),
    ],
)
def test_normalize_command_without_args_keeps_its_spelling(text: str, body: str) -> None:
    assert normalize_command_body(text) == body
