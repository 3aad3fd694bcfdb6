"""Decode the JSON body of a request: within limits, and with one meaning only.

What parsers understand in different ways is refused: a name that occurs twice in an object, and
numbers that JSON does not have.
"""

import json
import math
from typing import Final, NoReturn

from homarus.core.message import Json
from homarus.core.text import repair_json
from homarus.gateway.http_api.api_error import ApiError

MAX_DEPTH: Final = 64
# Values of a body, estimated: a few bytes of text can become an object of some sixty bytes.
MAX_VALUES: Final = 200_000


def decode_json(body: bytes) -> Json:
    """Return the value of a body; raises ApiError (400). Lone surrogates become U+FFFD."""
    if body.count(b"[") + body.count(b"{") + body.count(b",") > MAX_VALUES:
        raise ApiError(400, f"the body has more than {MAX_VALUES} values")
    try:
        found = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise _too_deep() from None
    except _DuplicateNameError as exc:
        raise ApiError(400, "a name occurs twice in an object", param=exc.name) from None
    except ValueError:
        raise ApiError(400, "the body is not valid JSON in UTF-8") from None
    if _depth(found) > MAX_DEPTH:
        raise _too_deep()
    return repair_json(found)


class _DuplicateNameError(Exception):
    """An object has a name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name[:80]


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict[str, Json]()
    for name, value in pairs:
        if name in found:
            raise _DuplicateNameError(name)
        found[name] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _depth(value: Json) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        inside = [each for each in level if isinstance(each, dict | list)]
        if depth > MAX_DEPTH:
            return depth
        level = [
            below
            for each in inside
            for below in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


def _too_deep() -> ApiError:
    return ApiError(400, f"the body is nested deeper than {MAX_DEPTH} values")
