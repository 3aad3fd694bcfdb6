"""The program with a person, a fake who answers every question with its last choice."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from homarus.policy.approvals import ApprovalAnswer, ApprovalQuestion
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.docs.tool_stages.plain import make_context, open_program


class LastChoice:
    """Answers questions, and denies every call that needs approval."""

    async def request(self, call_id: str, question: ApprovalQuestion) -> ApprovalAnswer:
        """Choose the last answer that is offered."""
        choices = question.wire.get("choices")
        if question.on_answer is None or not isinstance(choices, list):
            return ApprovalAnswer("deny")
        question.on_answer(str(choices[-1]))
        return ApprovalAnswer("allow-once")


@asynccontextmanager
async def open_stage(
    workspace: Path,
) -> AsyncIterator[tuple[ToolRegistry, ToolContext, Mapping[str, str]]]:
    """Open the program with the tools of the main agent."""
    async with open_program(workspace) as app:
        context = replace(make_context(workspace), approvals=LastChoice())
        yield app.tools("main"), context, {}
