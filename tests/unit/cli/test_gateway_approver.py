"""Questions of agents at a terminal that is a client of a gateway."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from homarus.cli.approval_prompt import ApprovalPrompt
from homarus.cli.gateway_approver import GatewayApprover
from homarus.core.message import Json
from homarus.gateway.question_payloads import encode_question
from tests.waiting import until

KEY = "agent:main:main"


class FakePrompt:
    """A person who gives one answer, or none while `is_silent`."""

    def __init__(self, answer: str | None, *, is_silent: bool = False) -> None:
        self.answer, self.is_silent, self.seen = answer, is_silent, list[tuple[Any, ...]]()

    async def choose(self, title: str, choices: Sequence[str], *, takes_text: bool) -> str | None:
        self.seen.append((title, tuple(choices), takes_text))
        if self.is_silent:
            await asyncio.Event().wait()
        return self.answer


class FakeGateway:
    """Records the calls; `question.list` returns the given questions."""

    def __init__(self, *questions: Json) -> None:
        self.questions, self.calls = list(questions), list[tuple[str, Mapping[str, Json]]]()

    async def call(self, method: str, params: Mapping[str, Json]) -> Json:
        self.calls.append((method, params))
        return {"questions": self.questions} if method == "question.list" else []

    @property
    def resolved(self) -> list[Mapping[str, Json]]:
        return [params for method, params in self.calls if method == "question.resolve"]


def question(name: str = "q1", key: str = KEY, *, free_text: bool = False) -> dict[str, Json]:
    request = {"title": "Which colour?\u202e", "choices": ["Red", "Blue"], "freeText": free_text}
    return encode_question(name, {**request, "agentId": "main", "sessionKey": key}, 1, 2)


def make_approver(
    group: asyncio.TaskGroup, prompt: FakePrompt, gateway: FakeGateway, notes: list[str]
) -> GatewayApprover:
    asking = cast("ApprovalPrompt", prompt)
    return GatewayApprover(asking, KEY, group, gateway.call, notes.append)


async def test_question_is_answered_at_the_terminal() -> None:
    prompt, gateway, notes = FakePrompt("2"), FakeGateway(), list[str]()
    async with asyncio.TaskGroup() as group:
        make_approver(group, prompt, gateway, notes).on_event("question.requested", question())
    assert prompt.seen == [("Which colour?\\u{202e}", ("Red", "Blue"), False)]
    assert gateway.resolved == [{"id": "q1", "answers": {"answers": {"answer": ["2"]}}}]
    assert notes == []


async def test_pending_questions_are_loaded_and_dismissed() -> None:
    prompt, notes = FakePrompt(None), list[str]()
    gateway = FakeGateway(question(free_text=True), question("q2", "agent:main:other"), {"id": 3})
    async with asyncio.TaskGroup() as group:
        await make_approver(group, prompt, gateway, notes).load()
    assert [takes_text for _, _, takes_text in prompt.seen] == [True]
    assert gateway.resolved == [{"id": "q1", "cancel": True}]
    assert notes == ["A question waits in agent:main:other: homarus approvals list"]


async def test_question_answered_by_another_is_removed() -> None:
    prompt, gateway, notes = FakePrompt("1", is_silent=True), FakeGateway(), list[str]()
    async with asyncio.TaskGroup() as group:
        approver = make_approver(group, prompt, gateway, notes)
        approver.on_event("question.requested", question())
        await until(lambda: prompt.seen)
        approver.on_event("question.resolved", {"id": "q1", "status": "answered"})
    assert gateway.resolved == [] and notes == ["The question was answered."]
