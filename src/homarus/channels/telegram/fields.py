"""JSON objects read with types: what has another type than it should is not there.

Telegram's objects have some hundred fields of which we read forty. A class for each object costs
a start more than all of this channel may, so they stay what they are and are read by these.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from homarus.core.message import Json

MAX_TEXT_CHARS: Final = 65_536  # Telegram sends a sixteenth of it at the most
NOTHING: Final[Mapping[str, Json]] = {}


def part(of: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """An object in an object; an empty one when there is none."""
    found = of.get(name)
    return found if isinstance(found, dict) else NOTHING


def parts(of: Mapping[str, Json], name: str) -> Iterator[Mapping[str, Json]]:
    """The objects of a list."""
    found = of.get(name)
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict):
            yield one


def number(of: Mapping[str, Json], name: str) -> int:
    """A whole number, 0 when there is none: no id and no time of Telegram's is 0."""
    found = of.get(name)
    return found if type(found) is int and -(2**63) <= found < 2**63 else 0


def text(of: Mapping[str, Json], name: str) -> str:
    """Words that can be kept: whole characters, no zero bytes, and not without end."""
    found = of.get(name)
    return clean(found[:MAX_TEXT_CHARS]) if isinstance(found, str) else ""


def clean(words: str) -> str:
    """Without halves of characters, which no encoding takes, and zero bytes, which no database."""
    if not words.isascii():
        words = words.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return words.replace("\0", "")


def flag(of: Mapping[str, Json], name: str) -> bool:
    """Whether it is said, and true."""
    return of.get(name) is True


def cut(words: str, offset: int, length: int) -> str:
    """A piece of a text by UTF-16 units, as Telegram counts."""
    if offset < 0 or length <= 0:
        return ""
    if words.isascii():
        return words[offset : offset + length]
    units = words.encode("utf-16-le", "surrogatepass")
    return units[2 * offset : 2 * (offset + length)].decode("utf-16-le", "replace")
