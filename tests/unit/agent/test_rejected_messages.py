"""A message that a model service rejected is kept in the history and left out of later requests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.agent.context.render import NOT_RENDERED, RenderParams, render
from homarus.agent.reply.error_text import error_text
from homarus.core.errors import (
    AuthError,
    BadRequestError,
    ContentFilterError,
    ImageTooLargeError,
    ProviderError,
    UnreachableError,
)
from homarus.core.message import Image, Message, StoppedBy, ToolCall, user_message
from homarus.providers.base import Delta, ModelRequest
from homarus.sessions.session import SessionRepository
from homarus.testing.fakes import Hang, ScriptedProvider, assistant_message
from tests.unit.agent.builders import ORIGIN, result, said
from tests.unit.agent.harness import KEY, Harness, make_interrupted_record, message

SECOND = replace(message("second"), id="2", run_id="r2")


def sent(harness: Harness) -> list[str]:
    """Return the user messages of the last request."""
    assert isinstance(harness.provider, ScriptedProvider)
    request = harness.provider.requests[-1]
    return [one.text for one in request.messages if one.role == "user"]


def reload(harness: Harness) -> None:
    """Read the session from the store again, as after a restart."""
    harness.sessions = SessionRepository(harness.store, harness.clock)
    harness.replace_services(sessions=harness.sessions)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "error",
    [AuthError("no"), BadRequestError("no", status=400), ContentFilterError("no"),
     ImageTooLargeError("no"), UnreachableError("no")],
    ids=lambda error: error.code,
)  # fmt: skip
def test_rejected_message_is_not_sent_with_next_one(
    tmp_path: Path, error: ProviderError, *, restarts: bool
) -> None:
    harness = Harness(tmp_path, error, assistant_message("hello"))
    assert harness.run(message("first")).status == "failed"
    if restarts:
        reload(harness)
    assert harness.run(SECOND).text == "hello"
    assert sent(harness) == ["second"]
    assert harness.messages()[0] == ("user", "first"), "it stays in the history"


def test_picture_that_was_refused_is_not_sent_with_next_one(tmp_path: Path) -> None:
    harness = Harness(tmp_path, ImageTooLargeError("too large"), assistant_message("hello"))
    harness.run(replace(message("look"), images=(Image("aGk=", "image/png"),)))
    assert harness.run(SECOND).status == "answered"
    assert isinstance(harness.provider, ScriptedProvider)
    assert "aGk=" not in repr(harness.provider.requests[-1].messages)


@pytest.mark.parametrize("kind", [ContentFilterError, BadRequestError, ImageTooLargeError])
def test_person_is_told_that_refused_content_is_left_out(
    tmp_path: Path, kind: type[ProviderError]
) -> None:
    harness = Harness(tmp_path, kind("no", fix="say it differently"))
    error = harness.run(message("first")).error
    assert error is not None and error.fix.endswith("left out of later requests")
    assert "left out" in error_text(error) and harness.replies() == [error_text(error)]


def test_refused_tool_result_does_not_make_next_message_fail(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("poison")
    call = ToolCall("c", "read", {"path": "a.txt"})
    harness = Harness(
        tmp_path, assistant_message(call), ContentFilterError("no"), assistant_message("hello")
    )
    assert harness.run(message("read a.txt")).status == "failed"
    assert harness.run(SECOND).status == "answered"
    assert isinstance(harness.provider, ScriptedProvider)
    assert "poison" in repr(harness.provider.requests[1].messages)
    assert "poison" not in repr(harness.provider.requests[2].messages)
    assert sent(harness) == ["read a.txt", "second"]


def test_stopped_question_is_left_out_and_interrupted_one_stays(tmp_path: Path) -> None:
    class Silent(ScriptedProvider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
            if request.messages[-1].text == "wait":
                await asyncio.Event().wait()
            async for piece in super().stream(request):
                yield piece

    cases: list[tuple[StoppedBy, list[str]]] = [
        ("rpc", ["second"]),
        ("interrupt", ["wait", "second"]),
    ]
    for by, expected in cases:
        harness = Harness(tmp_path)
        harness.provider = Silent([assistant_message("hello")])

        def stop(harness: Harness = harness, by: StoppedBy = by) -> None:
            harness.runs.mark_stopped_by(KEY, None, by)
            harness.runs.stop(KEY)

        assert harness.run(message("wait"), stop).status == "aborted"
        reload(harness)
        assert harness.run(SECOND).status == "answered"
        assert sent(harness) == expected


def test_resumed_run_sends_its_own_message_again(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("done"))
    failure = Message("assistant", (), 0, replace(ORIGIN, stop="error", code="provider.auth"))
    record = make_interrupted_record(harness, failure)
    assert asyncio.run(harness.runs.start(KEY, [record])).text == "done"
    assert sent(harness) == ["hi"]


def test_partial_answer_that_was_stopped_keeps_its_question(tmp_path: Path) -> None:
    harness = Harness(tmp_path, Hang(), assistant_message("hello"))
    assert harness.run(message("first"), lambda: harness.runs.stop(KEY)).status == "aborted"
    assert harness.run(SECOND).status == "answered"
    assert sent(harness) == ["first", "second"]


def test_session_without_answer_has_no_context_yet(tmp_path: Path) -> None:
    harness = Harness(tmp_path, AuthError("no"), assistant_message("hello"))
    harness.run(message("first"))
    assert harness.sessions.last_ms(KEY) is None, "the opening notes are given again"
    harness.run(SECOND)
    assert harness.sessions.last_ms(KEY) is not None


# --- rendering ---------------------------------------------------------------------------------


def turn(number: int, calls: int, code: str | None) -> list[Message]:
    """Return a turn of so many calls that ends with an answer, or with an error of this code."""
    made = [user_message(f"question {number}", at_ms=number)]
    for n in range(calls):
        made += [said(ToolCall(f"c{number}.{n}", "exec", {})), result(f"c{number}.{n}", "out")]
    if code is None:
        return [*made, said(f"answer {number}", prompt=100 + number)]
    return [*made, Message("assistant", (), 0, replace(ORIGIN, stop="error", code=code))]


CODES = [None, "provider.auth", "provider.bad_request", "run.broke"]
conversations = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(CODES)), min_size=1, max_size=8
).map(lambda turns: [m for n, (calls, code) in enumerate(turns) for m in turn(n, calls, code)])


@settings(max_examples=30, deadline=None)
@given(history=conversations, limit=st.integers(0, 4))
def test_render_incremental_equals_full_with_rejections(
    history: Sequence[Message], limit: int
) -> None:
    frame, rendered = RenderParams("m", 50_000, max_turns=limit), NOT_RENDERED
    for end in range(1, len(history) + 1):
        rendered = render(history[:end], frame, rendered, 0)
        fresh = render([replace(one) for one in history[:end]], frame, NOT_RENDERED, 0)
        assert fresh.messages == rendered.messages
        assert fresh.estimate == rendered.estimate
