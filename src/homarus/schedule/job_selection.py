"""Select, sort and page jobs and runs as clients of 2026.9 ask for them. Pure."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from homarus.core.fast_dataclass import dataclass
from homarus.schedule.cron_answers import slot_run_id
from homarus.schedule.job import AgentTurnPayload, CronJob
from homarus.store.slots import SlotRecord

SortBy: TypeAlias = Literal["nextRunAtMs", "updatedAtMs", "name"]
SortDirection: TypeAlias = Literal["asc", "desc"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Which jobs; "" and None select all, and leave the order as it is."""

    query: str = ""
    is_enabled: bool | None = None
    kind: str = ""
    last_status: str = ""  # `unknown`: it has not run
    agent: str = ""
    sort_by: SortBy | None = None
    direction: SortDirection = "asc"


@dataclass(frozen=True, slots=True)
class RunSelection:
    """Which ended slots; empty fields select all."""

    statuses: frozenset[str] = frozenset()
    query: str = ""
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: `limit` entries after the first `offset`."""

    offset: int
    limit: int

    def cut(self, found: Sequence[T]) -> list[T]:
        """Return the entries of this page."""
        return list(found[self.offset : self.offset + self.limit])

    def describe(self, total: int) -> dict[str, Any]:
        """Return the fields of an answer that say which part of the list it has."""
        end = self.offset + self.limit
        has_more = end < total
        return {
            "total": total,
            "offset": self.offset,
            "limit": self.limit,
            "hasMore": has_more,
            "nextOffset": end if has_more else None,
        }


def select_jobs(
    jobs: Sequence[CronJob], selection: JobSelection, default_agent: str
) -> list[CronJob]:
    """Return the selected jobs. A job without an agent is one of the default agent."""
    found = [job for job in jobs if _is_selected(job, selection, default_agent)]
    if selection.sort_by is None:
        return found
    return sorted(found, key=_SORT_KEYS[selection.sort_by], reverse=selection.direction == "desc")


def _is_selected(job: CronJob, selection: JobSelection, default_agent: str) -> bool:
    return (
        selection.is_enabled in (None, job.enabled)
        and selection.kind in ("", job.kind)
        and selection.last_status in ("", job.state.last_status or "unknown")
        and selection.agent in ("", job.agent or default_agent)
        and (not selection.query or selection.query.casefold() in _text_of(job))
    )


def _text_of(job: CronJob) -> str:
    payload = job.payload
    text = payload.message if isinstance(payload, AgentTurnPayload) else payload.text
    return "\n".join((job.id, job.name, job.description, text)).casefold()


_NEVER = 2**63
_SORT_KEYS = {
    "nextRunAtMs": lambda job: job.state.next_run_at_ms or _NEVER,
    "updatedAtMs": lambda job: job.updated_at_ms,
    "name": lambda job: job.name.casefold(),
}


def select_runs(slots: Sequence[SlotRecord], selection: RunSelection) -> list[SlotRecord]:
    """Return the ended slots that are selected, in the same order."""
    wanted = selection.query.casefold()
    return [
        slot
        for slot in slots
        if not slot.is_running
        and (not selection.statuses or slot.state in selection.statuses)
        and (not selection.run_id or slot_run_id(slot) == selection.run_id)
        and (not wanted or wanted in f"{slot.summary}\n{slot.reason}".casefold())
    ]
