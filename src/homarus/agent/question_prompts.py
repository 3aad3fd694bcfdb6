"""The texts of questions to a person: the prompt in a chat, and what became of a question."""

import re
from typing import Final

from homarus.core.text import one_line
from homarus.store.approvals import ApprovalRecord

_SHORT_ID_CHARS: Final = 8
_MAX_ANSWER_CHARS: Final = 300


def format_question(record: ApprovalRecord, *, time_left: str = "", outcome: str = "") -> str:
    """Return the prompt in markdown; with an outcome, as it is shown after that."""
    lines = [f"**Question {record.id[:_SHORT_ID_CHARS]}** of the agent: {question_text(record)}"]
    lines += [f"{number}. {_plain(choice)}" for number, choice in enumerate(record.choices, 1)]
    lines.append(outcome or _format_hint(record, time_left))
    return "\n".join(lines)


def format_question_outcome(record: ApprovalRecord) -> str:
    """Return what became of a question, in one line."""
    name = f"Question {record.id[:_SHORT_ID_CHARS]}"
    by = f" by {_plain(one_line(record.resolved_by))}" if record.resolved_by else ""
    match record.state:
        case "allowed":
            return f"{name} was answered{by}: {_plain(one_line(record.answer, _MAX_ANSWER_CHARS))}"
        case "denied":
            return f"{name} was dismissed{by}."
        case "expired":
            return f"{name} expired without an answer."
        case _:
            return f"{name} was withdrawn."


def question_text(record: ApprovalRecord) -> str:
    """Return the question without the effect of markdown."""
    return _plain(str(record.request.get("title") or ""))


def _format_hint(record: ApprovalRecord, time_left: str) -> str:
    if not record.choices:
        how = "Write the answer"
    elif record.takes_text:
        how = "Answer with a number, or write your own answer"
    else:
        how = "Answer with a number"
    return f"{how}. `/approve {record.id[:_SHORT_ID_CHARS]} deny` dismisses it; {time_left} left."


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>~|#])", r"\\\1", text)
