"""Check that an index finds what it was made of, by searching for words of a note.

A search that finds nothing looks like an empty memory. Therefore an index is searched for words of
its newest notes after it was made.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from homarus.memory.base import SearchOptions
from homarus.memory.note_files import NoteContent, NoteFile, SkippedFile, read_note
from homarus.memory.note_search import NoteSearch
from homarus.memory.stems import content_stems

_WORD = re.compile(r"\w{3,40}")
_LONGEST = 12  # chars; longer ones are rarely words
_TRIES: Final = 3
_NOTES: Final = 5
_LOOKED_AT: Final = 20_000  # chars
_ASK = SearchOptions(max_results=50, min_score=0.0)  # a line with a common word may rank low


def newest_notes(
    found: Iterable[NoteFile | SkippedFile], paths: Iterable[str] | None = None
) -> list[NoteFile]:
    """Return the notes modified last, the newest first; only those in `paths`, if given."""
    wanted = None if paths is None else frozenset(paths)
    notes = (one for one in found if isinstance(one, NoteFile))
    dated = [(_written_ns(one), one) for one in notes if wanted is None or one.path in wanted]
    dated.sort(key=lambda pair: pair[0], reverse=True)
    return [one for _, one in dated[:_NOTES]]


def find_missing_note(memory: NoteSearch, notes: Iterable[NoteFile]) -> str | None:
    """Return the path of a note that is not found by its own words; empty if one was found.

    Returns None when there is nothing to search for.
    """
    for note in notes:
        content = read_note(note)
        if isinstance(content, SkippedFile):
            continue
        words = list(pick_words(content.text))
        if not words:
            continue
        if any(_finds(memory, word) for word in words):
            return ""
        return note.path if _is_still(note, content) else None
    return None


def pick_words(text: str) -> Iterator[str]:
    """Yield a few content words, the most specific first."""
    seen = dict.fromkeys(word.casefold() for word in _WORD.findall(text[:_LOOKED_AT]))
    told = sorted(seen, key=lambda word: (len(word) <= _LONGEST, len(word)), reverse=True)
    for number, word in enumerate(word for word in told if content_stems(word)):
        if number == _TRIES:
            return
        yield word


def _finds(memory: NoteSearch, word: str) -> bool:
    """Return whether one of the first results contains the word in any form."""
    wanted = set(content_stems(word))
    return any(wanted.intersection(content_stems(one.snippet)) for one in memory.search(word, _ASK))


def _is_still(note: NoteFile, content: NoteContent) -> bool:
    """Return whether the file is unchanged: a file that is being written proves nothing."""
    again = read_note(note)
    return isinstance(again, NoteContent) and again.hash == content.hash


def _written_ns(note: NoteFile) -> int:
    try:
        return note.file.lstat().st_mtime_ns
    except OSError:
        return 0
