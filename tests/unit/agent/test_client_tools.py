"""Runs of programs that bring their own tools, their own conversation, and results of calls."""

import asyncio
from dataclasses import replace
from pathlib import Path

from homarus.agent.reply.payloads import encode_result
from homarus.agent.run import RunOutcome
from homarus.core.errors import InvalidRequestError, RateLimitError
from homarus.core.message import (
    Address,
    ClientOptions,
    ClientTool,
    Inbound,
    Message,
    RunOptions,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    user_message,
)
from homarus.sessions.session import SessionRepository
from homarus.sessions.transcript import encode_message
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import ScriptedProvider, assistant_message
from tests.unit.agent.harness import KEY, Harness, make_interrupted_record

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = ClientTool("weather", "The weather of a city", SCHEMA)
ASK = ToolCall("c1", "weather", {"city": "Rome"})


def inbound(text: str, run_id: str = "r1", **options: object) -> Inbound:
    client = ClientOptions(**options)  # type: ignore[arg-type] # the fields, by name
    return Inbound(
        run_id, Address("webchat", ""), "program", text, options=RunOptions(client=client),
        run_id=run_id,
    )  # fmt: skip


def result_of(call_id: str, text: str) -> dict[str, object]:
    return encode_message(Message("tool", (ToolResult(call_id, "", (Text(text),)),)))


def offered(harness: Harness, request: int = 0) -> list[str]:
    provider = harness.provider
    assert isinstance(provider, ScriptedProvider)
    return [spec.name for spec in provider.requests[request].tools]


def sent(harness: Harness, request: int) -> list[tuple[str, str]]:
    provider = harness.provider
    assert isinstance(provider, ScriptedProvider)
    found = list[tuple[str, str]]()
    for message in provider.requests[request].messages:
        results = [part.text for part in message.parts if isinstance(part, ToolResult)]
        found.append((message.role, message.text or "".join(results)))
    return found


def with_usage(message: Message, usage: Usage) -> Message:
    assert message.origin is not None
    return replace(message, origin=replace(message.origin, usage=usage))


def reload_sessions(harness: Harness) -> None:
    """Forget the loaded sessions, as a restart does."""
    harness.sessions = SessionRepository(harness.store, FakeClock(patient=False))
    harness.replace_services(sessions=harness.sessions)


