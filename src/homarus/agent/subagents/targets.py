"""Which sub-agents a conversation lists, in which order, and which of them a word names.

Active ones come first, the newest first, then those that ended in the last minutes. The numbers of
that list are names for as long as nothing changes; labels, run ids and session keys always are.
"""

from collections.abc import Sequence
from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.store.subagents import SubagentRecord

DEFAULT_RECENT_MINUTES: Final = 30
MAX_RECENT_MINUTES: Final = 1440
ALL: Final = frozenset({"all", "*"})
_MINUTE_MS: Final = 60_000
_MIN_PREFIX_CHARS: Final = 4  # of an id; shorter ones would be matched by accident
_MARK: Final = ":subagent:"


@dataclass(frozen=True, slots=True)
class SubagentList:
    """The sub-agents of a conversation as they are numbered, and those that ended earlier."""

    active: tuple[SubagentRecord, ...]
    recent: tuple[SubagentRecord, ...]
    older: tuple[SubagentRecord, ...] = ()

    @property
    def numbered(self) -> tuple[SubagentRecord, ...]:
        """Those that have a number, from 1."""
        return (*self.active, *self.recent)


def arrange_subagents(
    records: Sequence[SubagentRecord], now_ms: int, recent_minutes: int = DEFAULT_RECENT_MINUTES
) -> SubagentList:
    """Return the records as they are listed."""
    newest = sorted(records, key=lambda one: (-one.created_ms, one.child_key))
    since_ms = now_ms - recent_minutes * _MINUTE_MS
    ended = [one for one in newest if not one.is_active]
    return SubagentList(
        tuple(one for one in newest if one.is_active),
        tuple(one for one in ended if one.ended_ms >= since_ms),
        tuple(one for one in ended if one.ended_ms < since_ms),
    )


def find_target(found: SubagentList, word: str) -> SubagentRecord:
    """Return the sub-agent that a word names. Raises UserError when none or several have it.

    A number is that of the list. Else an exact session key, run id or label counts, then the start
    of one.
    """
    name = word.strip()
    if not name:
        raise UserError("which sub-agent?", fix=_fix(found))
    if name.lstrip("#").isdecimal():
        number = int(name.lstrip("#"))
        if 1 <= number <= len(found.numbered):
            return found.numbered[number - 1]
        if name.startswith("#") or len(name) < _MIN_PREFIX_CHARS:
            raise UserError(f"there is no sub-agent number {number}", fix=_fix(found))
    every, lowered = (*found.numbered, *found.older), name.casefold()
    named = [one for one in every if lowered in _names(one)]
    if not named:
        named = [one for one in every if any(_starts(each, lowered) for each in _names(one))]
    if not named:
        raise UserError(f"there is no sub-agent {one_line(name, 80)!r}", fix=_fix(found))
    active = [one for one in named if one.is_active]
    if len(named) > 1 and len(active) != 1:
        shown = ", ".join(one.run_id[:8] for one in named[:5])
        raise UserError(
            f"{one_line(name, 80)!r} names {len(named)} sub-agents", fix=f"use a run id: {shown}"
        )
    return active[0] if len(named) > 1 else named[0]


def _names(record: SubagentRecord) -> tuple[str, ...]:
    """Return what names a sub-agent, in lower case: key, the id in the key, run id, label."""
    own_id = record.child_key.rpartition(_MARK)[2]
    names = (record.child_key, own_id, record.run_id, record.label)
    return tuple(name.casefold() for name in names if name)


def _starts(name: str, start: str) -> bool:
    return len(start) >= _MIN_PREFIX_CHARS and name.startswith(start)


def _fix(found: SubagentList) -> str:
    if not found.numbered and not found.older:
        return "this conversation has no sub-agents"
    return "use a number of /subagents list, a label, or the start of a run id or session key"
