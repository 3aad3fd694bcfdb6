"""Events of the Responses wire with fields of any kind are read or refused."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.message import Message
from homarus.providers.base import TextDelta, ThinkingDelta
from homarus.providers.catalog import Price
from homarus.providers.chat_stream import MalformedChunkError
from homarus.providers.responses_stream import ResponsesStreamAssembler
from tests.wire.harness import RESPONSES


def spoil(value: Any, path: list[int], other: Any) -> Any:
    """The same value with another in the place that a path leads to."""
    if not path or not isinstance(value, dict | list) or not value:
        return other
    key = list(value)[path[0] % len(value)] if isinstance(value, dict) else path[0] % len(value)
    spoiled: Any = dict(value) if isinstance(value, dict) else list(value)
    spoiled[key] = spoil(value[key], path[1:], other)
    return spoiled


EVENTS = [
    json.loads(line.removeprefix("data: "))
    for stream in RESPONSES.streams
    for line in stream.read_text().splitlines()
    if line.startswith("data: {")
]
others = st.sampled_from([None, 0, -1, 1e400, "", "x", [], [None], {}, {"text": 5}, True])
events = st.tuples(
    st.sampled_from(EVENTS), st.lists(st.integers(0, 40), min_size=1, max_size=5), others
).map(lambda given: spoil(*given))


@settings(max_examples=500)
@given(st.lists(events | st.sampled_from(EVENTS), max_size=12))
def test_responses_events_of_any_shape_are_read_or_malformed(
    some: list[dict[str, Any]],
) -> None:
    reply = ResponsesStreamAssembler()
    for event in some:
        try:
            said = reply.add(event)
        except MalformedChunkError:
            return
        assert all(isinstance(delta, TextDelta | ThinkingDelta) and delta.text for delta in said)
    message = Message("assistant", reply.message_parts())
    ids = [call.id for call in message.calls]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert reply.usage(Price()).total >= 0
    assert reply.stop() in {"stop", "length", "toolUse"}
