"""Split text into the stems that the index uses, without stop words.

Stemming is SQLite's own (Porter), so that the two cannot disagree. Text in scripts without spaces
is split into pairs of characters.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

_STOP = """
a an the and or but if then than that this these those to of in on at for from by with about as
into through during before after above below up down out off over under again further once here
there all any both each few more most other some such no nor not only own same so too very can
will just should now is am are was were be been being have has had having do does did doing would
could may might must shall i me my mine we us our ours you your yours he him his she her hers it
its they them their theirs what which who whom whose when where why how s t don didn doesn isn
aren wasn weren hasn haven ll re ve d m
"""
STOP_WORDS: Final = frozenset(_STOP.split())

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

Stem = Callable[[str], list[str]]


@cache
def stemmer() -> Stem:
    """Return the function that stems a text with its stop words. Loads SQLite when called."""
    import apsw

    owner = apsw.Connection(":memory:")  # the tokenizer keeps it open
    cut = owner.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    flags = apsw.FTS5_TOKENIZE_DOCUMENT
    plain = {"include_offsets": False, "include_colocated": False}

    def stem(text: str) -> list[str]:
        found: Any = cut(text.encode("utf-8", "replace"), flags, None, **plain)
        return found if text.isascii() else list(_split_unspaced(found))

    return stem


def _split_unspaced(stems: list[str]) -> Iterator[str]:
    for stem in stems:
        at = 0
        for run in _UNSPACED.finditer(stem):
            if at < run.start():
                yield stem[at : run.start()]
            yield from _pairs(run[0])
            at = run.end()
        if at < len(stem):
            yield stem[at:]


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for at in range(len(run) - 1):
        yield run[at : at + 2]


@cache
def stop_stems() -> frozenset[str]:
    """Return the stop words in stemmed form."""
    stem = stemmer()
    return frozenset(part for word in STOP_WORDS for part in (word, *stem(word)))


def content_stems(text: str) -> list[str]:
    """Return the stems of a text in order, without stop words."""
    stop = stop_stems()
    return [stem for stem in stemmer()(text) if stem not in stop]
