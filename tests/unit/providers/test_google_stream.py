"""Assembling Gemini chunks into an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Image, Message, Part, Text, Thinking, ToolCall, Usage
from homarus.providers.base import Delta, TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import MalformedChunkError
from homarus.providers.google_stream import MADE_ID, GeminiStreamAssembler


def chunk(*parts: Any, **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, **candidate}]}


def read(
    *chunks: dict[str, Any], names: dict[str, str] | None = None
) -> tuple[GeminiStreamAssembler, list[Delta]]:
    reply = GeminiStreamAssembler(names)
    return reply, [delta for one in chunks for delta in reply.add(one)]


def parts_of(*parts: Any) -> tuple[Part, ...]:
    """The same whether the parts come in one chunk or each in its own."""
    together = read(chunk(*parts))[0].message_parts()
    apart = read(*(chunk(part) for part in parts))[0].message_parts()
    calls = [
        [p for p in made if not isinstance(p, ToolCall) or not p.id.startswith(MADE_ID)]
        for made in (together, apart)
    ]
    assert calls[0] == calls[1]
    return together


def test_text_joined_and_reasoning_separated_in_order() -> None:
    got = parts_of(
        {"text": "Hm", "thought": True},
        {"text": "m.", "thought": True},
        {"text": "a"},
        {"text": "b"},
        {"text": "wait", "thought": True},
        {"text": "c"},
    )
    assert got == (Thinking("Hmm."), Text("ab"), Thinking("wait"), Text("c"))
    _, deltas = read(chunk({"text": "t", "thought": True}, {"text": ""}, {"text": "x"}))
    assert deltas == [ThinkingDelta("t"), TextDelta("x")]


def test_signature_stays_with_part_and_ends_it() -> None:
    assert parts_of({"text": "a"}, {"text": "b", "thoughtSignature": "s1"}, {"text": "c"}) == (
        Text("ab", "s1"),
        Text("c"),
    )
    assert parts_of({"text": "a"}, {"text": "", "thoughtSignature": "s1"}) == (Text("a", "s1"),)
    assert parts_of({"text": "", "thoughtSignature": "s1"}) == (Text("", "s1"),)
    assert parts_of({"text": "t", "thought": True, "thoughtSignature": "s1"}) == (
        Thinking("t", "s1"),
    )


def test_calls_have_id_signature_and_tool_name() -> None:
    call = {"functionCall": {"name": "_a_b_1", "args": {"x": 1}, "id": "i1"}}
    reply, deltas = read(
        chunk({"text": "Now "}, {**call, "thoughtSignature": "s"}, {"text": "there"}),
        names={"_a_b_1": "a b"},
    )
    assert reply.message_parts() == (
        Text("Now "),
        ToolCall("i1", "a b", {"x": 1}, "", "s"),
        Text("there"),
    )
    assert deltas == [TextDelta("Now "), TextDelta("there")]
    assert reply.stop() == "toolUse"


def test_call_without_or_with_repeated_id_gets_unique_id() -> None:
    one = {"functionCall": {"name": "t", "id": "same"}}
    reply, _ = read(chunk(one, one, {"functionCall": {"name": "t"}}))
    ids = [part.id for part in reply.message_parts() if isinstance(part, ToolCall)]
    assert ids[0] == "same"
    assert len(set(ids)) == 3
    assert all(made.startswith(MADE_ID) for made in ids[1:])


@pytest.mark.parametrize(
    ("args", "given", "broken"),
    [(None, {}, ""), ({}, {}, ""), ("{oops", {}, "{oops"), ([1], {}, "[1]"), (0, {}, "0")],
)
def test_arguments_not_an_object_kept_as_broken(
    args: Any, given: dict[str, Any], broken: str
) -> None:
    (call,) = parts_of({"functionCall": {"name": "t", "args": args}})
    assert isinstance(call, ToolCall)
    assert (call.args, call.broken) == (given, broken)


def test_pictures_kept_and_other_parts_ignored() -> None:
    inline = {"mimeType": "image/png", "data": "aGk="}
    assert parts_of(
        {"inlineData": {**inline}, "thought": True},
        {"inlineData": inline, "thoughtSignature": "s"},
        {"inlineData": {"mimeType": "audio/wav", "data": "aGk="}},
        {"inlineData": {"mimeType": "image/png"}},
        {"executableCode": {"code": "1"}},
        {"new": {}},
        {"text": 5},
    ) == (Image("aGk=", "image/png"),)


def test_only_first_candidate_is_read() -> None:
    reply, deltas = read(chunk({"text": "b"}, index=1, finishReason="STOP"), chunk({"text": "a"}))
    assert deltas == [TextDelta("a")]
    assert reply.finish == ""


@pytest.mark.parametrize(
    ("finish", "stop"), [("STOP", "stop"), ("MAX_TOKENS", "length"), ("CONTINUATION", "length")]
)
def test_finish_reason_maps_to_stop(finish: str, stop: str) -> None:
    reply, _ = read(chunk({"text": "a"}, finishReason=finish, finishMessage="so"))
    assert (reply.finish, reply.why, reply.stop()) == (finish, "so", stop)


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ({"promptTokenCount": 10, "candidatesTokenCount": 4}, Usage(10, 4)),
        (
            {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 60,
                "candidatesTokenCount": 10,
                "thoughtsTokenCount": 5,
                "toolUsePromptTokenCount": 7,
            },
            Usage(47, 15, 60, 0, 5),
        ),
        ({"promptTokenCount": 5, "cachedContentTokenCount": 50}, Usage(0, 0, 5)),
        (
            {"promptTokenCount": -5, "candidatesTokenCount": "x", "thoughtsTokenCount": 1e99},
            Usage(),
        ),
        ([1], Usage()),
        (None, Usage()),
    ],
)
def test_usage_counts_tokens_apart(raw: Any, want: Usage) -> None:
    reply, _ = read({"usageMetadata": {"promptTokenCount": 1}}, {"usageMetadata": raw})
    if raw is None:
        want = Usage(1)  # a chunk without usage takes none away
    assert reply.usage(Price()) == want


def test_usage_cost_follows_price() -> None:
    raw = {
        "promptTokenCount": 1000,
        "cachedContentTokenCount": 600,
        "candidatesTokenCount": 60,
        "thoughtsTokenCount": 40,
    }
    reply, _ = read({"usageMetadata": raw})
    cost = reply.usage(Price(1.0, 2.0, 0.5)).cost
    assert cost == pytest.approx((400 * 1.0 + 100 * 2.0 + 600 * 0.5) / 1e6)


@pytest.mark.parametrize(
    "bad",
    [
        {"candidates": 5},
        {"candidates": [5]},
        {"candidates": [{"content": {"parts": 5}}]},
        {"candidates": [{"content": "x"}]},
        {"candidates": [{"content": {"parts": [5]}}]},
        chunk({"functionCall": 5}),
        chunk({"inlineData": 5}),
    ],
)
def test_invalid_chunk_raises_malformed(bad: dict[str, Any]) -> None:
    with pytest.raises(MalformedChunkError):
        read(bad)


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
keys = st.sampled_from(
    [
        *("candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall"),
        *("name", "args", "id", "inlineData", "mimeType", "data", "finishReason", "index"),
        *("usageMetadata", "promptTokenCount", "promptFeedback", "blockReason"),
    ]
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(keys, anything, max_size=4), max_size=4))
def test_any_json_is_read_or_malformed(chunks: list[dict[str, Any]]) -> None:
    reply = GeminiStreamAssembler()
    said: list[Delta] = []
    try:
        for one in chunks:
            said += reply.add(one)
    except MalformedChunkError:
        pass
    message = Message("assistant", reply.message_parts())
    assert message.text.startswith("".join(d.text for d in said if isinstance(d, TextDelta)))
    assert reply.usage(Price()).total >= 0
    assert reply.stop() in {"stop", "length", "toolUse"}
