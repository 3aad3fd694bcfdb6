"""The `ask_user` tool: ask the person one question and wait for the answer, as an approval waits.

The question is an approval record of kind `question`: asked once per call, answered once, kept over
restarts. Neither the question nor its answer allows another call. Without choices and without free
text it is a notification: it is written to the current chat, and nothing waits.
"""

import hashlib
import json
from functools import partial
from typing import Annotated, Final

from pydantic import Field

from homarus.core.errors import ToolError
from homarus.core.message import NO_OUTBOX_CHANNELS, Extras, Text
from homarus.core.text import escape_invisible, one_line
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import LayerVerdict, ToolCallFacts
from homarus.tools.tool import PreparedCall, ToolContext, ToolOutput, tool

MIN_CHOICES: Final = 2
MAX_CHOICES: Final = 4  # as many as OpenClaw's clients show
_MAX_QUESTION_CHARS: Final = 1_000
_MAX_CHOICE_CHARS: Final = 80
_ASKS: Final = LayerVerdict("tool", "ask", "it is a question to a person")


@tool(
    group="ui",
    aliases=("ui_notify", "ui_prompt", "ui_confirm"),
    serial=True,
    idempotent=True,
    timeout_s=None,
)
async def ask_user(
    ctx: ToolContext,
    question: str,
    choices: Annotated[list[str] | None, Field(description="2 to 4 short answers")] = None,
    *,
    free_text: Annotated[
        bool, Field(validation_alias="freeText", description="Accept any text")
    ] = False,
) -> PreparedCall:
    """Ask your person one question and wait for the answer, if you cannot decide it.

    Without choices and freeText it notifies, and does not wait.
    """
    offered = _check_choices(choices or [])
    text = escape_invisible(question.strip())
    if not 1 <= len(text) <= _MAX_QUESTION_CHARS:
        raise ToolError(f"a question has 1 to {_MAX_QUESTION_CHARS} characters", fix="shorten it")
    if not offered and not free_text:
        facts = ToolCallFacts(ask_user.declaration)
        shown = ApprovalQuestion("ask_user", "May the agent notify you?", text, _digest(text))
        return PreparedCall(facts, shown, partial(_notify, ctx, text))
    answers = list[str]()
    asked = ApprovalQuestion(
        "ask_user",
        text,
        text,
        _digest(text, *offered, free_text),
        wire={"kind": "question", "choices": offered, "freeText": free_text},
        on_answer=answers.append,
    )

    async def answer() -> ToolOutput:
        given = answers[-1] if answers else ""
        if not given:
            raise ToolError("the question has no answer", fix="ask in your answer")
        return ToolOutput((Text(f"The person answered: {given}"),), {"answer": given})

    facts = ToolCallFacts(ask_user.declaration, own_verdict=_ASKS)
    return PreparedCall(facts, asked, answer)


def _check_choices(choices: list[str]) -> list[str]:
    """Return the choices as people see them. Raises ToolError."""
    shown = [one_line(escape_invisible(choice.strip()), _MAX_CHOICE_CHARS) for choice in choices]
    if choices and not MIN_CHOICES <= len(shown) <= MAX_CHOICES:
        raise ToolError(
            f"a question has {MIN_CHOICES} to {MAX_CHOICES} choices", fix="or none, with freeText"
        )
    if not all(shown) or len({choice.casefold() for choice in shown}) < len(shown):
        raise ToolError("two choices are the same, or one is empty", fix="make each one different")
    return shown


def _digest(*parts: str | bool) -> str:
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


async def _notify(ctx: ToolContext, text: str) -> ToolOutput:
    """Write the text to the current chat, once for one call."""
    here = ctx.here
    if ctx.messenger is None or here is None or here.channel in NO_OUTBOX_CHANNELS:
        raise ToolError("there is no chat to notify the person in", fix="say it in your answer")
    key = f"{ctx.run_id}:notify:{_digest(ctx.call_id, text)[:16]}"
    result = await ctx.messenger.send(here, text, Extras(), key)
    if result.state == "failed":
        raise ToolError(f"the notification could not be sent: {one_line(result.why, 200)}")
    return ToolOutput((Text("The person is notified."),), {"state": result.state})
