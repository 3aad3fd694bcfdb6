"""JSON5 with places."""

import json

import json5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.json5_document import MAX_DEPTH, line_and_column, locate, parse_json5, to_plain
from homarus.core.errors import ConfigError

SAYABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9), SAYABLE
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SAYABLE, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "{a: 1, 'b': 2, \"c\": 3,}",
        "[1, 2, 3,]",
        "// first\n{ /* in */ a: [ // end\n 1 ] /**/ }\n// last",
        "{$a: 1, _b: 2, ünïcode: 3, \\u0061b: 4}",
        "[0x1F, -0x10, .5, 5., +1, -1.5e3, 1E-2, 0]",
        "'single \"double\" inside'",
        '"it\'s"',
        r'"\b\f\n\r\t\v\x41\u00e9\'\"\\\/\q"',
        '"one \\\nline"',
        '"one \\\r\nline"',
        "{a:{b:{c:[[[]]]}}}",
        "\ufeff\u00a0{\u2028a\u3000:\t1\v}\f",
        "[true,false,null]",
    ],
)
def test_parse_json5_agrees_with_the_json5_library(text: str) -> None:
    assert to_plain(parse_json5(text)) == json5.loads(text)


@given(TREES)
def test_parse_json5_accepts_json(tree: object) -> None:
    assert to_plain(parse_json5(json.dumps(tree))) == tree
    assert to_plain(parse_json5(json.dumps(tree, ensure_ascii=False, indent=3))) == tree


@given(st.text() | st.text(alphabet="{}[]:,'\"\\/*\n ae0x1.-u"))
def test_parse_json5_any_text_is_parsed_or_error_has_position(text: str) -> None:
    error = None
    try:
        parse_json5(text, "f")
    except ConfigError as exc:
        error = exc
    assert error is None or (error.file, error.line >= 1) == ("f", True)
    assert error is None or "column" in error.reason


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("", 1, 1, "empty"),
        ("  \n ", 2, 2, "empty"),
        ("{\n  a: 1\n  b: 2\n}", 3, 3, "expected , or }"),
        ("{\n  a: foo,\n}", 2, 6, "found foo"),
        ("{a: 1", 1, 6, "end of the file"),
        ("{a 1}", 1, 4, "expected : after the key 'a'"),
        ("{1a: 1}", 1, 2, "expected a key"),
        ("[1 2]", 1, 4, "expected , or ]"),
        ("[,]", 1, 2, "expected a value"),
        ("{a: 'x\n'}", 1, 5, "no end on its line"),
        ("/* never", 1, 1, "never closed"),
        ("{} {}", 1, 4, "nothing may follow"),
        ("{a: 1,\n a: 2}", 2, 2, "second time; the first is in line 1"),
        ("{\"a\": 1, 'a': 2}", 1, 10, "second time"),
        ("[NaN]", 1, 2, "NaN"),
        ("[-Infinity]", 1, 2, "expected a value"),
        ("[1e999]", 1, 2, "out of range"),
        ("[" + "9" * 5000 + "]", 1, 2, "out of range"),
        ("[0" + "0" * 9 + "]", 1, 2, "expected a value"),
        ('["\\ud800"]', 1, 3, "surrogate"),
        ('["\\udc00\\ud800"]', 1, 3, "surrogate"),
        ("['\ud800']", 1, 3, "no setting may hold"),
        ('["a\0"]', 1, 4, "no setting may hold"),
        ('["\\0"]', 1, 3, "NUL"),
        ('["\\1"]', 1, 3, "bad escape"),
        ('["\\u12"]', 1, 3, "bad escape"),
        ("\r\n\r\n{a:}", 3, 4, "expected a value"),
    ],
)
def test_parse_json5_error_has_line_and_column(
    text: str, line: int, column: int, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_json5(text, "f.json")
    assert caught.value.line == line
    assert f"column {column}:" in caught.value.reason
    assert says in caught.value.reason


def test_parse_json5_unclosed_brace_names_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_json5("{\n a: {\n  b: 1,\n c: 2\n}\n")
    assert caught.value.fix == "the { to close is in line 1"


@pytest.mark.parametrize("opener", ["[", "{a:"])
def test_parse_json5_deep_nesting_raises_config_error(opener: str) -> None:
    with pytest.raises(ConfigError, match="deeper"):
        parse_json5(opener * 200_000)
    closer = "]" if opener == "[" else "}"
    inner = "1" if opener == "{a:" else ""
    to_plain(parse_json5(opener * MAX_DEPTH + inner + closer * MAX_DEPTH))


def test_parse_json5_surrogate_pair_is_one_character() -> None:
    assert to_plain(parse_json5('"\\ud83e\\udd9e"')) == "🦞"


def test_parse_json5_zero_fraction_is_an_integer() -> None:
    values = to_plain(parse_json5("[5.0, 2e3, 1.5]"))
    assert [type(value) for value in values] == [int, int, float]


def test_locate_returns_the_deepest_existing_step() -> None:
    text = "{\n a: {\n  b: [1,\n   {c: 2}]}}"
    root = parse_json5(text)

    def where(*path: str | int) -> tuple[int, int]:
        position, found = locate(root, path)
        return line_and_column(text, position)[0], found

    assert where("a") == (2, 1)
    assert where("a", "b") == (3, 2)
    assert where("a", "b", 1, "c") == (4, 4)
    assert where("a", "b", 9) == (3, 2)
    assert where("a", "x", "y") == (2, 1)
    assert where("z") == (1, 0)
