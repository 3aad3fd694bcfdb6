"""The texts of sub-agents: the task as a child reads it, and the announcement of its end. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from homarus.core.silent_reply import SILENT_WORD, SKIP_WORD
from homarus.core.text import clip_middle, one_line
from homarus.core.untrusted import wrap_untrusted
from homarus.policy.tool_call import TaintSource
from homarus.store.subagents import KIND, SubagentRecord, SubagentStatus

MAX_RESULT_CHARS: Final = 24_000
NO_OUTPUT: Final = "(no output)"
_MAX_NAME_CHARS: Final = 120
_MAX_SOURCES: Final = 3
_OUTCOMES: Final[Mapping[SubagentStatus, str]] = {
    "done": "finished",
    "failed": "failed",
    "timed_out": "ran out of time, and was stopped before it finished",
    "interrupted": "was interrupted before it finished",
    "killed": "was stopped by a person before it finished",
    "unknown": "ended, and its outcome is not known",
}


def task_text(record: SubagentRecord, max_depth: int) -> str:
    """Return the first message of a sub-agent."""
    return (
        f"[Subagent Context] You are a sub-agent (depth {record.depth}/{max_depth}). What you write"
        " last is your result: it goes to the agent that started you, not to a person."
        f"\n\n[Subagent Task] {record.task}"
    )


def context_text(record: SubagentRecord, *, may_spawn: bool) -> str:
    """Return the section about a sub-agent's situation, for its system prompt."""
    requester = one_line(record.requester_key, 200)
    lines = [
        f"Another session ({requester}) started you for one task. Do that task alone, then stop.",
        "Only your last message is reported: say what you found or did, and what is missing.",
        "No person reads this session: ask no questions; write to people only if the task says so.",
    ]
    if record.label:
        lines.append(f"Label: {one_line(record.label, _MAX_NAME_CHARS)}")
    if may_spawn:
        lines.append(
            "You may start sub-agents of your own. Their results come to you as messages; end your"
            " turn to wait for them, and report when you have all."
        )
    return "\n".join(lines)


def announcement_text(
    record: SubagentRecord, taint: Sequence[TaintSource], transcript: str, *, more: int
) -> str:
    """Return what the parent's model reads when a sub-agent has ended.

    The result of a child that has read untrusted content is wrapped as untrusted. `more` is how
    many other sub-agents of the parent still work.
    """
    name = one_line(record.name, _MAX_NAME_CHARS)
    reason = f": {one_line(record.error, 300)}" if record.error else ""
    head = f"[System Message] [sessionId: {record.session_id}]"
    parts = [f"{head} The sub-agent “{name}” {_OUTCOMES[record.status]}{reason}."]
    if record.status == "done":
        parts.append(f"Result:\n{_shown_result(record, taint)}")
    else:
        parts.append("It has no result: do not report its task as done.")
    parts.append(f"{stats_line(record)}\nSession: {record.child_key}\nTranscript: {transcript}")
    if more:
        parts.append(f"{more} more of your sub-agents still work; their results come later.")
    parts.append(
        "If your person waits for this, tell them what matters of it in your own words, without"
        " these details. If there is nothing to tell, or you told it already, your whole answer is"
        f" {SILENT_WORD} (or {SKIP_WORD})."
    )
    return "\n\n".join(parts)


def _shown_result(record: SubagentRecord, taint: Sequence[TaintSource]) -> str:
    result = clip_middle(record.result, MAX_RESULT_CHARS) or NO_OUTPUT
    if not taint:
        return result
    sources = ", ".join(f"{one.kind} {one.origin}".strip() for one in taint[:_MAX_SOURCES])
    return wrap_untrusted(result, KIND, sources)


def stats_line(record: SubagentRecord) -> str:
    """Return runtime, tokens and cost: `Stats: runtime 1m5s • tokens 1.2k (in 1.0k / out 200)`."""
    parts = [f"runtime {format_runtime(record.runtime_ms)}"]
    tokens = record.input_tokens + record.output_tokens
    if tokens:
        parts.append(
            f"tokens {format_count(tokens)} (in {format_count(record.input_tokens)} / out"
            f" {format_count(record.output_tokens)})"
        )
    if record.total_tokens > tokens:
        parts.append(f"prompt/cache {format_count(record.total_tokens)}")
    if record.cost:
        parts.append(f"cost ${record.cost:.4f}")
    return f"Stats: {' • '.join(parts)}"


def format_runtime(ms: int) -> str:
    """Return a duration as people read it: `45s`, `1m5s`, `2h3m`."""
    seconds = round(ms / 1000)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if minutes else f"{hours}h"


def format_count(number: int) -> str:
    """Return a count as people read it: `200`, `1.2k`, `3.4m`."""
    if number < 1_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.1f}m"
