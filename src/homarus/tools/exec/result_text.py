"""Format how a command ended, for the model. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from homarus.core.message import Json, Text
from homarus.core.text import one_line
from homarus.policy.tool_call import TaintSource
from homarus.tools.exec.process_table import CommandJob
from homarus.tools.exec.run import CommandResult
from homarus.tools.tool import ToolOutput

if TYPE_CHECKING:  # with the first command that has a network
    from homarus.net.allow_proxy import ProxyAccess

_MAX_REFUSED: Final = 5
_MAX_HOSTS_CHARS: Final = 1_000
_MAX_ORIGIN_CHARS: Final = 200


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
    source = network_taint(result.accesses)
    return ToolOutput((Text(text),), details, is_error=not result.is_success, untrusted=source)


def network_taint(accesses: "Sequence[ProxyAccess]") -> TaintSource | None:
    """Return the hosts that a sandboxed command has reached: its output may be theirs."""
    hosts = dict.fromkeys(each.place for each in accesses if not each.refusal)
    return TaintSource("web", one_line(", ".join(hosts), _MAX_ORIGIN_CHARS)) if hosts else None


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
    text = "\n\n".join(part for part in (tail, note) if part)
    return ToolOutput((Text(text),), details, untrusted=network_taint(job.running.accesses))


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
