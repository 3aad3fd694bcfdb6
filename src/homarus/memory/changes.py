"""Find the notes that changed: by size and times, or by hash when those are inconclusive."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence

import apsw

from homarus.core.fast_dataclass import dataclass
from homarus.memory.note_files import NoteContent, NoteFile, SkippedFile, read_note
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
        self.notes = [one for one in found if isinstance(one, NoteFile)]
        self.skipped = [one for one in found if isinstance(one, SkippedFile)]
        current = {note.path for note in self.notes}
        self.removed = [path for path in known if path not in current]
        self.suspects = [note for note in self.notes if not _is_same(note, known.get(note.path))]

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


def _is_same(note: NoteFile, known: IndexedFile | None) -> bool:
    if known is None:
        return False
    if note.made:
        return note.made.is_same(known.size, known.mtime_ns) and _is_seen_alike(note, known)
    try:
        status = os.lstat(note.file)
    except OSError:
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
