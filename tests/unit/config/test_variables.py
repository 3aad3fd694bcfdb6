"""`${NAME}`."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.variables import (
    config_variables,
    missing_variables,
    read_env_file,
)
from homarus.core.errors import ConfigError
from tests.vectors.config_functions import resolve_env_vars

CASES = json.loads(
    (Path(__file__).parents[2] / "data/vectors/gateway.json").read_text(encoding="utf-8")
)["cases"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [(c["input"], c["expected"]) for c in CASES if c["fn"] == "resolve_config_env_vars"],
)
def test_variables_resolve_as_in_the_vectors_file(args: list[Any], expected: Any) -> None:
    if isinstance(expected, dict) and "$throws" in expected:
        with pytest.raises(ConfigError):
            resolve_env_vars(*args)
    else:
        assert resolve_env_vars(*args) == expected


def test_substitute_escapes_and_does_not_recurse() -> None:
    env = {"A": "${B}", "B": "b"}
    assert resolve_env_vars(["$${B}", "${A}", "x${B}y${B}", "${", "${B"], env) == [
        "${B}",
        "${B}",
        "xbyb",
        "${",
        "${B",
    ]


def test_missing_variable_error_names_its_key_path() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_env_vars({"a": [{"b": "${NOPE}"}]}, {})
    assert caught.value.key == "a[0].b"
    assert "NOPE" in caught.value.reason
    assert "NOPE" in caught.value.fix


def test_missing_variables_include_empty_ones() -> None:
    assert list(missing_variables({"a": "${X}"}, {"X": ""})) == [(("a",), "X")]


@given(st.dictionaries(st.text(max_size=5), st.text(st.characters(exclude_characters="$"))))
def test_substitute_text_without_variables_is_unchanged(tree: dict[str, str]) -> None:
    assert resolve_env_vars(tree, {}) == tree


def test_config_variables_include_vars_and_siblings() -> None:
    tree = {"env": {"A": "1", "vars": {"B": "2${HOME}", "C": "${GONE}", "A": "3"}, "shellEnv": {}}}
    assert config_variables(tree, {"HOME": "h"}) == {"A": "3", "B": "2h"}
    assert config_variables({"env": 5}, {}) == {}


def test_config_variable_referring_to_itself_is_missing() -> None:
    assert config_variables({"env": {"vars": {"A": "${A}"}}}, {}) == {}


def test_read_env_file_parses_like_a_shell() -> None:
    text = (
        "\ufeff# keys\nA=1\n export B = two words # why\nC='$x \"y\"' # z\n"
        'D="a\\nb\\"c"\n\nE=\nF=a#b\nnot a line\n=x\n'
    )
    assert read_env_file(text) == (
        {"A": "1", "B": "two words", "C": '$x "y"', "D": 'a\nb"c', "E": "", "F": "a#b"},
        (9, 10),
    )
