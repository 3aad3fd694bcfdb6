"""Frontmatter: the YAML that skills use."""

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homarus.skills import frontmatter
from homarus.skills.frontmatter import FrontmatterError, read_frontmatter, read_texts

KEYS = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
LEAVES = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8
)
TREES = st.recursive(
    LEAVES | st.booleans() | st.integers(0, 99),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(KEYS, inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


def write(**lines: str) -> str:
    return "---\n" + "\n".join(f"{key}:{value}" for key, value in lines.items()) + "\n---\nbody"


def dump(tree: object, indent: int) -> list[str]:
    """The tree as block YAML, one leaf on a line; a leaf is written as JSON."""
    pad = " " * indent
    if isinstance(tree, dict):
        return [
            line
            for key, value in tree.items()
            for line in (
                [f"{pad}{key}:", *dump(value, indent + 2)]
                if isinstance(value, dict | list)
                else [f"{pad}{key}: {json.dumps(value)}"]
            )
        ]
    assert isinstance(tree, list)
    return [
        line
        for value in tree
        for line in (
            [f"{pad}-", *dump(value, indent + 2)]
            if isinstance(value, dict | list)
            else [f"{pad}- {json.dumps(value)}"]
        )
    ]


@given(st.dictionaries(KEYS, TREES, min_size=1, max_size=3))
def test_frontmatter_nested_block_becomes_json(tree: dict[str, object]) -> None:
    block = "\n".join(dump(tree, 2))
    found = read_texts(f"---\nname: x\nmetadata:\n{block}\nlast: y\n---\n")
    assert found["name"] == "x" and found["last"] == "y"
    assert json.loads(found["metadata"]) == tree


def test_frontmatter_typical_block_is_parsed() -> None:
    found = read_texts(
        "---\n"
        "name: gh   # the tool\n"
        "metadata:\n"
        "  openclaw:\n"
        '    emoji: "🐙"\n'
        "    # what it needs\n"
        "    requires: { bins: ['gh'], }\n"
        "    os: [darwin, linux]\n"
        "    install:\n"
        "    - kind: brew\n"
        "      formula: gh\n"
        "      stripComponents: 1\n"
        "    - kind: node\n"
        "---\n"
    )
    assert found["name"] == "gh"
    assert json.loads(found["metadata"]) == {
        "openclaw": {
            "emoji": "🐙",
            "requires": {"bins": ["gh"]},
            "os": ["darwin", "linux"],
            "install": [
                {"kind": "brew", "formula": "gh", "stripComponents": 1},
                {"kind": "node"},
            ],
        }
    }


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (" plain words # and a comment", "plain words"),
        (" https://example.org/a#b", "https://example.org/a#b"),
        (" 'it''s' # quoted", "it's"),
        (r' "a \"b\" \u00e9"', 'a "b" é'),
        (" >\n  one\n  line\n\n  next", "one line\nnext"),
        (" |\n  a\n    b\n  c", "a\n  b\nc"),
        (" begins\n  and goes on", "begins and goes on"),
        ("\n  just words\n  on two lines", "just words on two lines"),
        (' {\n  "a": [1],\n}', '{\n  "a": [1],\n}'),
        ('\n  {\n    "a": 1\n  }', '{\n    "a": 1\n  }'),
    ],
)
def test_frontmatter_value_notations_are_parsed(written: str, read: str) -> None:
    text = write(first=" 1", key=written, last=" 2")
    expected = {"first": "1", "key": read, "last": "2"}
    assert read_texts(text) == expected
    assert read_texts("\ufeff" + text.replace("\n", "\r\n")) == expected


@pytest.mark.parametrize("value", ["", " ", " ~", " null", " # only a comment"])
def test_frontmatter_empty_value_is_omitted(value: str) -> None:
    assert read_texts(write(key=value)) == {}


@pytest.mark.parametrize("text", ["", "---", "---\na: 1", "x\n---\na: 1\n---", "--- a: 1 ---"])
def test_frontmatter_without_closed_block_is_empty(text: str) -> None:
    assert read_texts(text) == {}


def test_frontmatter_repeated_key_is_refused() -> None:
    with pytest.raises(FrontmatterError, match="line 3 has the key a a second time"):
        read_frontmatter("---\na: 1\na: 2\n---")
    assert read_texts("---\na: 1\na: 2\n---") == {}


@example("1: >")
@given(st.text(st.sampled_from("ab:- \n\t#'\"[]{},|>~1"), max_size=60))
def test_frontmatter_any_block_gives_text(body: str) -> None:
    found = read_texts(f"---\n{body}\n---")
    # An empty text, as of `1: >` or `a: ''`, is a text; a key without a value is left out.
    assert all(isinstance(value, str) for value in found.values())


@pytest.mark.parametrize(
    "body",
    [
        "a:\n" + "".join(" " * n + "k:\n" for n in range(1, 300)),
        "a:\n  b" + " " * 60_000 + "c",
        "a:\n" + "  - - - - - - -\n" * 3_000,
        "a: '" + "''" * 30_000,
        'a: "' + "\\" * 60_000,
        "a:\n  b: " + "[" * 60_000,
        "a:\n" + "\n" * 60_000,
        "a: x" + " " * 60_000 + "#",
        "x" * 10_000_000,
    ],
)
def test_frontmatter_untrusted_block_is_fast(body: str) -> None:
    started = time.process_time()
    read_texts(f"---\n{body}\n---\n")
    assert time.process_time() - started < 2