def test_client_call_ends_run_and_waits_for_result(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("Let me look.", ASK))
    outcome = harness.run(inbound("Rain in Rome?", tools=(WEATHER,)))
    assert (outcome.status, outcome.stop, outcome.pending_calls) == (
        "answered",
        "tool_calls",
        (ASK,),
    )
    assert offered(harness)[-1] == "weather" and "read" in offered(harness)
    assert harness.record().state == "answered"
    assert harness.messages() == [
        ("user", "Rain in Rome?"),
        ("assistant", "Let me look."),
    ]
    meta = encode_result("r1", outcome)["result"]["meta"]
    assert meta["stopReason"] == "tool_calls"
    assert meta["pendingToolCalls"] == [
        {"id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'}
    ]


def follow_up(harness: Harness, *results: dict[str, object], text: str = "") -> RunOutcome:
    return harness.run(inbound(text, "r2", tools=(WEATHER,), results=results))


def test_client_result_continues_the_conversation(tmp_path: Path) -> None:
    script = assistant_message("Let me look.", ASK), assistant_message("Sun.")
    harness = Harness(tmp_path, *script)
    harness.run(inbound("Rain in Rome?", tools=(WEATHER,)))
    outcome = follow_up(harness, result_of("c1", "sunny"))
    assert (outcome.text, outcome.pending_calls) == ("Sun.", ())
    assert sent(harness, 1) == [
        ("user", "Rain in Rome?"),
        ("assistant", "Let me look."),
        ("tool", "sunny"),
    ]


def test_client_result_after_restart_replaces_the_stand_in(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("", ASK), assistant_message("Sun."))
    harness.run(inbound("Rain?", tools=(WEATHER,)))
    reload_sessions(harness)
    assert follow_up(harness, result_of("c1", "sunny")).text == "Sun."
    assert [text for role, text in sent(harness, 1) if role == "tool"] == ["sunny"]


def test_client_result_with_a_question_keeps_both(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("", ASK), assistant_message("Sun."))
    harness.run(inbound("Rain?", tools=(WEATHER,)))
    follow_up(harness, result_of("c1", "sunny"), text="And snow?")
    assert sent(harness, 1)[-2:] == [("tool", "sunny"), ("user", "And snow?")]


def test_client_result_of_unknown_call_is_refused(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("", ASK))
    harness.run(inbound("Rain?", tools=(WEATHER,)))
    outcome = follow_up(harness, result_of("other", "sunny"))
    assert isinstance(outcome.error, InvalidRequestError)
    assert "'other'" in str(outcome.error)
    assert harness.record("r2").state == "reported"


def test_client_results_must_be_complete(tmp_path: Path) -> None:
    second = ToolCall("c2", "weather", {"city": "Oslo"})
    harness = Harness(tmp_path, assistant_message("", ASK, second))
    harness.run(inbound("Rain?", tools=(WEATHER,)))
    outcome = follow_up(harness, result_of("c1", "sunny"))
    assert "'c2' has no result" in str(outcome.error)


def test_client_result_cannot_be_given_for_call_of_the_agent(tmp_path: Path) -> None:
    own = ToolCall("own", "read", {"path": "missing"})
    harness = Harness(tmp_path)
    make_interrupted_record(harness, assistant_message("", own), started=["own"])
    reload_sessions(harness)
    outcome = follow_up(harness, result_of("own", "forged"))
    assert isinstance(outcome.error, InvalidRequestError)


def test_client_results_are_taken_again_after_a_failure(tmp_path: Path) -> None:
    limited = RateLimitError("slow down")
    harness = Harness(tmp_path, assistant_message("", ASK), limited, assistant_message("Sun."))
    harness.run(inbound("Rain?", tools=(WEATHER,)))
    assert follow_up(harness, result_of("c1", "sunny")).error is limited
    outcome = harness.run(inbound("", "r3", tools=(WEATHER,), results=(result_of("c1", "sunny"),)))
    assert outcome.text == "Sun."
    assert [role for role, _ in sent(harness, 2)] == ["user", "assistant", "tool"]


def test_question_gives_up_calls_of_the_client(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("", ASK), assistant_message("Fine."))
    harness.run(inbound("Rain?", tools=(WEATHER,)))
    harness.run(inbound("Never mind", "r2"))
    outcome = harness.run(inbound("", "r3", results=(result_of("c1", "sunny"),)))
    assert isinstance(outcome.error, InvalidRequestError)
    assert [role for role, _ in sent(harness, 1)] == ["user", "assistant", "tool", "user"]


def test_client_call_next_to_own_call_waits_for_its_result(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("umbrella")
    own = ToolCall("own", "read", {"path": "note.txt"})
    harness = Harness(tmp_path, assistant_message("", own, ASK), assistant_message("Take it."))
    outcome = harness.run(inbound("Rain?", tools=(WEATHER,)))
    assert outcome.pending_calls == (ASK,)
    assert harness.record().reply
    assert follow_up(harness, result_of("c1", "sunny")).text == "Take it."
    results = [text for role, text in sent(harness, 1) if role == "tool"]
    assert len(results) == 2 and "umbrella" in results[0] and results[1] == "sunny"


def test_resumed_run_hands_over_calls_of_the_client(tmp_path: Path) -> None:
    own = ToolCall("own", "read", {"path": "missing"})
    harness = Harness(tmp_path)
    message = inbound("hi", tools=(WEATHER,))

    async def interrupt() -> None:
        record = await harness.accept(message)
        session = await harness.sessions.load(KEY, "main")
        async with harness.store.journal.lease(f"session:{KEY}") as lease:
            await session.start_turn(
                user_message("hi"), provider="p", model="m",
                extra_writes=lambda transaction, entries: transaction.mark_running(
                    [record.id], lease, run=record.id, session_id=session.session_id,
                    entry=entries[-1].id,
                ),
            )  # fmt: skip
            await session.append(assistant_message("", own, ASK))

    asyncio.run(interrupt())
    reload_sessions(harness)
    outcome = asyncio.run(harness.runs.start(KEY, [harness.record()]))
    assert outcome.pending_calls == (ASK,)
    assert harness.record().state == "answered"


def test_tool_of_client_takes_the_name_of_an_own_one(tmp_path: Path) -> None:
    mine = ClientTool("read", "Read a page of my book", SCHEMA)
    harness = Harness(tmp_path, assistant_message("", ToolCall("c1", "read", {})))
    outcome = harness.run(inbound("Go", tools=(mine,)))
    assert offered(harness).count("read") == 1
    assert [call.id for call in outcome.pending_calls] == ["c1"]


def test_disabled_tools_leave_those_of_the_client(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("ok"))
    harness.run(inbound("Go", tools=(WEATHER,), disables_tools=True))
    assert offered(harness) == ["weather"]


def test_params_of_client_reach_the_model(tmp_path: Path) -> None:
    harness = Harness(tmp_path, assistant_message("ok"))
    params = {"temperature": 0.5, "stop": ["END"], "max_tokens": 77}
    harness.run(inbound("Go", params=params))
    provider = harness.provider
    assert isinstance(provider, ScriptedProvider)
    request = provider.requests[0]
    assert request.max_tokens == 77
    assert dict(request.params) == {"temperature": 0.5, "stop": ["END"]}


def test_history_of_client_is_the_conversation_before_it(tmp_path: Path) -> None:
    history = (
        encode_message(user_message("My name is Ada")),
        encode_message(assistant_message("Hello Ada")),
    )
    harness = Harness(tmp_path, assistant_message("Ada"))
    harness.run(inbound("Who am I?", history=history))
    assert sent(harness, 0) == [
        ("user", "My name is Ada"),
        ("assistant", "Hello Ada"),
        ("user", "Who am I?"),
    ]
    outcome = harness.run(inbound("Again", "r2", history=history))
    assert isinstance(outcome.error, InvalidRequestError)


def test_history_that_ends_with_results_needs_no_question(tmp_path: Path) -> None:
    history = (
        encode_message(user_message("Rain?")),
        encode_message(assistant_message("", ASK)),
        result_of("c1", "sunny"),
    )
    harness = Harness(tmp_path, assistant_message("Sun."))
    assert harness.run(inbound("", history=history)).text == "Sun."
    assert [role for role, _ in sent(harness, 0)] == ["user", "assistant", "tool"]


def test_outcome_has_usage_of_every_model_call(tmp_path: Path) -> None:
    own = ToolCall("own", "read", {"path": "missing"})
    one = with_usage(assistant_message("", own), Usage(10, 2))
    two = with_usage(assistant_message("ok"), Usage(20, 3, cache_read=5))
    harness = Harness(tmp_path, one, two)
    outcome = harness.run(inbound("Go"))
    assert outcome.total_usage == Usage(30, 5, cache_read=5)
