"""Converting tool schemas for OpenAI."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.providers.openai_schema import fits_strict, parameters

CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
TEXT = {"type": "string", "description": "Words."}


def closed(**properties: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": properties, "required": sorted(properties)}


def test_plain_schema_is_unchanged() -> None:
    assert parameters(closed(path=TEXT)) == closed(path=TEXT)


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": None, "properties": None}])
def test_schema_missing_top_fields_are_added(schema: dict[str, Any]) -> None:
    assert parameters(schema) == {"type": "object", "properties": {}}


def test_schema_top_alternatives_become_properties() -> None:
    variants = [
        {"properties": {"a": {"type": "integer"}, "b": TEXT}},
        {"properties": {"c": TEXT}},
        True,
    ]
    schema = {"properties": {"a": TEXT}, "anyOf": variants, "not": {"required": ["b"]}}
    assert parameters(schema) == {"type": "object", "properties": {"a": TEXT, "b": TEXT, "c": TEXT}}


@pytest.mark.parametrize(
    "schema",
    [
        CLOSED,
        closed(a=TEXT, b={"type": "array", "items": closed(c={"enum": ["x", 1]})}),
        closed(a={"anyOf": [{"type": "null"}, TEXT]}),
        closed(a={"type": ["integer", "null"], "minimum": 1}),
        {**closed(a={"$ref": "#/$defs/n"}), "$defs": {"n": {"type": "number"}}},
    ],
)
def test_schema_closed_with_all_required_is_strict(
    schema: dict[str, Any],
) -> None:
    assert fits_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}},
        {**CLOSED, "properties": {"a": TEXT}},
        {**CLOSED, "properties": {"a": TEXT}, "required": ["a", "b"]},
        closed(a={}),
        closed(a={"description": "anything"}),
        closed(a={"type": "array"}),
        closed(a={"type": "object"}),
        closed(a={**TEXT, "default": "x"}),
        closed(a={"oneOf": [TEXT]}),
        closed(a={"anyOf": [{"type": "object"}]}),
        closed(a=True),
        {**CLOSED, "$defs": {"n": {}}},
        {**CLOSED, "patternProperties": {}},
        {},
        None,
    ],
)
def test_schema_other_is_not_strict(schema: Any) -> None:
    assert not fits_strict(schema)


def test_schema_too_deep_is_not_strict() -> None:
    deep: dict[str, Any] = TEXT
    for _ in range(2000):
        deep = closed(a=deep)
    assert not fits_strict(deep)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "array", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "anyOf", "items", "required", "$defs", "x"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "anyOf", "allOf", "x"]), json_values))
def test_any_schema_gets_object_top_and_strict_verdict(schema: dict[str, Any]) -> None:
    made = parameters(schema)
    assert made["type"] == "object"
    assert isinstance(made["properties"], dict)
    assert not {"anyOf", "allOf"} & set(made)
    assert fits_strict(schema) in {True, False}
