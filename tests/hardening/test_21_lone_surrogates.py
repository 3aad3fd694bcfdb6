"""No half of a surrogate pair gets from a text source to the transcript or to a client.

Strict JSON parsers refuse such text. Each source repairs or refuses it: what a model answers,
what a chat service or a client sends, what a tool returns, the config, imported transcripts. The
halves of one character that arrive in two pieces are joined.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.config.json5_document import parse_json5
from homarus.core.errors import HomarusError, InvalidRequestError
from homarus.core.message import (
    Address,
    Inbound,
    InboundMetadata,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from homarus.core.text import repair_json, repair_surrogates
from homarus.gateway import frames
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.providers.answer_filter import AnswerFilter, repair_message
from homarus.providers.base import Delta, ModelRequest, TextDelta, ThinkingDelta
from homarus.store.journal_codec import new_inbox_record
from homarus.store.transcript_codec import dump_json, load_json
from homarus.testing.fakes import ScriptedProvider, assistant_message
from homarus.testing.model_server import Raw
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext, ToolOutput, tool
from tests.hardening.test_23_runaway_stream import fallback_over
from tests.unit.agent.harness import KEY, Harness, message
from tests.unit.providers.harness import ANTHROPIC, GOOGLE, OPENAI, RESPONSES, WireClient

HIGH, LOW, FACE = "\ud83d", "\ude00", "😀"
LONE = re.compile("[\ud800-\udfff]")


# The helper


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("plain", "plain"),
        (f"é {FACE}", f"é {FACE}"),
        (HIGH, "\ufffd"),
        (f"a{HIGH}b", "a\ufffdb"),
        (f"{LOW}{HIGH}", "\ufffd\ufffd"),
        (f"{HIGH}{LOW}", FACE),
        ("caf\udce9.txt", "caf\ufffd.txt"),
    ],
)
def test_surrogates_are_joined_or_replaced(text: str, repaired: str) -> None:
    assert repair_surrogates(text) == repaired


def test_valid_json_value_is_returned_as_it_is() -> None:
    value = {"a": ["b", {"é": FACE}], "n": 1}
    assert repair_json(value) is value
    assert repair_json({HIGH: [f"x{LOW}"]}) == {"\ufffd": ["x\ufffd"]}


# The provider boundary


def test_halves_in_two_pieces_are_joined() -> None:
    answer_filter = AnswerFilter("p/m")
    pieces = [TextDelta(f"a{HIGH}"), TextDelta(f"{LOW}b"), TextDelta(HIGH), TextDelta("c")]
    checked = [answer_filter.check(piece) for piece in pieces]
    assert checked == [TextDelta("a"), TextDelta(f"{FACE}b"), None, TextDelta("\ufffdc")]


def test_every_part_of_a_message_is_repaired() -> None:
    broken = assistant_message(
        Thinking(f"t{HIGH}", f"s{HIGH}"),
        Text(f"x{HIGH}{LOW}"),
        ToolCall(f"i{LOW}", f"n{LOW}", {f"k{LOW}": [f"v{LOW}"]}, f"b{LOW}", f"s{LOW}"),
    )
    repaired = repair_message(broken)
    assert repaired.parts == (
        Thinking("t\ufffd", "s\ufffd"),
        Text(f"x{FACE}"),
        ToolCall("i\ufffd", "n\ufffd", {"k\ufffd": ["v\ufffd"]}, "b\ufffd", "s\ufffd"),
    )
    assert repair_message(repaired) is repaired


ANSWERS: dict[WireClient, bytes] = {
    OPENAI: b'data: {"choices":[{"delta":{"content":"x \\ud83d","tool_calls":[{"index":0,"id":"c",'
    b'"function":{"name":"n\\udc00","arguments":"{\\"a\\":\\"\\\\ud83d\\"}"}}]},'
    b'"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n',
    ANTHROPIC: b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta",'
    b'"thinking":"t \\ud83d"}}\n\n'
    b'data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c",'
    b'"name":"n\\udc00","input":{"a":"\\ud83d"}}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}\n\n'
    b'data: {"type":"message_stop"}\n\n',
    RESPONSES: b'data: {"type":"response.output_text.delta","output_index":0,'
    b'"delta":"x \\ud83d"}\n\n'
    b'data: {"type":"response.completed","response":{"output":[{"type":"function_call",'
    b'"call_id":"c","name":"n\\udc00","arguments":"{\\"a\\":\\"\\\\ud83d\\"}"}]}}\n\n',
    GOOGLE: b'data: {"candidates":[{"content":{"parts":[{"text":"x \\ud83d"},{"functionCall":'
    b'{"name":"n\\udc00","args":{"a":"\\ud83d"}}}]},"finishReason":"STOP"}]}\n\n',
}


@pytest.mark.parametrize("wire", ANSWERS, ids=str)
async def test_answer_of_every_wire_is_repaired(wire: WireClient) -> None:
    async with wire.served([Raw(ANSWERS[wire])]) as (provider, _server):
        request = ModelRequest("m", "", (Message("user", (Text("hi"),)),))
        pieces = [piece async for piece in fallback_over(provider).stream(request)]
    (answer,) = [piece for piece in pieces if isinstance(piece, Message)]
    (call,) = answer.calls
    assert (call.name, call.args) == ("n\ufffd", {"a": "\ufffd"})
    texts = [piece.text for piece in pieces if isinstance(piece, TextDelta | ThinkingDelta)]
    assert not LONE.search("".join([*texts, answer.text, answer.thinking]))
    assert "\ufffd" in answer.text + answer.thinking


class HalfProvider(ScriptedProvider):
    """A provider that answers with half of a character."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        yield TextDelta(f"so {HIGH}")
        yield assistant_message(f"so {HIGH}")


