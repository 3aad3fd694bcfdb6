"""Recorded-style streams of every wire → the values they mean."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Message, Text
from homarus.providers.catalog import Price
from homarus.testing.model_server import BodyFraming, Replay
from tests.wire.harness import ANTHROPIC, RECORDINGS, WIRES, Wire, expected, usage_of

SHAPES = {
    "whole": BodyFraming(),
    "bytewise": BodyFraming(piece_bytes=1),
    "unframed": BodyFraming(framing="close"),
}
SSE_SHAPES = SHAPES | {"crlf": BodyFraming(newline=b"\r\n", bom=True)}
CASES = [
    pytest.param(wire, stream, shape, id=f"{wire}-{stream.stem}-{name}")
    for wire, stream in RECORDINGS
    for name, shape in (SSE_SHAPES if wire.is_sse else SHAPES).items()
]


@pytest.mark.parametrize(("wire", "stream", "shape"), CASES)
def test_adapter_recorded_stream_yields_expected_message(
    wire: Wire, stream: Path, shape: BodyFraming
) -> None:
    text, thinking, message = wire.play(Replay(wire.recorded(stream)), shape)
    want = expected(stream)
    assert isinstance(message, Message)
    wire.check(message, want)
    assert text == want.get("streamed", message.text)
    assert thinking == message.thinking
    assert message.origin is not None
    assert (message.origin.stop, usage_of(message.origin.usage)) == (want["stop"], want["usage"])


@pytest.mark.parametrize("wire", WIRES, ids=str)
@given(st.data())
def test_assembler_any_split_yields_same_message(wire: Wire, data: st.DataObject) -> None:
    stream = data.draw(st.sampled_from(wire.streams))
    newline = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    cuts = data.draw(st.lists(st.integers(min_value=0), max_size=20))
    reply, want = wire.read(wire.recorded(stream, newline), cuts), expected(stream)
    wire.check(Message("assistant", reply.message_parts()), want)
    assert (reply.stop(), usage_of(reply.usage(Price()))) == (want["stop"], want["usage"])
    if wire is ANTHROPIC:
        assert reply.done


@pytest.mark.parametrize("wire", WIRES, ids=str)
@given(st.data())
def test_assembler_cut_stream_yields_prefix_of_message(wire: Wire, data: st.DataObject) -> None:
    """What is read of a cut stream is a prefix of the whole: nothing is invented."""
    stream = data.draw(st.sampled_from(wire.streams))
    recorded, want = wire.recorded(stream), expected(stream)
    cut = recorded[: data.draw(st.integers(0, len(recorded)))]
    reply = wire.read(cut, ended=False)
    parts = reply.message_parts()
    complete = Message("assistant", wire.read(recorded).message_parts())
    if bool(reply.finish):
        if "every-chunk" not in stream.stem:  # each of its chunks says that it is the last
            wire.check(Message("assistant", parts), want)
    elif wire.name == "bedrock":  # a part of another kind that was cut cannot be decoded
        parts = tuple(part for part in parts if isinstance(part, Text))
    got = Message("assistant", parts)
    if "streamed" not in want or bool(reply.finish):
        assert complete.text.startswith(got.text)
        if wire.name != "bedrock":
            assert complete.thinking.startswith(got.thinking)
    if wire.name == "google":
        assert [c.args for c in got.calls] == [c.args for c in complete.calls[: len(got.calls)]]
