"""Daily notes: `memory/YYYY-MM-DD.md`, one file a day.

A new session starts with the notes of today and yesterday, within a budget; later they are found
by memory search.
"""

from datetime import date, timedelta
from pathlib import Path
from typing import Final

from homarus.agent.prompt.injection import is_private, session_kind
from homarus.agent.prompt.workspace_files import read_text

NOTES_CHARS: Final = 4_000
_NEWEST_SHARE = 0.6  # of the budget, when there are older notes


def opening_notes(workspace: Path, key: str, today: date, max_chars: int = NOTES_CHARS) -> str:
    """Return the notes of the last two days for a new private session, else "".

    A person's chat has notes of its own as well. The newest lines are kept when there are too many.
    """
    if not is_private(session_kind(key)):
        return ""
    from homarus.memory.view import PRIVATE, audience_of, day_note  # only for a new session

    days = [(today - timedelta(days=back)).isoformat() for back in (1, 0)]
    audiences = dict.fromkeys((PRIVATE, audience_of(key)))
    names = [day_note(day, audience) for day in days for audience in audiences]
    notes = [note for name in names if (note := _note(workspace, name))]
    parts, left = list[str](), max_chars
    while notes:
        newest, older = notes.pop(), sum(map(len, notes))
        max_part_chars = left if not older else max(int(left * _NEWEST_SHARE), left - older)
        parts.insert(0, _tail(newest, max_part_chars))
        left -= len(parts[0])
    return "\n\n".join(part for part in parts if part)


def _note(workspace: Path, name: str) -> str:
    if _is_missing(workspace / name):
        return ""
    text, _ = read_text(workspace, name)
    return f"{name}:\n{text}" if text else ""


def _tail(text: str, max_chars: int) -> str:
    """Return the end of a note from the start of a line, under its name."""
    if len(text) <= max_chars:
        return text
    name, _, lines = text.partition("\n")
    mark = f"{name}\n[… earlier lines left out …]\n"
    left_chars = max_chars - len(mark)
    if left_chars <= 0:
        return ""
    tail = lines[-left_chars:]
    return mark + (tail.partition("\n")[2] or tail)


def _is_missing(path: Path) -> bool:
    """Whether there is certainly no file; a permission error is left to `read_text`."""
    try:
        path.lstat()
    except OSError as exc:
        return not isinstance(exc, PermissionError)
    return False
