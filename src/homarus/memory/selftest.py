"""Whether an index finds what it was made of: words of a note are looked for, and must be there.

A search that finds nothing looks like a memory that holds nothing. So after an index was made,
it is asked for what stands in the newest of its notes.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from homarus.memory.base import Ask
from homarus.memory.library import Memory
from homarus.memory.source import Content, Note, Skipped, read_note
from homarus.memory.words import content_stems

_WORD = re.compile(r"\w{3,40}")
_LONGEST = 12  # longer ones are rarely words
_TRIES: Final = 3
_NOTES: Final = 5
_LOOKED_AT: Final = 20_000  # characters
_ASK = Ask(max_results=50, min_score=0.0)  # what has a word of many lines is not always first


def newest(found: Iterable[Note | Skipped], paths: Iterable[str] | None = None) -> list[Note]:
    """The notes that were written last, the newest first; of `paths` alone, when they are given."""
    wanted = None if paths is None else frozenset(paths)
    notes = (one for one in found if isinstance(one, Note))
    dated = [(_written_ns(one), one) for one in notes if wanted is None or one.path in wanted]
    dated.sort(key=lambda pair: pair[0], reverse=True)
    return [one for _, one in dated[:_NOTES]]


def check(memory: Memory, notes: Iterable[Note]) -> str | None:
    """The name of a note that is not found by its own words; empty when one was found.

    None when there is nothing to look for.
    """
    for note in notes:
        content = read_note(note)
        if isinstance(content, Skipped):
            continue
        words = list(pick_words(content.text))
        if not words:
            continue
        if any(_finds(memory, word) for word in words):
            return ""
        return note.path if _is_still(note, content) else None
    return None


def pick_words(text: str) -> Iterator[str]:
    """A few words that say something, the most telling first."""
    seen = dict.fromkeys(word.casefold() for word in _WORD.findall(text[:_LOOKED_AT]))
    told = sorted(seen, key=lambda word: (len(word) <= _LONGEST, len(word)), reverse=True)
    for number, word in enumerate(word for word in told if content_stems(word)):
        if number == _TRIES:
            return
        yield word


def _finds(memory: Memory, word: str) -> bool:
    """Whether one of the first results has the word, in whatever form."""
    wanted = set(content_stems(word))
    return any(wanted.intersection(content_stems(one.snippet)) for one in memory.search(word, _ASK))


def _is_still(note: Note, content: Content) -> bool:
    """Whether the file is as it was: one that is being written is no proof."""
    again = read_note(note)
    return isinstance(again, Content) and again.hash == content.hash


def _written_ns(note: Note) -> int:
    try:
        return note.file.lstat().st_mtime_ns
    except OSError:
        return 0
