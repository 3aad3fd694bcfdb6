"""Sub-agents as clients and people see them: one row of a list, and its text. Pure.

The fields have the names that OpenClaw's `subagents` tool and files use.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from homarus.agent.subagents.targets import SubagentList
from homarus.agent.subagents.texts import format_count, format_runtime
from homarus.core.message import Json
from homarus.core.text import clip_middle, one_line
from homarus.store.subagents import SubagentRecord

_MAX_NAME_CHARS: Final = 72
_MAX_TASK_CHARS: Final = 4_000


def shown_status(record: SubagentRecord) -> str:
    """Return a status in words."""
    return record.status.replace("_", " ")


def runtime_ms(record: SubagentRecord, now_ms: int) -> int:
    """Return how long a sub-agent took, or has taken so far."""
    if record.is_active:
        return max(0, now_ms - (record.started_ms or record.created_ms))
    return record.runtime_ms


def subagent_row(record: SubagentRecord, now_ms: int, number: int | None = None) -> dict[str, Json]:
    """Return a sub-agent as a row; fields without a value are left out."""
    row: dict[str, Json] = {
        "index": number,
        "runId": record.run_id,
        "sessionKey": record.child_key,
        "requesterSessionKey": record.requester_key,
        "agentId": record.agent,
        "label": record.label,
        "task": clip_middle(record.task, _MAX_TASK_CHARS),
        "status": record.status,
        "error": record.error,
        "model": record.model,
        "spawnDepth": record.depth,
        "cleanup": record.cleanup,
        "runTimeoutSeconds": record.timeout_s,
        "sessionId": record.session_id,
        "createdAt": record.created_ms,
        "startedAt": record.started_ms,
        "endedAt": record.ended_ms,
        "archiveAtMs": record.archive_ms,
        "runtimeMs": runtime_ms(record, now_ms),
        "inputTokens": record.input_tokens,
        "outputTokens": record.output_tokens,
        "totalTokens": record.total_tokens,
        "costUsd": record.cost,
    }
    return {name: value for name, value in row.items() if value or name == "runtimeMs"}


def list_rows(found: SubagentList, now_ms: int) -> dict[str, Json]:
    """Return the rows of a list: `active` and `recent`, numbered from 1."""
    rows = [subagent_row(one, now_ms, number) for number, one in enumerate(found.numbered, 1)]
    count = len(found.active)
    return {"total": len(rows), "active": rows[:count], "recent": rows[count:]}


def format_list(found: SubagentList, now_ms: int, recent_minutes: int) -> str:
    """Return a list as text: the active sub-agents, and those that ended lately."""
    lines = [f"{number}. {_line(one, now_ms)}" for number, one in enumerate(found.numbered, 1)]
    count = len(found.active)
    return "\n".join(
        [
            "Active sub-agents:",
            *_or_none(lines[:count]),
            "",
            f"Ended in the last {recent_minutes} min:",
            *_or_none(lines[count:]),
        ]
    )


def format_info(record: SubagentRecord, now_ms: int, transcript: str) -> str:
    """Return everything that is known of a sub-agent as text."""
    fields = {
        "Status": shown_status(record) + (f": {record.error}" if record.error else ""),
        "Label": record.label,
        "Task": clip_middle(record.task, _MAX_TASK_CHARS),
        "Run": record.run_id,
        "Session": record.child_key,
        "Started by": record.requester_key,
        "Transcript": transcript,
        "Model": record.model,
        "Runtime": format_runtime(runtime_ms(record, now_ms)),
        "Tokens": _tokens(record),
        "Cost": f"${record.cost:.4f}" if record.cost else "",
        "Created": _moment(record.created_ms),
        "Ended": _moment(record.ended_ms),
        "Timeout": f"{record.timeout_s:g} s" if record.timeout_s else "none",
        "Cleanup": record.cleanup,
        "Archived": _moment(record.archive_ms),
    }
    return "\n".join(f"{name}: {value}" for name, value in fields.items() if value)


def shown_name(record: SubagentRecord) -> str:
    """Return the name of a sub-agent in one line."""
    return one_line(record.name, _MAX_NAME_CHARS)


def _line(record: SubagentRecord, now_ms: int) -> str:
    known = [record.model, format_runtime(runtime_ms(record, now_ms)), _tokens(record)]
    facts = ", ".join(part for part in known if part)
    return f"{shown_name(record)} ({facts}) {shown_status(record)} · run {record.run_id[:8]}"


def _tokens(record: SubagentRecord) -> str:
    count = record.input_tokens + record.output_tokens
    if not count:
        return ""
    given, made = format_count(record.input_tokens), format_count(record.output_tokens)
    return f"{format_count(count)} tokens (in {given} / out {made})"


def _or_none(lines: Iterable[str]) -> list[str]:
    return list(lines) or ["(none)"]


def _moment(at_ms: int) -> str:
    if not at_ms:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
