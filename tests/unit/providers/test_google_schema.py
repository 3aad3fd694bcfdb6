"""Tools' JSON schemas in Gemini's subset."""

import json
import time
from typing import Any, Literal

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from homarus.providers.google_schema import MAX_NODES, parameters

KEYWORDS = {
    *("type", "description", "nullable", "enum", "format", "anyOf"),
    *("properties", "required", "items", "minItems", "maxItems", "minimum", "maximum"),
}


def place(schema: Any, **root: Any) -> Any:
    """What becomes of a schema that stands at one property."""
    made = parameters({"type": "object", "properties": {"x": schema}, **root})
    assert made is not None
    return made["properties"]["x"]


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        ({"type": "string", "description": "A."}, {"type": "STRING", "description": "A."}),
        ({"type": "STRING"}, {"type": "STRING"}),
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
        ({"type": "string", "nullable": True}, {"type": "STRING", "nullable": True}),
        ({"type": "null"}, {"type": "NULL"}),
        ({}, {"type": "STRING"}),
        (True, {"type": "STRING"}),
        (None, {"type": "STRING"}),
        ({"type": "file"}, {"type": "STRING"}),
        ({"const": "a"}, {"type": "STRING", "enum": ["a"]}),
        ({"enum": ["a", None, "b", "a"]}, {"type": "STRING", "enum": ["a", "b"], "nullable": True}),
        ({"enum": [1, 2]}, {"type": "INTEGER", "description": "One of: 1, 2."}),
        (
            {"type": "number", "enum": [0.5], "description": "How much."},
            {"type": "NUMBER", "description": "How much. One of: 0.5."},
        ),
        ({"enum": ["a", 1]}, {"type": "STRING", "description": 'One of: "a", 1.'}),
        ({"enum": ["", "a"]}, {"type": "STRING", "description": 'One of: "", "a".'}),
        ({"enum": []}, {"type": "STRING"}),
        ({"const": True}, {"type": "BOOLEAN"}),
        ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}),
        ({"type": "string", "format": "uri", "pattern": "^(?=x)"}, {"type": "STRING"}),
        ({"enum": ["a"], "format": "date-time"}, {"type": "STRING", "enum": ["a"]}),
        ({"type": "integer", "format": "int32"}, {"type": "INTEGER", "format": "int32"}),
        (
            {"type": "integer", "minimum": 1, "maximum": 9.5, "exclusiveMinimum": 0},
            {"type": "INTEGER", "minimum": 1, "maximum": 9.5},
        ),
        ({"type": "number", "minimum": True, "maximum": 10**400}, {"type": "NUMBER"}),
        ({"minimum": 1}, {"type": "NUMBER", "minimum": 1}),
        ({"type": "string", "minimum": 1, "minItems": 3}, {"type": "STRING"}),
        ({"type": "array"}, {"type": "ARRAY", "items": {"type": "STRING"}}),
        (
            {"items": {"type": "integer"}, "minItems": 1, "maxItems": -1, "uniqueItems": True},
            {"type": "ARRAY", "items": {"type": "INTEGER"}, "minItems": 1},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
            {"type": "ARRAY", "items": {"anyOf": [{"type": "INTEGER"}, {"type": "STRING"}]}},
        ),
        ({"type": "array", "items": []}, {"type": "ARRAY", "items": {"type": "STRING"}}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "OBJECT"}),
        (
            {"properties": {"": {}, "a": {}}},
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
        ),
        (
            {"properties": {"a": {"type": "boolean"}}, "required": ["a", "b", "a", 5]},
            {"type": "OBJECT", "properties": {"a": {"type": "BOOLEAN"}}, "required": ["a"]},
        ),
        (
            {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "N.", "default": 1},
            {"type": "INTEGER", "nullable": True, "description": "N."},
        ),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, {"type": "STRING", "enum": ["a", "b"]}),
        (
            {
                "anyOf": [{"type": "string"}, {"type": "integer"}, {"const": None}],
                "description": "E.",
            },
            {
                "anyOf": [
                    {"type": "STRING", "nullable": True, "description": "E."},
                    {"type": "INTEGER", "nullable": True, "description": "E."},
                ]
            },
        ),
        (
            {"type": ["string", "number"], "description": "E.", "minimum": 1},
            {
                "anyOf": [
                    {"type": "STRING", "description": "E."},
                    {"type": "NUMBER", "minimum": 1, "description": "E."},
                ]
            },
        ),
        (
            {"anyOf": [{"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "integer"}]},
            {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]},
        ),
        ({"anyOf": [{"type": "null"}]}, {"type": "STRING", "nullable": True}),
        ({"anyOf": []}, {"type": "STRING"}),
        ({"type": "string", "anyOf": [{"pattern": "a"}, {"pattern": "b"}]}, {"type": "STRING"}),
        ({"type": "string", "anyOf": [{"type": "integer"}, {"const": 1}]}, {"type": "STRING"}),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}}},
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
                ],
                "description": "Both.",
            },
            {
                "type": "OBJECT",
                "properties": {"a": {"type": "STRING"}, "b": {"type": "INTEGER"}},
                "required": ["a", "b"],
                "description": "Both.",
            },
        ),
        ({"not": {"type": "string"}, "if": {}, "$schema": "x", "title": "T"}, {"type": "STRING"}),
    ],
)  # fmt: skip
def test_schema_keyword_is_translated(schema: Any, want: Any) -> None:
    made = place(schema)
    assert made == want
    types.Schema.model_validate(made)


