"""Make the argument list of an action's command. Pure.

Every value becomes exactly one argument (a list several), never a part of a shell's text. A value
cannot become an option: one that starts with `-` is refused, unless the skill has put `--` before
its place, or the place follows a text as in `--city={city}`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from homarus.core.errors import ToolError
from homarus.core.message import Json
from homarus.skills.actions.definition import BASE_DIR, CommandAction
from homarus.skills.actions.template import TextTemplate, format_scalar

MAX_COMMAND_CHARS: Final = 20_000  # as many as a person can be shown
MAX_STDIN_CHARS: Final = 1_000_000
_REFUSED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def make_argv(action: CommandAction, args: Mapping[str, Json], folder: Path) -> tuple[str, ...]:
    """Return the arguments, the program first. Raises ToolError for a value that is refused."""
    values: Mapping[str, Json] = {**args, BASE_DIR: str(folder)}
    argv: list[str] = []
    is_after_end = False
    for item in action.argv:
        filled = _fill_item(item, values, is_after_end=is_after_end)
        argv += filled
        is_after_end = is_after_end or (len(item) == 1 and item[0].pieces == ("--",))
    if sum(len(each) + 3 for each in argv) > MAX_COMMAND_CHARS:
        raise ToolError(
            f"the command would have more than {MAX_COMMAND_CHARS} characters",
            fix="use shorter arguments",
        )
    return tuple(argv)


def _fill_item(
    item: Sequence[TextTemplate], values: Mapping[str, Json], *, is_after_end: bool
) -> list[str]:
    """Return the arguments of an item; none when a value of it is missing."""
    filled: list[str] = []
    for template in item:
        for text in _fill_one(template, values):
            if text is None:
                return []
            _check_argument(template, text, is_after_end=is_after_end)
            filled.append(text)
        is_after_end = is_after_end or template.pieces == ("--",)
    return filled


def _fill_one(template: TextTemplate, values: Mapping[str, Json]) -> list[str | None]:
    name = template.only_argument
    value = values.get(name) if name else None
    if isinstance(value, list):
        return [format_scalar(name, each) for each in value]
    return [template.fill(values, {})]


def _check_argument(template: TextTemplate, text: str, *, is_after_end: bool) -> None:
    names = ", ".join(sorted(template.argument_names - {BASE_DIR}))
    if not names:
        return
    if _REFUSED.search(text):
        raise ToolError(f"{names}: a control character cannot be an argument of a command")
    if text.startswith("-") and not template.literal_start and not is_after_end:
        raise ToolError(f"{names}: a value that starts with - would be an option of the program")


def make_stdin(action: CommandAction, args: Mapping[str, Json]) -> str:
    """Return the input of the command; "" without one. Raises ToolError for one too long."""
    text = (action.stdin.fill(args, {}) if action.stdin else "") or ""
    if len(text) > MAX_STDIN_CHARS:
        raise ToolError(f"the input would have more than {MAX_STDIN_CHARS} characters")
    return text
