"""Parse durations and sizes of the config: `30m`, `1.5h`, `10mb`."""

import math
import re

from homarus.core.errors import UserError
from homarus.core.text import one_line

_DURATIONS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_SHORT_SIZES = {"k": "kb", "m": "mb", "g": "gb", "t": "tb"}
_MAX = 2**53  # larger integers are not exact in JSON or in a float
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]*)")  # no space between them, as in OpenClaw


def parse_duration_ms(text: str, default_unit: str = "ms") -> int:
    """Parse `500ms`, `10s`, `1.5m`, `2h`, `1d`; a bare number is in `default_unit`."""
    found = _NUMBER.fullmatch(text.strip().lower())
    unit = found[2] or default_unit if found else ""
    if not found or unit not in _DURATIONS_MS:
        raise UserError(f"invalid duration {text!r}", fix="write for example 30s, 5m or 2h")
    return _multiply(text, found[1], _DURATIONS_MS[unit])


def parse_byte_size(text: str, default_unit: str = "b") -> int:
    """Parse `512`, `10kb`, `1.5mb`, `1g`; a bare number is in `default_unit`."""
    found = _NUMBER.fullmatch(text.strip().lower())
    unit = found[2] or default_unit if found else ""
    unit = _SHORT_SIZES.get(unit, unit)
    if not found or unit not in _SIZES:
        raise UserError(f"invalid size {text!r}", fix="write for example 512kb, 10mb or 1gb")
    return _multiply(text, found[1], _SIZES[unit])


def _multiply(text: str, number: str, factor: int) -> int:
    """Return the product, rounded half up as in OpenClaw."""
    value = float(number) * factor
    if value > _MAX:
        raise UserError(f"{one_line(text, 40)!r} is too large", fix="write a smaller number")
    return math.floor(value + 0.5)