def test_frontmatter_block_metadata_is_compact_json() -> None:
    text = "---\nmetadata:\n  openclaw:\n    emoji: x\n    os: [linux]\nname: ''\n---\n"
    metadata = '{"openclaw":{"emoji":"x","os":["linux"]}}'
    assert read_texts(text) == {"metadata": metadata, "name": ""}


def test_frontmatter_numbers_are_written_as_javascript_does() -> None:
    text = "---\nv: 1.0\nw: 1.50\nx: 007\ny: -3\nz: 1.2.3\nid: 123456789012345678\n---"
    assert read_texts(text) == {
        "v": "1",
        "w": "1.5",
        "x": "7",
        "y": "-3",
        "z": "1.2.3",
        "id": "123456789012345678",
    }
    assert read_texts("---\nm:\n  a: 1.5\n  b: 2.0\n---") == {"m": '{"a":1.5,"b":2}'}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("True", True),
        ("null", None),
        ("2026-02-17", "2026-02-17"),
        ("12:30", "12:30"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("1e3", 1000),
        ("-1.5", -1.5),
        ("9" * 5_000, "9" * 5_000),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
        ("&x a", "a"),
    ],
)
def test_frontmatter_values_have_the_types_of_yaml_1_2(written: str, read: object) -> None:
    assert read_frontmatter(f"---\nkey: {written}\n---\n") == {"key": read}


def test_frontmatter_alias_repeats_a_value() -> None:
    text = "---\na: &bins [gh, jq]\nb: *bins\nc: {<<: 1}\n---\n"
    assert read_frontmatter(text) == {"a": ["gh", "jq"], "b": ["gh", "jq"], "c": {"<<": 1}}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("description: Use when: it rains", {"description": "Use when: it rains"}),
        ('description: it\'s: "so"', {"description": 'it\'s: "so"'}),
        ("a: x:\nb: 2", {"a": "x:", "b": 2}),
        ("metadata: {openclaw: {emoji: 'x'}} // why", {"metadata": {"openclaw": {"emoji": "x"}}}),
        ('metadata:\n  {\n\t"a": 1, // one\n  }\nb: 1', {"metadata": {"a": 1}, "b": 1}),
        ('metadata: {"a":\n  1, /* c */\n}\nb: 1', {"metadata": {"a": 1}, "b": 1}),
        ('a: "\\ud83d\\udc19"', {"a": "🐙"}),
        ('metadata: {"a": "\\ud83d\\udc19"}', {"metadata": {"a": "🐙"}}),
    ],
)
def test_frontmatter_common_mistakes_are_corrected(written: str, read: object) -> None:
    assert read_frontmatter(f"---\n{written}\n---\n") == read


@pytest.mark.parametrize("written", ["a: x: y\na: 1", "a: x: y\nb: [", "metadata: {a: 1, a: 2} //"])
def test_frontmatter_correction_does_not_hide_other_mistakes(written: str) -> None:
    with pytest.raises(FrontmatterError):
        read_frontmatter(f"---\n{written}\n---\n")


def test_frontmatter_is_the_same_without_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    texts = [
        "---\nname: x\nmetadata:\n  {\n    'a': [1, 2,],\n  }\n---\n",
        "---\na: &a [1]\nb: *a\nc: |\n  d\n---\n",
        '---\na: "\\ud83d\\udc19"\nb: {"c": "é"}\n---\n',
    ]
    before = [(read_frontmatter(text), read_texts(text)) for text in texts]
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert [(read_frontmatter(text), read_texts(text)) for text in texts] == before
    for bad in (
        "a: !x 1",
        "a: 1\na: 1",
        "a: " + "[" * 30,
        "a: *b",
        'a: "\\ud800"',
        "a:\tb\n\tc: 1",
    ):
        with pytest.raises(FrontmatterError):
            read_frontmatter(f"---\n{bad}\n---\n")


PIECES = st.lists(
    st.sampled_from(
        ["a", "Use", "x1", " ", ":", "#", '"', "'", "{", "}", "[", "]", ",", "&", "*", "!", "|",
         ">", "-", "%", "@", "`", "~", "null", "true", "1", "\\", "\t", "\n", "\u2028", "\x07",
         "é", "🐙", '{"a": "b"}', '{"a": ["b", {"c": true}]}', '{"a": 1}', ": ", " #", "  "]
    ),
    max_size=6,
).map("".join)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "name"]), PIECES), min_size=1, max_size=3))
def test_frontmatter_simple_lines_are_read_as_by_yaml(
    lines: list[tuple[str, str]],
) -> None:
    block = "".join(f"{key}: {value}\n" for key, value in lines)
    texts: dict[str, str] = {}
    simple = frontmatter._parse_simple(block, texts)
    if simple is not None:
        written: dict[str, str] = {}
        assert frontmatter._parse_yaml(block, written) == simple
        assert written == texts


def test_frontmatter_deep_object_in_one_line_is_refused() -> None:
    nested = '{"a": ' * 30 + '"b"' + "}" * 30
    with pytest.raises(FrontmatterError, match="level"):
        read_frontmatter(f"---\nmetadata: {nested}\n---\n")
