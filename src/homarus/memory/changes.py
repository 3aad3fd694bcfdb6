"""Find the notes that changed: by size and times, or by hash when those are inconclusive."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence

import apsw

from homarus.core.fast_dataclass import dataclass
from homarus.memory.note_files import HARD_LINK, NoteContent, NoteFile, SkippedFile, read_note
from homarus.store.query import select

_RECENT_NS = 2_000_000_000  # a newer file may change again within its timestamp


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """What the index stores about a file, to detect changes."""

    hash: str
    size: int
    mtime_ns: int
    ctime_ns: int
    checked_ns: int
    owner: str
    audience: str


@dataclass(frozen=True, slots=True)
class ChangedNote:
    """A note whose text is not in the index."""

    note: NoteFile
    content: NoteContent
    checked_ns: int


@dataclass(frozen=True, slots=True)
class TouchedFile:
    """A file whose times changed but not its bytes."""

    path: str
    mtime_ns: int
    ctime_ns: int
    checked_ns: int


def read_known(db: apsw.Connection) -> dict[str, IndexedFile]:
    """Return every note of the index by its path."""
    rows = select(
        db,
        "SELECT path, hash, size, mtime_ns, ctime_ns, looked_ns, owner, audience"
        " FROM notes JOIN files USING (path)",
    )
    return {str(path): IndexedFile(*rest) for path, *rest in rows}


class ChangeScan:
    """The difference between files and index; only files that may have changed are read."""

    def __init__(
        self, known: Mapping[str, IndexedFile], found: Sequence[NoteFile | SkippedFile]
    ) -> None:
        self._known = known
        self.notes, self.suspects = list[NoteFile](), list[NoteFile]()
        self.skipped = [one for one in found if isinstance(one, SkippedFile)]
        for note in found:
            if isinstance(note, SkippedFile):
                continue
            status = _status(note)
            if status and status.st_nlink > 1:
                self.skipped.append(SkippedFile(note.path, HARD_LINK))
                continue
            self.notes.append(note)
            if not _is_same(note, known.get(note.path), status):
                self.suspects.append(note)
        current = {note.path for note in self.notes}
        self.removed = [path for path in known if path not in current]

    def read(self, note: NoteFile) -> ChangedNote | TouchedFile | SkippedFile:
        """Read one of the suspects as it is now."""
        checked_ns = time.time_ns()
        content = read_note(note)
        if isinstance(content, SkippedFile):
            return content
        known = self._known.get(note.path)
        if known and content.hash == known.hash and _is_seen_alike(note, known):
            return TouchedFile(note.path, content.mtime_ns, content.ctime_ns, checked_ns)
        return ChangedNote(note, content, checked_ns)

    def changed(self) -> Iterator[ChangedNote]:
        """Yield the suspects that are notes with other text than in the index."""
        for note in self.suspects:
            found = self.read(note)
            if isinstance(found, ChangedNote):
                yield found


def _status(note: NoteFile) -> os.stat_result | None:
    """Return the status of a note's file; None when it is missing or the note is derived."""
    try:
        return None if note.made else os.lstat(note.file)
    except OSError:
        return None


def _is_same(note: NoteFile, known: IndexedFile | None, status: os.stat_result | None) -> bool:
    if known is None:
        return False
    if note.made:
        return note.made.is_same(known.size, known.mtime_ns) and _is_seen_alike(note, known)
    if status is None:
        return False
    return (
        status.st_mtime_ns == known.mtime_ns
        and status.st_size == known.size
        and status.st_ctime_ns == known.ctime_ns
        and known.checked_ns - known.mtime_ns > _RECENT_NS
        and _is_seen_alike(note, known)
    )


def _is_seen_alike(note: NoteFile, known: IndexedFile) -> bool:
    return (note.owner, note.audience) == (known.owner, known.audience)
