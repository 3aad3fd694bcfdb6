"""Edits of the text that keep its comments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.json5_document import parse_json5, to_plain
from homarus.config.rewrite import rewrite
from homarus.config.tree_edit import json_equal, parse_path, set_path, unset_path

TEXT = """\
// my settings
{
  // who answers
  agents: {
    defaults: { workspace: "~/ws", model: 'a/b' }, // the one
    list: [
      { id: "a" }, // first
      { id: "b" }  // second
    ]
  },
  /* variables */
  "env": {},
  tools: {
    deny: [ "exec" ], // never
    profile: "full" // all
  }
}
// the end
"""


def edited(*changes: tuple[str, Any]) -> str:
    tree = to_plain(parse_json5(TEXT))
    for path, value in changes:
        steps = parse_path(path)
        tree = unset_path(tree, steps) if value is None else set_path(tree, steps, value)
    done = rewrite(TEXT, tree)
    assert done.kept_layout
    assert to_plain(parse_json5(done.text)) == tree
    return done.text


def test_rewrite_replaces_value_in_place() -> None:
    text = edited(("agents.defaults.model", "c/d"))
    assert text == TEXT.replace("'a/b'", '"c/d"')


def test_rewrite_adds_key_in_style_of_siblings() -> None:
    text = edited(("tools.fs", 1), ("agents.defaults.timeoutSeconds", 5))
    assert '    profile: "full", // all\n    fs: 1\n  }' in text
    assert "model: 'a/b', timeoutSeconds: 5 }, // the one" in text


def test_rewrite_quotes_key_that_is_no_identifier() -> None:
    assert '\n    "a/b": 1\n' in edited(("tools.a/b", 1))


def test_rewrite_fills_empty_object() -> None:
    assert '  "env": {\n    vars: {\n      "A": "x"\n    }\n  },\n' in edited(("env.vars.A", "x"))


def test_rewrite_removed_key_removes_line_and_comma() -> None:
    text = edited(("tools.profile", None))
    assert 'deny: [ "exec" ] // never\n    // all\n  }' in text


def test_rewrite_removed_last_section_removes_its_comma() -> None:
    text = edited(("tools", None))
    assert text.endswith('"env": {}\n}\n// the end\n')


def test_rewrite_adds_list_entry_after_trailing_comment() -> None:
    text = edited(("agents.list[2]", "c"))
    assert '      { id: "b" },  // second\n      "c"\n    ]' in text


def test_rewrite_removes_entry_from_middle_of_list() -> None:
    text = edited(("agents.list[0]", None))
    assert 'list: [\n      // first\n      { id: "b" }  // second\n    ]' in text


def test_rewrite_keeps_strict_json_strict() -> None:
    tree = {"a": {"b": 1, "c": [1, 2]}, "d": {}}
    text = json.dumps(tree, indent=2)
    for new in (
        {"a": {"b": 1}, "d": {}},
        {"a": {"b": 1, "c": [1]}},
        {"a": {"c": [1, 2], "x": {"y": [1, {"z": None}]}}, "d": {"e": 1}},
        {},
    ):
        assert json.loads(rewrite(text, new).text) == new


def test_rewrite_keeps_windows_line_ends() -> None:
    text = '{\r\n  "a": 1\r\n}\r\n'
    assert rewrite(text, {"a": 1, "b": [1]}).text == (
        '{\r\n  "a": 1,\r\n  "b": [\r\n    1\r\n  ]\r\n}\r\n'
    )


def test_rewrite_keeps_trailing_comma_style() -> None:
    assert rewrite("{\n  a: 1,\n}\n", {"a": 1, "b": 2}).text == "{\n  a: 1,\n  b: 2,\n}\n"
    assert rewrite("{\n  a: 1,\n  b: 2,\n}\n", {"a": 1}).text == "{\n  a: 1,\n}\n"


def test_rewrite_keeps_byte_order_mark() -> None:
    assert rewrite("\ufeff{a: 1}", {"a": 2}).text == "\ufeff{a: 2}"


@pytest.mark.parametrize("text", ["{/* c */}", "{ // c\n}", "{\n  // c\n}", "{}", "{ }", "{\n}"])
def test_rewrite_keeps_comments_in_empty_object(text: str) -> None:
    done = rewrite(text, {"a": 1})
    assert done.kept_layout
    assert ("c" in done.text) == ("c" in text)


KEYS = st.sampled_from(["a", "b", "c", "d e", "f-g"])
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "// no", "é"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(KEYS, TREES, max_size=4)
GAPS = st.sampled_from(["", "", " ", "\n", "\n  ", " // c\n", "/* c */", "\r\n\t", " /* c\n */ "])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A tree in somebody's handwriting."""

    def render(value: Any) -> str:
        if isinstance(value, dict):
            entries = [
                draw(GAPS) + key(name) + draw(GAPS) + ":" + draw(GAPS) + render(item)
                for name, item in value.items()
            ]
            return "{" + join(entries) + "}"
        if isinstance(value, list):
            return "[" + join([draw(GAPS) + render(item) for item in value]) + "]"
        return json.dumps(value)

    def key(name: str) -> str:
        style = draw(st.sampled_from(["bare", "single", "double"]))
        if style == "bare" and name.isidentifier():
            return name
        return f"'{name}'" if style == "single" else json.dumps(name)

    def join(entries: list[str]) -> str:
        trailing = draw(st.sampled_from(["", ","])) if entries else ""
        return (draw(GAPS) + ",").join(entries) + draw(GAPS) + trailing + draw(GAPS)

    return draw(GAPS) + render(draw(OBJECTS)) + draw(GAPS)


@given(texts(), OBJECTS)
def test_rewrite_any_text_takes_any_change(text: str, new: dict[str, Any]) -> None:
    done = rewrite(text, new)
    assert json_equal(to_plain(parse_json5(done.text)), new)
    assert done.kept_layout


@given(texts(), st.sampled_from(["a", "b", "c", "new"]), LEAVES)
def test_rewrite_adding_or_replacing_scalar_keeps_comments(
    text: str, name: str, value: Any
) -> None:
    tree = to_plain(parse_json5(text))
    if isinstance(tree.get(name), dict | list):
        return
    done = rewrite(text, {**tree, name: value})
    for mark in ("// c", "/* c"):
        assert done.text.count(mark) == text.count(mark)


@given(texts())
def test_rewrite_without_change_returns_same_text(text: str) -> None:
    assert rewrite(text, to_plain(parse_json5(text))).text == text
