"""Changes to a tree."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.tree_edit import (
    apply_merge_patch,
    deep_merge,
    format_path,
    get_path,
    json_equal,
    parse_path,
    set_path,
    unset_path,
)
from homarus.core.errors import UserError
from tests.vectors.config_functions import diff_config_paths

VECTORS = Path(__file__).parents[2] / "data/vectors/gateway.json"
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(KEYS, TREES, max_size=4)


def cases(fn: str) -> list[Any]:
    found = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]
    picked = [pytest.param(c["input"], c["expected"]) for c in found if c["fn"] == fn]
    assert picked
    return picked


@pytest.mark.parametrize(("args", "expected"), cases("diff_config_paths"))
def test_differing_paths_match_the_vectors(args: list[Any], expected: list[str]) -> None:
    assert diff_config_paths(*args) == expected


@pytest.mark.parametrize(("args", "expected"), cases("apply_merge_patch"))
def test_apply_merge_patch_matches_the_vectors(args: list[Any], expected: Any) -> None:
    base, patch, *rest = args
    by_id = bool(rest) and rest[0]["mergeObjectArraysById"]
    assert apply_merge_patch(base, patch, by_id) == expected


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a", ("a",)),
        ("agents.list[0].id", ("agents", "list", 0, "id")),
        ("agents.list.0.id", ("agents", "list", "0", "id")),
        ('a["b.c"].d', ("a", "b.c", "d")),
        ("a['b c'][ 3 ]", ("a", "b c", 3)),
        (r"a.b\.c", ("a", "b.c")),
        ("models.openai/gpt-5", ("models", "openai/gpt-5")),
        ('["a"][1]', ("a", 1)),
    ],
)
def test_parse_path_accepts_all_notations(text: str, steps: tuple[str | int, ...]) -> None:
    assert parse_path(text) == steps


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", ".", ".a", "a.", "a..b", "a[", "a]", "a[]", "a[x]", "a[-1]", 'a["b"]c', 'a[""]'],
        "a\\",
        ".".join("a" * 101),
    ],
)
def test_parse_path_invalid_raises_user_error(text: str) -> None:
    with pytest.raises(UserError, match="not a key path"):
        parse_path(text)


@given(st.lists(KEYS.filter(str.strip) | st.integers(0, 999_999), min_size=1, max_size=6))
def test_format_path_is_parsed_back(steps: list[str | int]) -> None:
    assert parse_path(format_path(steps)) == tuple(steps)


@given(OBJECTS, st.lists(KEYS, min_size=1, max_size=4), TREES)
def test_set_path_changes_only_that_value(
    tree: dict[str, Any], path: list[str], value: Any
) -> None:
    before = copy.deepcopy(tree)
    try:
        after = set_path(tree, path, value)
    except UserError:
        return  # a plain value or a list stood in the way
    assert json_equal(get_path(after, path), value)
    assert json_equal(tree, before)
    for key in tree.keys() - {path[0]}:
        assert json_equal(after[key], tree[key])
    assert set(after) == set(tree) | {path[0]}


@given(OBJECTS, KEYS, KEYS, TREES)
def test_unset_path_undoes_set_path(
    tree: dict[str, Any], section: str, key: str, value: Any
) -> None:
    tree = {**tree, section: {}}
    assert json_equal(unset_path(set_path(tree, (section, key), value), (section, key)), tree)


def test_list_entry_is_set_added_and_removed() -> None:
    tree = {"l": [{"id": "a"}, {"id": "b"}]}
    assert set_path(tree, ("l", 1, "n"), 1) == {"l": [{"id": "a"}, {"id": "b", "n": 1}]}
    assert set_path(tree, ("l", "0"), 5) == {"l": [5, {"id": "b"}]}
    assert set_path(tree, ("l", 2, "id"), "c")["l"][2] == {"id": "c"}
    assert unset_path(tree, ("l", 0)) == {"l": [{"id": "b"}]}
    with pytest.raises(UserError, match="list of 2"):
        set_path(tree, ("l", 3), 5)
    with pytest.raises(UserError):
        set_path(tree, ("l", "x"), 5)


def test_set_path_creates_missing_containers() -> None:
    assert set_path({}, ("a", "b", 0, "c"), 1) == {"a": {"b": [{"c": 1}]}}


def test_set_path_through_scalar_raises_user_error() -> None:
    with pytest.raises(UserError, match="not an object"):
        set_path({"a": "text"}, ("a", "b"), 1)


@pytest.mark.parametrize("path", [("x",), ("a", "x"), ("l", 5), ("l", "x"), ("l", 0, "x")])
def test_get_path_missing_raises_lookup_error(path: tuple[str | int, ...]) -> None:
    tree = {"a": {}, "l": [1]}
    with pytest.raises(LookupError):
        get_path(tree, path)
    with pytest.raises(LookupError):
        unset_path(tree, path)


@given(TREES)
def test_merge_patch_empty_changes_nothing(tree: Any) -> None:
    expected = tree if isinstance(tree, dict) else {}
    assert json_equal(apply_merge_patch(tree, {}), expected)


@given(TREES, TREES)
def test_merge_patch_is_idempotent(tree: Any, patch: Any) -> None:
    once = apply_merge_patch(tree, patch)
    assert json_equal(apply_merge_patch(once, patch), once)


@given(OBJECTS, OBJECTS)
def test_merge_patch_keeps_other_keys(tree: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy(tree)
    after = apply_merge_patch(tree, patch)
    assert json_equal(tree, before)
    for key in tree.keys() - patch.keys():
        assert json_equal(after[key], tree[key])
    assert not [key for key, value in patch.items() if value is None and key in after]


def test_merge_by_id_list_without_ids_is_replaced() -> None:
    patched = apply_merge_patch({"l": [1], "m": [{"id": 1}]}, {"l": [2], "m": [{"id": 1}]}, True)
    assert patched == {"l": [2], "m": [{"id": 1}]}


def test_merge_by_id_keeps_entries_and_merges_deeply() -> None:
    base = {"l": [{"id": "a", "o": {"x": 1, "y": [{"id": "q", "n": 1}]}}, {"id": "b"}]}
    patch = {"l": [{"id": "a", "o": {"x": None, "y": [{"id": "q", "m": 2}]}}, {"new": 1}]}
    assert apply_merge_patch(base, patch, True) == {
        "l": [{"id": "a", "o": {"y": [{"id": "q", "n": 1, "m": 2}]}}, {"id": "b"}, {"new": 1}]
    }


@given(TREES)
def test_differing_paths_of_equal_trees_is_empty(tree: Any) -> None:
    assert diff_config_paths(tree, copy.deepcopy(tree)) == []


def test_differing_paths_true_differs_from_one() -> None:
    assert diff_config_paths({"a": 1}, {"a": True}) == ["a"]
    assert diff_config_paths({"a": {"b": 1, "c": 2}}, {"a": {"b": 2, "c": 2}}) == ["a.b"]
    assert diff_config_paths(1, 2) == ["<root>"]


def test_deep_merge_merges_objects_and_joins_lists() -> None:
    merged = deep_merge({"a": {"x": 1, "l": [1]}, "b": 1}, {"a": {"y": 2, "l": [2]}, "b": [3]})
    assert merged == {"a": {"x": 1, "y": 2, "l": [1, 2]}, "b": [3]}