def test_schema_references_are_inlined() -> None:
    defs = {
        "Name": {"type": "string", "description": "A name."},
        "a/b~c": {"type": "integer"},
        "Both": {"allOf": [{"$ref": "#/$defs/Name"}]},
    }
    for ref, kind in (("Name", "STRING"), ("a~1b~0c", "INTEGER"), ("Both", "STRING")):
        assert place({"$ref": f"#/$defs/{ref}"}, **{"$defs": defs})["type"] == kind
    named = place({"$ref": "#/$defs/Name", "description": "Whose."}, **{"$defs": defs})
    assert named == {"type": "STRING", "description": "Whose."}
    listed = place({"$ref": "#/allOf/0"}, allOf=[{"type": "boolean"}])
    assert listed == {"type": "BOOLEAN"}


@pytest.mark.parametrize(
    "ref", ["#/$defs/gone", "other.json#/x", "#/allOf/9", "#/allOf/x", "", "#nowhere", 5]
)
def test_schema_dangling_reference_allows_anything(ref: Any) -> None:
    assert place({"$ref": ref, "description": "D."}, allOf=[]) == {
        "type": "STRING",
        "description": "D.",
    }


def test_schema_recursion_is_cut() -> None:
    class Tree(BaseModel):
        name: str
        children: list["Tree"] = Field(description="More of them.")

    class Holder(BaseModel):
        tree: Tree

    made = parameters(Holder.model_json_schema())
    assert made is not None
    tree = made["properties"]["tree"]
    assert tree["required"] == ["name", "children"]
    assert tree["properties"]["children"] == {
        "type": "ARRAY",
        "items": {"type": "OBJECT"},
        "description": "More of them.",
    }
    assert parameters({"$ref": "#"}) is None
    assert parameters({"allOf": [{"$ref": "#/allOf/0"}]}) is None


def test_schema_alternatives_merge_into_one_object() -> None:
    made = parameters(
        {
            "description": "Do it.",
            "oneOf": [
                {
                    "properties": {"do": {"const": "add"}, "text": {"type": "string"}},
                    "required": ["do", "text"],
                },
                {
                    "properties": {"do": {"const": "drop"}, "id": {"type": "integer"}},
                    "required": ["id", "do"],
                },
            ],
        }
    )
    assert made == {
        "type": "OBJECT",
        "description": "Do it.",
        "properties": {
            "do": {"type": "STRING", "enum": ["add", "drop"]},
            "text": {"type": "STRING"},
            "id": {"type": "INTEGER"},
        },
        "required": ["do"],
    }


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"type": "object", "properties": {}}, {"type": "array"}]
)
def test_schema_of_tool_without_arguments_is_omitted(schema: dict[str, Any]) -> None:
    assert parameters(schema) is None


