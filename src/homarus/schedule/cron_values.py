"""What the cron service returns: its status, the result of a manual run, internal jobs."""

from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

RunMode: TypeAlias = Literal["due", "force"]
NotRunReason: TypeAlias = Literal["", "not-due", "already-running"]


@dataclass(frozen=True, slots=True)
class CronStatus:
    """The state of the scheduler; `next_wake_at_ms` is 0 when no job is due at any time.

    `problem` says what is wrong with the file of jobs, "" for nothing.
    """

    enabled: bool
    store_path: str
    jobs: int
    next_wake_at_ms: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CronRunResult:
    """What a manual run did: it was started (`ran`), or `reason` says why not.

    `run_id` is the run of an isolated turn, "" for a system event.
    """

    ok: bool
    ran: bool
    reason: NotRunReason = ""
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class InternalJobStatus:
    """A job of the program itself, such as session maintenance. Times are 0 if there are none.

    `schedule` is text for people, as `every 1h`.
    """

    name: str
    description: str
    schedule: str
    last_run_at_ms: int = 0
    last_duration_ms: int = 0
    last_error: str = ""
    next_run_at_ms: int = 0
    is_running: bool = False
