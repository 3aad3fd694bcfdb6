"""Questions of agents as clients of the gateway get and answer them, in OpenClaw's shapes.

A record of OpenClaw may have several questions; ours has one, whose id is `answer`.
"""

from collections.abc import Mapping
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

QUESTION_ID: Final = "answer"
_HEADER: Final = "Question"  # OpenClaw's have at most 12 characters


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """A question as a client shows it."""

    id: str
    text: str
    choices: tuple[str, ...]
    accepts_text: bool
    agent_id: str = ""
    session_key: str = ""


def encode_question(
    question_id: str, request: Mapping[str, Json], created_ms: int, expires_ms: int
) -> dict[str, Json]:
    """Return a question that waits; OpenClaw's clients accept no field without a value."""
    choices = request.get("choices")
    options: list[Json] = [{"label": each} for each in choices or ()]
    asked: dict[str, Json] = {
        "questionId": QUESTION_ID,
        "header": _HEADER,
        "question": request.get("title"),
        "options": options,
        "isOther": request.get("freeText") is True,
    }
    names = ("agentId", "sessionKey")
    return {
        "id": question_id,
        "questions": [asked],
        **{name: request[name] for name in names if request.get(name)},
        "createdAtMs": created_ms,
        "expiresAtMs": expires_ms,
        "status": "pending",
    }


def encode_answer(answer: str, *, is_expired: bool = False) -> dict[str, Json]:
    """Return an answer as results and events have it; "" is a question dismissed or expired."""
    if not answer:
        return {"status": "expired" if is_expired else "cancelled"}
    return {"status": "answered", "answers": {"answers": {QUESTION_ID: [answer]}}}


def make_resolve_params(question_id: str, answer: str) -> dict[str, Json]:
    """Return the parameters of `question.resolve`; without an answer it is dismissed."""
    if not answer:
        return {"id": question_id, "cancel": True}
    return {"id": question_id, "answers": {"answers": {QUESTION_ID: [answer]}}}


def parse_question(payload: Json) -> ShownQuestion | None:
    """Return the question of a record; None for anything else."""
    match payload:
        case {"id": str(question_id), "questions": [{"question": str(text), **asked}, *_]}:
            options = asked.get("options")
            labels = [
                each["label"]
                for each in (options if isinstance(options, list) else ())
                if isinstance(each, dict) and isinstance(each.get("label"), str)
            ]
            return ShownQuestion(
                question_id,
                text,
                tuple(labels),
                asked.get("isOther") is True,
                str(payload.get("agentId") or ""),
                str(payload.get("sessionKey") or ""),
            )
        case _:
            return None


def parse_question_list(result: Json) -> list[ShownQuestion]:
    """Return the questions of the result of `question.list`."""
    listed = result.get("questions") if isinstance(result, dict) else None
    found = [parse_question(each) for each in (listed if isinstance(listed, list) else ())]
    return [each for each in found if each]
