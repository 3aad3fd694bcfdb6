"""Words that are related in everyday language: `pet` and `dog`, `invoice` and `bill`.

A question seldom uses the very word of the answer. The groups are in `related_words.txt`, which is
read at the first use; they cover what people note about their lives and their work, in English.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

from homarus.memory.stems import stemmer, stop_stems


@cache
def related_by_stem() -> Mapping[str, frozenset[str]]:
    """Return for each stem the stems related to it, without the stem itself."""
    stem, stop = stemmer(), stop_stems()
    related: dict[str, set[str]] = {}
    for group in _groups():
        stems = {*stem(group)} - stop
        for one in stems:
            related.setdefault(one, set()).update(stems)
    return {one: frozenset(stems - {one}) for one, stems in related.items()}


def related_stems(stem: str) -> frozenset[str]:
    """Return the stems related to a stem; empty for most."""
    return related_by_stem().get(stem, frozenset())


def _groups() -> Iterator[str]:
    text = files("homarus.memory").joinpath("related_words.txt").read_text("utf-8")
    return (line for line in text.splitlines() if line and not line.startswith("#"))
