"""Read typed fields of Slack's JSON objects; a value of another type counts as missing."""

from collections.abc import Iterator, Mapping
from typing import Final

from homarus.core.message import Json
from homarus.core.text import repair_surrogates

MAX_TEXT_CHARS: Final = 65_536  # Slack cuts a message at 40,000
NOTHING: Final[Mapping[str, Json]] = {}


def as_object(value: Json) -> Mapping[str, Json]:
    """Return a value as an object; an empty one when it is none."""
    return value if isinstance(value, dict) else NOTHING


def get_object(of: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """Return a nested object; an empty one when it is missing."""
    return as_object(of.get(name))


def get_objects(of: Mapping[str, Json], name: str) -> Iterator[Mapping[str, Json]]:
    """Return the objects of a list."""
    found = of.get(name)
    return (one for one in (found if isinstance(found, list) else ()) if isinstance(one, dict))


def get_str(of: Mapping[str, Json], name: str) -> str:
    """Return a storable text: valid characters, no zero bytes, bounded."""
    found = of.get(name)
    if not isinstance(found, str):
        return ""
    return repair_surrogates(found[:MAX_TEXT_CHARS]).replace("\0", "")


def get_int(of: Mapping[str, Json], name: str) -> int:
    """Return an integer, 0 when it is missing."""
    found = of.get(name)
    return found if type(found) is int and -(2**63) <= found < 2**63 else 0


def get_bool(of: Mapping[str, Json], name: str) -> bool:
    """Return whether a field is present and true."""
    return of.get(name) is True
