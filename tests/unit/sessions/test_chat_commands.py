"""Chat commands: the table, and reading a message as one."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.sessions.commands import (
    ABORT_WORDS,
    COMMANDS,
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
    command: object, args: str, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([command.name, *command.aliases]))  # type: ignore[attr-defined]
    spoken = parse_command(f"/{name.upper()} {args}")
    if args.strip() and not command.args:  # type: ignore[attr-defined]
        assert spoken is None
    else:
        assert spoken and spoken.command == command
