import json
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Json
from homarus.core.text import repair_surrogates
from homarus.store.base import TranscriptEntry, TranscriptHeader
from homarus.store.transcript_codec import (
    decode_entry,
    decode_header,
    dump_json,
    encode_entry,
    encode_header,
    format_iso,
    load_json,
    parse_ms,
    read_int,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(json_values, st.booleans())
def test_json_any_value_round_trips(value: Json, pretty: bool) -> None:
    text = dump_json(value, pretty=pretty)
    assert load_json(text) == value
    assert json.loads(text) == value
    assert pretty or "\n" not in text


@given(st.text(st.characters(categories=["Cs", "L"]), max_size=5))
def test_json_half_surrogates_are_written_as_replacements(text: str) -> None:
    written = dump_json({"a": text})
    written.encode()
    assert json.loads(written) == load_json(written) == {"a": repair_surrogates(text)}


def test_json_escaped_surrogate_pair_is_one_character() -> None:
    assert load_json('{"a":"\\ud83d\\ude00 \\uDE00"}') == {"a": "😀 \ufffd"}


def test_json_infinite_numbers_become_null() -> None:
    assert dump_json({"a": float("nan"), "b": [float("-inf")]}) == '{"a":null,"b":[null]}'
    assert load_json('{"a":NaN,"b":-Infinity}') == {"a": None, "b": None}
    assert dump_json({"a": float("nan"), "b": "\ud800"}) == '{"a":null,"b":"\ufffd"}'


def test_json_unencodable_value_is_written_as_text() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    frozen: Mapping[str, Json] = MappingProxyType({"x": (1, 2)})
    assert dump_json({"a": Odd(), "b": frozen}) == '{"a":"odd","b":{"x":[1,2]}}'
    assert dump_json({"a": Odd(), "b": frozen, "c": "\ud800"}).startswith(
        '{"a":"odd","b":{"x":[1,2]}'
    )


def test_json_deep_nesting_is_cut_on_write_and_refused_on_read() -> None:
    deep: Json = []
    for _ in range(900):
        deep = [deep]
    assert load_json(dump_json(deep))
    circle: list[Json] = []
    circle.append(circle)
    assert load_json(dump_json(circle))
    with pytest.raises(ValueError, match=r"deep|recursion"):
        load_json("[" * 200_000)


def test_json_number_of_ten_thousand_digits_is_read() -> None:
    try:
        assert isinstance(load_json("1" * 10_000), int)
    except ValueError:
        return


def test_format_time_matches_openclaw() -> None:
    assert format_iso(1794724639496) == "2026-11-15T06:37:19.496Z"
    assert format_iso(0) == "1970-01-01T00:00:00.000Z"
    assert format_iso(10**18) == "1970-01-01T00:00:00.000Z"


@given(st.integers(0, 4_102_444_800_000))
def test_time_any_value_round_trips(at_ms: int) -> None:
    assert parse_ms(format_iso(at_ms)) == at_ms


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1794724639496, 1794724639496),
        ("2026-04-15T10:01:00Z", 1776247260000),
        ("2026-04-15T10:01:00", 1776247260000),
        ("2026-04-15T12:01:00+02:00", 1776247260000),
        ("soon", 0),
        (None, 0),
        (True, 0),
        ({}, 0),
        (1e300, 0),
        (float("inf"), 0),
        (2**80, 0),
        (12.9, 12),
    ],
)
def test_parse_time_any_value_is_time_or_zero(value: Json, expected: int) -> None:
    assert parse_ms(value) == expected


def test_read_int_any_value_fits_column_or_is_zero() -> None:
    assert [read_int(value) for value in (5, -5, True, "5", 2**63, None)] == [5, -5, 0, 0, 0, 0]


def test_header_line_matches_openclaw() -> None:
    header = TranscriptHeader("60942b18", "main", 1794724639496, "/home/user/w")
    line = (
        '{"type":"session","version":3,"id":"60942b18",'
        '"timestamp":"2026-11-15T06:37:19.496Z","cwd":"/home/user/w"}'
    )
    assert encode_header(header) == line
    assert decode_header(line, "60942b18", "main") == header


def test_read_header_any_shape_is_accepted() -> None:
    assert decode_header('{"cwd":5,"version":"x"}', "s", "main") == TranscriptHeader(
        "s", "main", 0, "", 1
    )


@given(st.dictionaries(st.text(min_size=5), json_values, max_size=4))
def test_entry_line_any_entry_round_trips(data: dict[str, Json]) -> None:
    data = {key: value for key, value in data.items() if key not in {"parentId", "timestamp"}}
    entry = TranscriptEntry("ab12", "cd34", "custom", 1794724639496, data, 3)
    line = encode_entry(entry)
    assert list(json.loads(line))[:4] == ["type", "id", "parentId", "timestamp"]
    assert decode_entry((line, 3, "ab12", "cd34", "custom", 1794724639496)) == entry
