"""The commands that are running, and those that ended a short time ago, in memory.

A command belongs to the agent and the session that started it; no other session sees it. All of
them end with the program: by `stop`, or because their supervisors lose their connection to it.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.tools.exec.plan import ExecPlan
from homarus.tools.exec.run import CommandResult, RunningCommand

# Agent id and session key.
JobOwner: TypeAlias = tuple[str, str]

MAX_RUNNING = 64
MAX_RUNNING_OF_OWNER = 16
MAX_FINISHED = 64
MAX_PENDING_CHARS = 30_000
TAIL_CHARS = 2_000
MIN_CLEANUP_MS, MAX_CLEANUP_MS = 60_000, 10_800_000

_FIRST = (
    "amber brisk calm clear coral cosmic crisp deep dry eager early fair fast fresh gentle golden"
    " grand green keen light lucky mellow mild misty neat nimble plain quick quiet rapid sharp"
)
_SECOND = (
    "bay bird breeze brook canyon cedar cloud comet cove crab creek crest dune ember falcon fjord"
    " forest glade harbor heron island lagoon lake lobster meadow ocean otter reef ridge river"
)
_FIRST_WORDS: Final = tuple(_FIRST.split())
_SECOND_WORDS: Final = tuple(_SECOND.split())


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How long a finished command is listed, and whether its session is notified of the end."""

    cleanup_ms: int = 1_800_000
    notify_on_exit: bool = True
    notify_on_exit_empty_success: bool = False

    @property
    def cleanup_s(self) -> float:
        return min(max(self.cleanup_ms, MIN_CLEANUP_MS), MAX_CLEANUP_MS) / 1000


class CommandJob:
    """One command with its id; `is_background` when no call waits for its end.

    `is_input_approved`: a person who approved the command was told that the agent can type into it.
    `sandbox_level` is the measured level of the sandbox that it runs in, "" on this machine.
    """

    def __init__(
        self, job_id: str, owner: JobOwner, plan: ExecPlan, settings: JobSettings, now_ms: int
    ) -> None:
        self.id, self.owner, self.settings = job_id, owner, settings
        self.command, self.folder = plan.command, plan.folder.path
        self.started_at_ms, self.ended_at_ms = now_ms, 0
        self.call_id = self.sandbox_level = ""
        self.is_background = self.is_input_approved = False
        self.is_polled = False  # a poll waits now, or has returned the end
        self.running: RunningCommand
        self._pending = ""

    @property
    def result(self) -> CommandResult | None:
        """How it ended, None while it runs."""
        return self.running.result

    @property
    def status(self) -> str:
        if (result := self.result) is None:
            return "running"
        return "completed" if result.is_success else "failed"

    @property
    def tail(self) -> str:
        return self.running.output[-TAIL_CHARS:]

    def add_pending(self, text: str) -> None:
        """Add output that no poll has returned; the oldest is dropped beyond the limit."""
        self._pending = (self._pending + text)[-MAX_PENDING_CHARS:]

    def pop_pending(self) -> str:
        """Return the output since the last poll."""
        text, self._pending = self._pending, ""
        return text


