"""Frames: whatever comes in is read or refused, and whatever goes out can be read again."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.gateway import frames
from homarus.gateway.frames import MAX_DEPTH, parse_request, request_id

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)


def request(params: str) -> str:
    return f'{{"type":"req","id":"1","method":"health","params":{params}}}'


def is_read(text: str | bytes) -> bool:
    try:
        parse_request(text)
    except InvalidRequestError:
        return False
    return True


@given(st.text(max_size=100) | st.binary(max_size=100))
def test_any_bytes_are_refused_with_a_response(text: str | bytes) -> None:
    assert not is_read(text) or b"req" in (text if isinstance(text, bytes) else text.encode())
    assert 0 < len(request_id(text)) <= frames.MAX_ID_CHARS


@given(st.dictionaries(st.sampled_from(["type", "id", "method", "params", "x"]), JSON))
def test_any_object_is_parsed_as_request_or_refused(frame: dict[str, Any]) -> None:
    frame.setdefault("type", "req")
    if is_read(json.dumps(frame)):
        assert frame.keys() <= {"type", "id", "method", "params"}
        assert frame["type"] == "req"
        assert 0 < len(frame["id"]) <= frames.MAX_ID_CHARS


@given(JSON)
def test_params_are_parsed_as_json_unless_a_number_is_not_finite(params: Any) -> None:
    text = json.dumps(params)
    if is_read(request(text)):
        assert parse_request(request(text)).params == json.loads(text)
        assert "NaN" not in repr(json.loads(text)).replace("'NaN'", "")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_non_finite_number_is_refused_at_any_depth(number: str) -> None:
    for params in (number, f"[{number}]", f'{{"a":[{{"b":{number}}}]}}'):
        assert not is_read(request(params))


def test_nesting_beyond_the_limit_is_refused() -> None:
    inside = MAX_DEPTH - 1  # the frame is one level itself
    assert is_read(request("[" * inside + "]" * inside))
    for deep in (inside + 1, 150, 100_000):
        assert not is_read(request("[" * deep + "]" * deep))
        assert not is_read(request('{"a":' * deep + "1" + "}" * deep))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '{"type":"req","id":"1","method":"m"} x',
        '\ufeff{"type":"req","id":"1","method":"m"}',
        '{"type":"res","id":"1","ok":true}',
        '{"type":"req","id":1,"method":"m"}',
        '{"type":"req","id":"","method":"m"}',
        '{"type":"req","id":"1","method":"m","extra":1}',
        '{"type":"req","id":"1","method":"' + "m" * 200 + '"}',
        '{"type":"req","id":"' + "1" * 300 + '","method":"m"}',
        request("9" * 5_000),
        request('"\\ud800"'),
    ],
)
def test_frame_that_is_no_request_is_refused(text: str) -> None:
    assert not is_read(text)


def test_large_frame_is_parsed_in_bounded_time() -> None:
    started = time.process_time()
    for params in ("[" + "[]," * 1_000_000 + "[]]", '"' + "a" * 20_000_000 + '"'):
        is_read(request(params))
    assert time.process_time() - started < 20


def test_parse_error_is_one_line_without_the_value() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_request('{"type":"req","id":"1","method":["s3cret"],"a\\r\\nINFO \\u202e":"s3cret"}')
    assert "s3cret" not in caught.value.message
    with pytest.raises(InvalidRequestError) as caught:
        parse_request('{"type":"req","id":"1","method":"m","a\\r\\nINFO \\u202e":"s3cret"}')
    assert caught.value.message.isprintable()
    assert "s3cret" not in caught.value.message


@given(JSON)
def test_encoded_frame_is_ascii_and_round_trips(payload: Any) -> None:
    text = frames.response_frame("1", payload)
    assert text.isascii()
    found = json.loads(text)
    assert found["ok"] is True
    assert repr(found.get("payload")) == repr(payload)


def test_error_frame_carries_retry_after() -> None:
    shown = json.loads(frames.error_frame("1", UnavailableError("busy", retry_after_ms=5)))
    assert shown["error"] == {
        "code": "UNAVAILABLE",
        "message": "busy",
        "retryable": True,
        "retryAfterMs": 5,
    }
