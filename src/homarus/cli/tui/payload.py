"""Values of a gateway's payloads, each of which may have any type: a wrong one counts as absent."""

import math
from collections.abc import Mapping
from typing import Final

from homarus.core.message import Json

_MAX_COUNT: Final = 1e15


def read_items(value: Json) -> list[Json]:
    """Return the items of a list."""
    return value if isinstance(value, list) else []


def read_rows(value: Json) -> list[Mapping[str, Json]]:
    """Return the objects of a list; what is no object is skipped."""
    return [each for each in read_items(value) if isinstance(each, dict)]


def read_fields(value: Json) -> Mapping[str, Json]:
    """Return an object."""
    return value if isinstance(value, dict) else {}


def read_count(value: Json) -> int:
    """Return a number of things, or of milliseconds."""
    number = read_amount(value)
    return int(number) if 0 <= number < _MAX_COUNT else 0


def read_amount(value: Json) -> float:
    """Return a number, such as a cost."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    is_usable = abs(value) < _MAX_COUNT if isinstance(value, int) else math.isfinite(value)
    return float(value) if is_usable else 0.0


def read_word(value: Json) -> str:
    """Return a text, such as a name or a key."""
    return value if isinstance(value, str) else ""
