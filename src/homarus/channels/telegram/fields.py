"""Read typed fields of JSON objects; a value of another type counts as missing.

Telegram's objects have some hundred fields of which we read forty. A class for each object would
cost more at start-up than the rest of the channel.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from homarus.core.message import Json
from homarus.core.text import repair_surrogates

MAX_TEXT_CHARS: Final = 65_536  # 16 times the longest text of Telegram
NOTHING: Final[Mapping[str, Json]] = {}


def get_object(of: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """Return a nested object; an empty one when it is missing."""
    found = of.get(name)
    return found if isinstance(found, dict) else NOTHING


def get_objects(of: Mapping[str, Json], name: str) -> Iterator[Mapping[str, Json]]:
    """Return the objects of a list."""
    found = of.get(name)
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict):
            yield one


def get_int(of: Mapping[str, Json], name: str) -> int:
    """Return an integer, 0 when it is missing: no id and no time of Telegram's is 0."""
    found = of.get(name)
    return found if type(found) is int and -(2**63) <= found < 2**63 else 0


def get_str(of: Mapping[str, Json], name: str) -> str:
    """Return a storable text: valid characters, no zero bytes, bounded."""
    found = of.get(name)
    return clean(found[:MAX_TEXT_CHARS]) if isinstance(found, str) else ""


def clean(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded, and remove zero bytes."""
    return repair_surrogates(text).replace("\0", "")


def get_bool(of: Mapping[str, Json], name: str) -> bool:
    """Return whether a field is present and true."""
    return of.get(name) is True


def slice_utf16(text: str, offset: int, length: int) -> str:
    """Slice a text by UTF-16 units, as Telegram counts."""
    if offset < 0 or length <= 0:
        return ""
    if text.isascii():
        return text[offset : offset + length]
    units = text.encode("utf-16-le", "surrogatepass")
    return units[2 * offset : 2 * (offset + length)].decode("utf-16-le", "replace")