class ProcessTable:
    """Starts commands in tasks of `group`, and finds them by owner and id.

    `notify` is called with a session key and a text when a command ends in the background.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        get_now_ms: Callable[[], int],
        notify: Callable[[str, str], None],
    ) -> None:
        self._group, self._get_now_ms, self._notify = group, get_now_ms, notify
        self._jobs: dict[str, CommandJob] = {}
        self.is_stopped = False

    def start(
        self,
        plan: ExecPlan,
        owner: JobOwner,
        settings: JobSettings | None = None,
        *,
        call_id: str = "",
        show: Callable[[str], None] = lambda _text: None,
    ) -> CommandJob:
        """Start a plan, which may be closed afterwards. Raises ToolError.

        `show` gets output only until the command is in the background: its call has ended then,
        and a progress event of a run that has ended would start that run again for clients.
        """
        self._check_room(owner)
        now_ms = self._get_now_ms()
        job = CommandJob(self._make_id(), owner, plan, settings or JobSettings(), now_ms)
        job.call_id = call_id

        def show_in_front(text: str) -> None:
            if not job.is_background:
                show(text)

        job.running = RunningCommand(
            plan,
            self._group,
            show=show_in_front,
            on_text=job.add_pending,
            on_end=lambda: self._on_end(job),
        )
        self._jobs[job.id] = job
        return job

    async def wait(self, job: CommandJob, timeout_s: float | None) -> CommandResult | None:
        """Wait for a command; None when it still runs after the time: it is in the background then.

        A cancelled wait ends the command. Without a time, and while the program ends, it is waited
        for until it ends.
        """
        try:
            result: CommandResult | None = None
            if timeout_s is not None and not self.is_stopped:
                result = await job.running.wait_for(timeout_s)
                if result is None and not self.is_stopped:
                    job.is_background = True
                    return None
            result = result or await job.running.wait()
        except asyncio.CancelledError:
            await self.end(job)
            raise
        finally:
            if not job.is_background:
                self._jobs.pop(job.id, None)
        return result

    def jobs(self, owner: JobOwner) -> list[CommandJob]:
        """Return the background commands of a session, the newest first."""
        found = [job for job in self._jobs.values() if job.owner == owner and job.is_background]
        return found[::-1]

    def find(self, owner: JobOwner, job_id: str) -> CommandJob | None:
        """Return a background command of a session."""
        job = self._jobs.get(job_id)
        return job if job and job.owner == owner and job.is_background else None

    async def poll(self, job: CommandJob, timeout_s: float = 0.0) -> str:
        """Return the output since the last poll; wait up to the time for the command's end."""
        job.is_polled = True
        try:
            if job.result is None and timeout_s > 0:
                await job.running.wait_for(timeout_s)
        finally:
            job.is_polled = job.result is not None
        return job.pop_pending()

    async def end(self, job: CommandJob) -> CommandResult:
        """Terminate a command, and return how it ended."""
        job.is_polled = True  # the caller is told
        return await job.running.end()

    def remove(self, job: CommandJob) -> None:
        """Forget a command that has ended; another one may have its id by now."""
        if self._jobs.get(job.id) is job:
            del self._jobs[job.id]

    def stop(self) -> None:
        """Terminate the background commands: the program ends. Later ones run in the foreground."""
        self.is_stopped = True
        for job in self._jobs.values():
            if job.is_background:
                job.is_polled = True
                job.running.terminate()

    def _check_room(self, owner: JobOwner) -> None:
        running = [job for job in self._jobs.values() if job.result is None]
        of_owner = sum(job.owner == owner for job in running)
        if len(running) >= MAX_RUNNING or of_owner >= MAX_RUNNING_OF_OWNER:
            raise ToolError(
                f"{of_owner} commands of this conversation and {len(running)} in all are running",
                fix="end one with the process tool",
            )

    def _make_id(self) -> str:
        for _ in range(50):
            job_id = f"{secrets.choice(_FIRST_WORDS)}-{secrets.choice(_SECOND_WORDS)}"
            if job_id not in self._jobs:
                return job_id
        return f"job-{secrets.token_hex(4)}"

    def _on_end(self, job: CommandJob) -> None:
        """Record the end of a command, and notify its session if no call returns it."""
        job.ended_at_ms = self._get_now_ms()
        result = job.result
        if not job.is_background or result is None:
            return
        with suppress(RuntimeError):  # the loop is closed: there is nothing to clean up
            loop = asyncio.get_running_loop()
            loop.call_later(job.settings.cleanup_s, self.remove, job)
        finished = [each for each in self._jobs.values() if each.result is not None]
        for each in sorted(finished, key=lambda each: each.ended_at_ms)[:-MAX_FINISHED]:
            self.remove(each)
        is_empty_success = result.is_success and job.running.total_chars == 0
        wants = job.settings.notify_on_exit and (
            not is_empty_success or job.settings.notify_on_exit_empty_success
        )
        if wants and not job.is_polled:
            self._notify(job.owner[1], format_end_notice(job, result))


def format_end_notice(job: CommandJob, result: CommandResult) -> str:
    """Return the notice about the end of a command; its output is not in it: it is untrusted."""
    code = "timeout" if result.timed_out else "unknown" if result.exit_code is None else ""
    ending = code or f"code {result.exit_code}"
    where = f"gateway id={job.call_id or job.id}, session={job.id}, {ending}"
    return f"Exec finished ({where}). The process tool has its output."
