"""Export transcripts as Markdown files, for a program that indexes files.

A file is `<sessionId>.md`, or `<sessionId>-topic-<topicId>.md`, in `<agent>/qmd/sessions/`: the
rendered transcript, written when it has grown enough. `exported.json` next to that folder records
the audience of each, and which files are ours to remove.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.memory.note_files import NoteContent, NoteFile, SkippedFile
from homarus.memory.spec import MemorySpec
from homarus.memory.transcripts import FOLDER, UNCLAIMED, TranscriptSource
from homarus.store.state_paths import make_private_dir, stat_stamp

_RECORD: Final = "exported.json"


class _Exported(BaseModel):
    """An exported file: its audience, and the version of the transcript it was made of."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    audience: str
    hash: str
    size: int
    mtime_ns: int


class _ExportRecord(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    folder: str = ""
    files: Mapping[str, _Exported] = {}


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The file names that an export wrote, removed and failed to write."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    failed: tuple[SkippedFile, ...] = ()


def exports_folder(spec: MemorySpec) -> Path:
    """Return the folder of the exports."""
    written = spec.settings.qmd.sessions.export_dir
    return spec.file(written) if written else spec.agent_folder / "qmd" / FOLDER


def export_sessions(spec: MemorySpec, now_ms: int | None = None) -> ExportResult:
    """Write new exports, and remove outdated ones. Raises StoreError if the folder is unusable."""
    folder, record = exports_folder(spec), _read_record(_record_file(spec))
    before = dict(record.files)
    if record.folder != str(folder):
        _remove(Path(record.folder), before)
        before = {}
    # The key of a session is known until it is reset.
    remembered = {f"{FOLDER}/{name}": one.audience for name, one in before.items()}
    notes = TranscriptSource(spec).notes(remembered, now_ms)
    try:
        make_private_dir(folder)
    except OSError as exc:
        raise StoreError(f"{folder} cannot be made: {exc.strerror}") from exc
    after: dict[str, _Exported] = {}
    written: list[str] = []
    failed: list[SkippedFile] = []
    for note in notes:
        name = note.path.removeprefix(f"{FOLDER}/")
        try:
            made = _export(note, folder / name, before.get(name))
        except OSError as exc:
            failed.append(SkippedFile(name, exc.strerror or "cannot be written"))
            made = before.get(name)
        if made:
            after[name] = made
            if before.get(name) is None or made.hash != before[name].hash:
                written.append(name)
    gone = {name: one for name, one in before.items() if name not in after}
    _write_record(spec, _ExportRecord(folder=str(folder), files=after), record)
    _remove(folder, gone)
    same = len(after) - len(written)
    return ExportResult(tuple(written), tuple(gone), same, tuple(failed))


def _export(note: NoteFile, file: Path, before: _Exported | None) -> _Exported | None:
    """Return the record after writing one; None when the transcript has no messages."""
    if note.made is None:
        return None
    if before and stat_stamp(file) and note.made.is_same(before.size, before.mtime_ns):
        return before.model_copy(update={"audience": note.audience})
    content = note.made.read()
    if not isinstance(content, NoteContent):
        return None
    if before is None or before.hash != content.hash or stat_stamp(file) is None:
        write_atomic(file, content.text.encode("utf-8", "replace"))
    return _Exported(
        audience=note.audience, hash=content.hash, size=content.size, mtime_ns=content.mtime_ns
    )


def audience_of_export(spec: MemorySpec, name: str) -> str:
    """Return the audience of a file; files that we did not write are private."""
    file = _record_file(spec)
    stamp = stat_stamp(file)
    record = _record_at(file, stamp.mtime_ns, stamp.inode) if stamp else _ExportRecord()
    if record.folder != str(exports_folder(spec)) or name not in record.files:
        return UNCLAIMED
    return record.files[name].audience


@lru_cache(16)
def _record_at(file: Path, _mtime_ns: int, _inode: int) -> _ExportRecord:
    return _read_record(file)


def _record_file(spec: MemorySpec) -> Path:
    return spec.agent_folder / "qmd" / _RECORD


def _read_record(file: Path) -> _ExportRecord:
    """Load the record; an unreadable one counts as empty, and everything is written again."""
    try:
        return _ExportRecord.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return _ExportRecord()


def _write_record(spec: MemorySpec, record: _ExportRecord, before: _ExportRecord) -> None:
    if record == before:
        return
    text = json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True)
    file = _record_file(spec)
    try:
        make_private_dir(file.parent)
        write_atomic(file, f"{text}\n".encode())
    except OSError as exc:
        raise StoreError(f"{file} cannot be written: {exc.strerror}") from exc


def _remove(folder: Path, files: Mapping[str, _Exported]) -> None:
    """Remove files by plain names only: the record could have been forged."""
    for name in files:
        if "/" not in name and name.endswith(".md"):
            with suppress(OSError):
                (folder / name).unlink()
