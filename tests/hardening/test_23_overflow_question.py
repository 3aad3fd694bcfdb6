"""The question of a run that fails stays in the history of the conversation.

A spend limit or a bug ends a run before a model was sent anything; the next message must find the
question before it. A question that the model service refused stays in the transcript, and is left
out of the next request.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.config import schema
from homarus.core.errors import ContextOverflowError, ProviderError, SpendLimitError
from homarus.core.message import Message
from homarus.providers.base import Delta, ModelRequest
from homarus.sessions.session import SessionRepository
from homarus.testing.fakes import ScriptedProvider, assistant_message
from tests.unit.agent.harness import KEY, Harness, message

SECOND = replace(message("try again"), id="2", run_id="r2")


class FailingProvider(ScriptedProvider):
    """A provider that raises an error, of any class, before it answers."""

    def __init__(self, error: Exception, times: int, *script: Message | ProviderError) -> None:
        super().__init__(script)
        self._errors = [error] * times

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        if self._errors:
            raise self._errors.pop()
        async for piece in super().stream(request):
            yield piece


def sent_to_model(harness: Harness) -> list[str]:
    provider = harness.provider
    assert isinstance(provider, ScriptedProvider)
    return [one.text for one in provider.requests[-1].messages if one.role == "user"]


@pytest.mark.parametrize(
    "error",
    [
        SpendLimitError("too expensive"),
        ZeroDivisionError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("compacts", [True, False])
def test_question_of_failed_run_stays_in_history(
    tmp_path: Path, error: Exception, *, compacts: bool
) -> None:
    harness = Harness(tmp_path)
    rules = schema.CompactionConfig(mode="default", enabled=compacts)
    harness.agent = replace(harness.agent, compaction=rules)
    harness.provider = FailingProvider(error, 1, assistant_message("yes"))
    assert harness.run(message("the first question")).status == "failed"
    harness.replace_services(sessions=SessionRepository(harness.store, harness.clock))
    assert harness.run(SECOND).status == "answered"
    assert sent_to_model(harness) == ["the first question", "try again"]


@pytest.mark.parametrize("compacts", [True, False])
def test_question_that_overflowed_is_kept_and_not_sent_again(
    tmp_path: Path, *, compacts: bool
) -> None:
    harness = Harness(tmp_path)
    rules = schema.CompactionConfig(mode="default", enabled=compacts)
    harness.agent = replace(harness.agent, compaction=rules)
    harness.provider = FailingProvider(
        ContextOverflowError("too long"), 1, assistant_message("yes")
    )
    assert harness.run(message("the first question")).status == "failed"
    harness.replace_services(sessions=SessionRepository(harness.store, harness.clock))
    assert harness.run(SECOND).status == "answered"
    assert sent_to_model(harness) == ["try again"]

    async def texts() -> list[str]:
        session = await harness.sessions.load(KEY, "main")
        return [one.text for one in session.messages if one.role == "user"]

    assert asyncio.run(texts()) == ["the first question", "try again"]


def test_window_without_room_keeps_question_in_history(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("yes"))
    harness.window = 100
    assert harness.run(message("the first question")).status == "failed"
    harness.window = 200_000
    assert harness.run(SECOND).status == "answered"
    assert sent_to_model(harness) == ["the first question", "try again"]


def test_failure_after_partial_answer_is_saved_once(tmp_path: Path) -> None:
    harness = Harness(tmp_path, ContextOverflowError("too long"), ContextOverflowError("too long"))
    harness.run(message("the first question"))

    async def roles() -> list[str]:
        session = await harness.sessions.load(KEY, "main")
        return [one.role for one in session.messages]

    assert asyncio.run(roles()) == ["user", "assistant"]
