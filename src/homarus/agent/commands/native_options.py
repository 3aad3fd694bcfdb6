"""Derive the typed options of a command from the description of its arguments.

    <id> allow-once|allow-always|deny     id (required), value (one of three)
    [list|add|remove] [entry]             action (one of three), entry

Arguments that have no fixed order (`mode debounce: cap:`) are one text.
"""

import re
from dataclasses import replace
from typing import Final

from homarus.core.native_command import CommandOption

MAX_CHOICES: Final = 25  # the most that a service lists
_ARGUMENT: Final = re.compile(r"<[^>]+>|\[[^\]]+\]|\S+")
_KEYED: Final = re.compile(r"\w+[=:]")
_NOT_NAME: Final = re.compile(r"[^a-z0-9]+")
_REST: Final = CommandOption("text", "The arguments of the command.")


def command_options(args: str) -> tuple[CommandOption, ...]:
    """Return the options for a description of arguments; none for none."""
    words = _ARGUMENT.findall(args)
    if not words:
        return ()
    if any(_KEYED.match(word) for word in words) and "|" not in words[0]:
        return (_REST,)
    options = [_make_option(word) for word in words]
    if len(options) > 1 and options[0].choices:
        options[0] = replace(options[0], name="action")
    return tuple({option.name: option for option in options}.values())


def _make_option(word: str) -> CommandOption:
    is_required, inner = word.startswith("<"), word.strip("<>[]")
    choices = tuple(inner.split("|")) if "|" in inner else ()
    if is_required and choices:  # `<target|all>`: a word of its own is allowed
        return CommandOption(choices[0], f"{inner.replace('|', ' or ')}.", is_required=True)
    if choices:
        return CommandOption("value", "What to do.", choices=choices[:MAX_CHOICES])
    name = _NOT_NAME.sub("-", inner.lower()).strip("-") or _REST.name
    return CommandOption(name, f"The {inner}.", is_required=is_required)
