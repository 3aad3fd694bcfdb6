"""Select a part of a JSON response: `current.temperature`, `items[0].name`, `items[*].id`. Pure."""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from homarus.core.errors import ToolError
from homarus.core.message import Json
from homarus.skills.actions.template import ActionFormatError

MAX_STEPS: Final = 20
ALL: Final = -1  # every item of a list

SelectStep: TypeAlias = str | int

_STEP: Final = re.compile(r"(?:^|\.)(?P<key>[A-Za-z0-9_$@:-]+)|\[(?P<index>\d{1,6}|\*)\]")


def parse_select(text: str) -> tuple[SelectStep, ...]:
    """Return the steps. Raises ActionFormatError for text that is not understood."""
    steps: list[SelectStep] = []
    place = 0
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None or len(steps) == MAX_STEPS:
            raise ActionFormatError(
                f"select is not understood at character {place + 1}: use a.b[0].c[*]"
            )
        index = found["index"]
        steps.append(found["key"] if index is None else ALL if index == "*" else int(index))
        place = found.end()
    return tuple(steps)


def select_part(value: Json, steps: Sequence[SelectStep]) -> Json:
    """Return the part. Raises ToolError where the value has none."""
    for number, step in enumerate(steps):
        if step == ALL:
            if not isinstance(value, list):
                raise _missing(steps[: number + 1])
            return [select_part(each, steps[number + 1 :]) for each in value]
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                raise _missing(steps[: number + 1])
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            raise _missing(steps[: number + 1])
    return value


def _missing(steps: Sequence[SelectStep]) -> ToolError:
    parts = ("[*]" if each == ALL else f"[{each}]" if isinstance(each, int) else f".{each}"
             for each in steps)  # fmt: skip
    return ToolError(f"the response has no {''.join(parts).removeprefix('.')}")
