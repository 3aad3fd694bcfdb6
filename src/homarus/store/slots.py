"""Slots of cron jobs: one row for each time at which a job was due, was run, or was skipped.

A slot is claimed by inserting its row, in the transaction that accepts the turn or stores the
notice: a second claim of the same time of the same job raises ConflictError, whichever process
makes it, and so runs nothing. A claimed slot ends once:

    running → ok | error | skipped

What did not run at all is inserted as `skipped`, with the reason.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from homarus.core.errors import ConflictError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Usage

SlotState: TypeAlias = Literal["running", "ok", "error", "skipped"]
SlotTrigger: TypeAlias = Literal["schedule", "catch-up", "manual", "retry"]
SLOT_STATES: Final = get_args(SlotState)


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """One slot of a job, and what came of it.

    `slot_ms` is when the job was due; for a manual run, when it was requested. `run_id` is that of
    the turn's inbox record, "" if no turn was started. `reason` says why the slot failed or was
    skipped. A row that stands for several missed slots has their number in `count`, and the time of
    the last one in `until_ms`. `next_run_ms` is the next run that was planned at its end.
    """

    job: str
    slot_ms: int
    trigger: SlotTrigger = "schedule"
    state: SlotState = "running"
    reason: str = ""
    attempt: int = 1
    run_id: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    session_key: str = ""
    session_id: str = ""
    summary: str = ""
    model: str = ""
    provider: str = ""
    usage: Usage | None = None
    next_run_ms: int = 0
    count: int = 1
    until_ms: int = 0
    place: int = 0

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.state == "running"

    @property
    def duration_ms(self) -> int:
        """How long it took; 0 while it runs."""
        return max(0, self.ended_ms - self.started_ms) if self.ended_ms and self.started_ms else 0


def claimed_slot(record: SlotRecord) -> ConflictError:
    """Return the error of a claim of a slot that has a row."""
    return ConflictError(f"job {record.job} has a slot at {record.slot_ms} already")


def unclaimed_slot(record: SlotRecord) -> ConflictError:
    """Return the error of an end of a slot that is not running."""
    return ConflictError(f"job {record.job} has no running slot at {record.slot_ms}")


def encode_usage(usage: Usage) -> dict[str, Json]:
    """Return usage with the keys of OpenClaw's run log."""
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "total_tokens": usage.total,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
    }


def decode_usage(data: Mapping[str, Json]) -> Usage:
    """Return the usage that `encode_usage` wrote."""

    def number(key: str) -> int:
        value = data.get(key)
        return int(value) if isinstance(value, int | float) else 0

    return Usage(
        number("input_tokens"),
        number("output_tokens"),
        number("cache_read_tokens"),
        number("cache_write_tokens"),
    )