def test_schema_of_python_signature_is_preserved() -> None:
    class Args(BaseModel):
        path: str = Field(description="Where.")
        limit: int | None = Field(default=None, ge=1, le=50)
        mode: Literal["read", "write"] = "read"
        level: Literal[1, 2] = 1
        tags: list[str] = []
        env: dict[str, str] = {}
        pair: tuple[int, str] = (1, "a")
        anything: Any = None

    made = parameters(Args.model_json_schema())
    assert made is not None
    types.Schema.model_validate(made)
    assert made["required"] == ["path"]
    places = made["properties"]
    assert places["limit"] == {"type": "INTEGER", "minimum": 1, "maximum": 50, "nullable": True}
    assert places["mode"] == {"type": "STRING", "enum": ["read", "write"]}
    assert places["level"] == {"type": "INTEGER", "description": "One of: 1, 2."}
    assert places["env"] == {"type": "OBJECT"}
    assert places["anything"] == {"type": "STRING"}


@pytest.mark.parametrize("word", ["properties", "allOf", "anyOf"])
def test_schema_multiplying_references_stay_cheap(word: str) -> None:
    def level(n: int) -> dict[str, Any]:
        refs = [{"$ref": f"#/$defs/L{n + 1}", "description": str(i)} for i in range(10)]
        return {
            word: {f"p{i}": ref for i, ref in enumerate(refs)} if word == "properties" else refs
        }

    bomb = {"$ref": "#/$defs/L0", "$defs": {f"L{n}": level(n) for n in range(30)}}
    start = time.process_time()
    made = parameters({"type": "object", "properties": {"x": bomb}, "$defs": bomb["$defs"]})
    assert time.process_time() - start < 2
    assert len(json.dumps(made)) < MAX_NODES * 100


def test_schema_too_deep_is_left_open() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}}
    made = parameters(deep)
    types.Schema.model_validate(made)
    assert json.dumps(made).count("properties") < 40


words = st.sampled_from(["string", "integer", "object", "array", "null", "OBJECT", "x", ""])
junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["", "a", "date-time"])
)
refs = st.sampled_from(["#", "#/$defs/a", "#/properties/a", "#/anyOf/0", "x"])


def grown(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    listed = st.lists(schemas, max_size=3)
    mapped = st.dictionaries(st.sampled_from(["a", "b", "", "a.b"]), schemas, max_size=3)
    names = st.lists(st.sampled_from(["a", "b"]) | junk, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": words | st.lists(words | junk, max_size=3) | junk,
            "properties": mapped | junk,
            "required": names | junk,
            "items": schemas | listed,
            "prefixItems": listed | junk,
            "anyOf": listed | junk,
            "oneOf": listed | junk,
            "allOf": listed | junk,
            "enum": st.lists(junk, max_size=3) | junk,
            "const": junk | listed,
            "$ref": refs | junk,
            "$defs": mapped | junk,
            "description": junk,
            "nullable": junk,
            "format": junk,
            "minimum": junk,
            "maximum": junk,
            "minItems": junk,
            "additionalProperties": schemas,
            "pattern": junk,
        },
    )


any_schema = st.recursive(junk, grown, max_leaves=12)


def check(node: Any) -> None:
    """The rules Google checks that its types do not."""
    assert set(node) <= KEYWORDS
    if "anyOf" in node:
        assert set(node) == {"anyOf"}, "it must stand alone"
        assert len(node["anyOf"]) > 1
        for one in node["anyOf"]:
            assert "anyOf" not in one
            check(one)
        return
    kind = node["type"]
    assert ("items" in node) == (kind == "ARRAY")
    assert kind == "STRING" or "enum" not in node
    assert all(isinstance(value, str) and value for value in node.get("enum", ["x"]))
    assert kind == "OBJECT" or not {"properties", "required"} & set(node)
    assert set(node.get("required", ())) <= set(node.get("properties", ()))
    assert node.get("properties", True)
    for one in (
        *node.get("properties", {}).values(),
        *([node["items"]] if "items" in node else ()),
    ):
        check(one)


@given(grown(any_schema))
def test_any_schema_is_accepted_by_gemini(schema: dict[str, Any]) -> None:
    made = parameters(schema)
    assert made == parameters(schema)
    if made is not None:
        assert made["type"] == "OBJECT"
        check(made)
        types.FunctionDeclaration.model_validate({"name": "t", "parameters": made})
