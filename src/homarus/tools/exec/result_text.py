"""Format how a command ended, for the model. Pure."""

from typing import Final

from homarus.core.message import Json, Text
from homarus.core.text import one_line
from homarus.tools.exec.process_table import CommandJob
from homarus.tools.exec.run import CommandResult
from homarus.tools.tool import ToolOutput

_MAX_REFUSED: Final = 5
_MAX_HOSTS_CHARS: Final = 1_000


def format_result(result: CommandResult, folder: str) -> ToolOutput:
    """Return the result of a command that ended while its call waited for it."""
    output = result.output.rstrip("\n")
    note = "" if result.is_success else format_ending(result)
    network = format_refused_hosts(result)
    details: dict[str, Json] = {
        "status": "completed" if result.is_success else "failed",
        "exitCode": result.exit_code,
        "durationMs": result.duration_ms,
        "aggregated": output,
        "cwd": folder,
    }
    if result.accesses:
        details["network"] = format_hosts(result)
    text = "\n\n".join(part for part in (output, note, network) if part) or "(no output)"
    return ToolOutput((Text(text),), details, is_error=not result.is_success)


def format_running(job: CommandJob) -> ToolOutput:
    """Return the result of a call whose command goes on in the background."""
    tail = job.tail.rstrip("\n")
    note = (
        f"[The command still runs: session {job.id}, pid {job.running.pid}."
        " Use process (poll, log, write, kill …) with this sessionId.]"
    )
    details: dict[str, Json] = {
        "status": "running",
        "sessionId": job.id,
        "pid": job.running.pid,
        "startedAt": job.started_at_ms,
        "cwd": job.folder,
        "tail": tail,
    }
    return ToolOutput((Text("\n\n".join(part for part in (tail, note) if part)),), details)


def format_ending(result: CommandResult) -> str:
    """Return how a command ended, in one line."""
    if result.refusal:
        return f"[exec denied: {result.refusal}; nothing was run from there on.]"
    if result.limit_reason:
        return f"[The command was ended: {result.limit_reason}.]"
    if result.timed_out:
        return f"[The command was ended: it was not done after {result.timeout_s:g} s.]"
    if result.is_killed:
        return "[The command was killed.]"
    if result.exit_code is None:
        return "[The command ended its own supervisor; how it ended is not known.]"
    return f"[The command ended with exit code {result.exit_code}.]"


def format_refused_hosts(result: CommandResult) -> str:
    """Return which hosts the proxy of the sandbox refused, and why; "" if it refused none.

    Most programs report no more than the status of the refusal.
    """
    refused = [each for each in result.accesses if each.refusal]
    lines = [f"{each.place} {each.refusal}" for each in refused[:_MAX_REFUSED]]
    if len(refused) > _MAX_REFUSED:
        lines.append(f"{len(refused) - _MAX_REFUSED} more")
    return f"[Refused by the sandbox's proxy: {'; '.join(lines)}.]" if lines else ""


def format_hosts(result: CommandResult) -> str:
    """Return the hosts that a command requested of the sandbox's proxy, for the audit log."""
    places = (
        f"{'refused' if each.refusal else 'allowed'} {each.place}" for each in result.accesses
    )
    return one_line("; ".join(places), _MAX_HOSTS_CHARS)
