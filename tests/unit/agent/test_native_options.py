"""The typed options of commands, from the description of their arguments."""

import pytest

from homarus.agent.commands.catalog import COMMANDS
from homarus.agent.commands.native_options import MAX_CHOICES, command_options
from homarus.core.native_command import CommandOption, NativeCommand


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", []),
        ("[name]", [("name", False, ())]),
        ("<target> <message>", [("target", True, ()), ("message", True, ())]),
        ("<target|all>", [("target", True, ())]),
        ("off|tokens|full", [("value", False, ("off", "tokens", "full"))]),
        ("<id> allow|deny", [("id", True, ()), ("value", False, ("allow", "deny"))]),
        ("[list|add] [entry]", [("action", False, ("list", "add")), ("entry", False, ())]),
        ("mode debounce: cap:", [("text", False, ())]),
        ("[model or text]", [("model-or-text", False, ())]),
    ],
)
def test_command_options_follow_the_description(args: str, expected: object) -> None:
    options = command_options(args)
    assert [(each.name, each.is_required, each.choices) for each in options] == expected


def test_command_options_of_all_commands_are_usable() -> None:
    for spec in COMMANDS:
        options = command_options(spec.args)
        assert len({each.name for each in options}) == len(options), spec.name
        assert bool(options) == bool(spec.args), spec.name
        flags = [each.is_required for each in options]
        assert flags == sorted(flags, reverse=True), spec.name  # services want required ones first
        assert all(len(each.choices) <= MAX_CHOICES for each in options), spec.name


def test_native_command_text_has_values_in_order() -> None:
    options = (CommandOption("id", "Id."), CommandOption("on", "On?", "boolean"))
    command = NativeCommand("approve", "Answer.", options)
    assert command.format_text({"on": False, "id": " 7 "}) == "/approve 7 off"
    assert command.format_text({}) == "/approve"
