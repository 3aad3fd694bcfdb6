"""List the notes of a workspace, for a timeline. Nothing of their text is read."""

from pathlib import Path

from homarus.core.message import Json
from homarus.memory.note_files import NoteFile, SkippedFile, find_notes
from homarus.memory.serialize import skipped_json
from homarus.memory.time_expressions import day_in


def list_notes(workspace: Path, limit: int) -> dict[str, Json]:
    """Return the notes: those about a day first, the newest first; and the skipped files."""
    found = find_notes(workspace)
    rows = [row for one in found if isinstance(one, NoteFile) and (row := _note_json(one))]
    rows.sort(key=lambda row: str(row["path"]))
    rows.sort(key=lambda row: str(row["day"] or ""), reverse=True)
    skipped = [skipped_json(one) for one in found if isinstance(one, SkippedFile)]
    return {"notes": rows[:limit], "total": len(rows), "skipped": skipped[:limit]}


def _note_json(note: NoteFile) -> dict[str, Json] | None:
    """Return a note as a row; None for one that is gone by now."""
    try:
        status = note.file.stat()
    except OSError:
        return None
    day = note.day or day_in(note.path)
    return {
        "path": note.path,
        "day": str(day) if day else None,
        "size": status.st_size,
        "updatedAtMs": status.st_mtime_ns // 1_000_000,
        "audience": note.audience,
    }
