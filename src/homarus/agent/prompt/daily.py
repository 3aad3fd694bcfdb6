"""Daily notes: `memory/YYYY-MM-DD.md`, one file a day, made with the day's first entry.

A new conversation begins with those of today and yesterday, once, under a budget; afterwards they
are there to be searched.
"""

from datetime import date, timedelta
from pathlib import Path
from typing import Final

from homarus.agent.prompt.files import read_text
from homarus.agent.prompt.injection import is_private, kind_of
from homarus.core.errors import ToolError, UserError
from homarus.tools.guard import Beneath

NOTES_CHARS: Final = 4_000
_TODAY_SHARE = 0.6
_MAX_BYTES = 1_000_000
_TRIES = 5


def note_name(day: date) -> str:
    """The file of a day, from the workspace."""
    return f"memory/{day.isoformat()}.md"


def add_entry(workspace: Path, day: date, entry: str) -> str:
    """Append to a day's note, which is made when it is not there; the file's name.

    What somebody else writes at the same time is kept.
    """
    name, words = note_name(day), entry.strip()
    folder = Beneath(workspace)
    for attempt in range(1, _TRIES + 1):
        try:
            _append(folder, name, day, words)
        except ToolError as exc:
            if attempt == _TRIES:
                raise UserError(f"{name} could not be written: {exc}", fix=exc.fix) from None
        else:
            break
    return name


def _append(folder: Beneath, name: str, day: date, words: str) -> None:
    try:
        folder.stat(name)
    except ToolError:
        folder.write_atomic(name, f"# {day.isoformat()}\n\n{words}\n".encode())
        return
    with folder.open_read(name) as opened:
        before = opened.file.read(_MAX_BYTES + 1)
        if len(before) > _MAX_BYTES:
            raise UserError(f"{name} is full: {_MAX_BYTES} bytes", fix="move some of it elsewhere")
        gap = b"" if before.endswith(b"\n") or not before else b"\n"
        folder.write_atomic(name, before + gap + words.encode() + b"\n", seen=opened.stat)


def opening_notes(workspace: Path, key: str, today: date, max_chars: int = NOTES_CHARS) -> str:
    """What a new conversation begins with: the last two days' notes, if it is a private one.

    The newest lines are kept when they are too many.
    """
    if not is_private(kind_of(key)):
        return ""
    older = _note(workspace, today - timedelta(days=1))
    newer = _note(workspace, today)
    most = max_chars if not older else max(int(max_chars * _TODAY_SHARE), max_chars - len(older))
    newer = _tail(newer, most)
    older = _tail(older, max_chars - len(newer))
    return "\n\n".join(part for part in (older, newer) if part)


def _note(workspace: Path, day: date) -> str:
    name = note_name(day)
    if _is_missing(workspace / name):
        return ""
    text, _ = read_text(workspace, name)
    return f"{name}:\n{text}" if text else ""


def _tail(text: str, max_chars: int) -> str:
    """The end of a note, from the start of a line, under its name."""
    if len(text) <= max_chars:
        return text
    name, _, lines = text.partition("\n")
    mark = f"{name}\n[… earlier lines left out …]\n"
    room = max_chars - len(mark)
    if room <= 0:
        return ""
    kept = lines[-room:]
    return mark + (kept.partition("\n")[2] or kept)


def _is_missing(path: Path) -> bool:
    """Whether there is surely nothing; who may not look is told so by `read_text`."""
    try:
        path.lstat()
    except OSError as exc:
        return not isinstance(exc, PermissionError)
    return False