def test_answer_reaches_transcript_events_and_chat_repaired(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.provider = fallback_over(HalfProvider(()))
    outcome = harness.run(message())
    assert outcome.text == "so \ufffd" and harness.replies() == ["so \ufffd"]

    async def saved() -> list[str]:
        session = await harness.sessions.load(KEY, "main")
        return [one.text for one in session.messages]

    assert asyncio.run(saved()) == ["hi", "so \ufffd"]


# Chat services and clients


def test_inbound_message_is_repaired_before_it_is_accepted() -> None:
    inbound = Inbound(
        f"1{HIGH}",
        Address("svc", f"c{HIGH}"),
        f"ann{HIGH}",
        f"hi {HIGH}",
        metadata=InboundMetadata(name=f"Ann{HIGH}", quoted=HIGH, title=LOW),
        media=(Media(name=f"f{HIGH}.txt"),),
        group_history=f"before {HIGH}",
    )
    new = new_inbox_record("agent:main:main", inbound, 1)
    found = new.record.inbound
    assert found is not None and found.text == "hi \ufffd" and found.metadata.name == "Ann\ufffd"
    assert found.media[0].name == "f\ufffd.txt" and found.group_history == "before \ufffd"
    assert not LONE.search(repr(found)) and "\\ud83d" not in new.body
    valid = replace(inbound, id="1", text=FACE)
    assert not LONE.search(repr(new_inbox_record("agent:main:main", valid, 1).record.inbound))


def test_request_of_client_with_half_a_character_is_refused() -> None:
    request = '{"type":"req","id":"1","method":"chat.send","params":{"message":"\\ud83d"}}'
    with pytest.raises(InvalidRequestError):
        frames.parse_request(request)


@pytest.mark.parametrize("text", [HIGH, f"a{LOW}", "caf\udce9"])
def test_frame_to_client_has_no_half_of_a_character(text: str) -> None:
    for frame in (
        frames.event_frame("chat", {"text": text, text: [text]}),
        frames.response_frame("1", {"text": text}),
        frames.error_frame("1", HomarusError(text)),
    ):
        assert not LONE.search(str(json.loads(frame))), frame
    assert json.loads(frames.event_frame("chat", {"text": FACE}))["payload"] == {"text": FACE}


# Tools, files, config, transcripts


@tool(group="test")
async def list_names(ctx: ToolContext) -> ToolOutput:
    """Return a file name that is no UTF-8."""
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    return ToolOutput((Text(f"{name} and {HIGH}{LOW}"),), details={"name": name})


async def test_tool_result_is_repaired(tmp_path: Path) -> None:
    async def allow(_call: ToolCallFacts) -> ToolDecision:
        return ToolDecision("allow", "")

    context = ToolContext(KEY, "main", tmp_path)
    registry = ToolRegistry([list_names])
    result: ToolResult = await execute_tool_call(
        registry, context, ToolCall("c1", "list_names", {}), allow
    )
    assert result.text == f"caf\ufffd.txt and {FACE}"
    assert result.details is None  # they are data, not text: dropped, and logged


def test_config_with_half_a_character_is_refused() -> None:
    with pytest.raises(HomarusError, match="surrogate"):
        parse_json5('{agents: {defaults: {name: "\\ud83d"}}}')


@pytest.mark.parametrize("value", [{"text": HIGH}, {HIGH: 1}, [f"{HIGH}{LOW}", HIGH]])
def test_stored_json_has_no_half_of_a_character(value: Any) -> None:
    text = dump_json(value)
    assert not re.search(r"\\ud[89a-f]", text) and not LONE.search(text)
    assert load_json(text) == repair_json(value)


def test_imported_transcript_line_is_repaired() -> None:
    assert load_json('{"text":"a \\ud83d","b":"\\ud83d\\ude00"}') == {"text": "a \ufffd", "b": FACE}
