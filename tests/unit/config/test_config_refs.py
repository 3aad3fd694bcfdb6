"""Model references."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.refs import (
    ModelRef,
    aliases,
    normalize_provider_id,
    parse_model_ref,
    resolve_model_ref,
)
from homarus.config.schema import Config

CASES = json.loads(
    (Path(__file__).parents[2] / "data/vectors/misc.json").read_text(encoding="utf-8")
)["cases"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [(c["input"], c["expected"]) for c in CASES if c["fn"] == "parse_model_ref"],
)
def test_references_are_read_as_in_the_vectors(args: list[str], expected: dict[str, str]) -> None:
    assert parse_model_ref(*args) == (ModelRef(**expected) if expected else None)


@pytest.mark.parametrize(
    ("args", "expected"),
    [(c["input"], c["expected"]) for c in CASES if c["fn"] == "normalize_provider_id"],
)
def test_provider_ids_are_those_of_the_vectors(args: list[str], expected: str) -> None:
    assert normalize_provider_id(*args) == expected


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        (" openai / gpt-5 ", "openai/gpt-5"),
        ("opencode-zen/x", "opencode/x"),
        ("Anthropic/Sonnet-4.6", "anthropic/claude-sonnet-4-6"),
        ("anthropic/claude-opus-4-6", "anthropic/claude-opus-4-6"),
        ("ollama/qwen3:8b", "ollama/qwen3:8b"),
        ("openai/", None),
        ("/", None),
        ("  ", None),
    ],
)
def test_other_ways_to_write_a_reference_are_read(text: str, ref: str | None) -> None:
    found = parse_model_ref(text, "x")
    assert (str(found) if found else None) == ref


@given(st.text(), st.text())
def test_a_reference_shown_is_the_reference_read(text: str, provider: str) -> None:
    ref = parse_model_ref(text, provider)
    if ref and "/" not in ref.provider:
        assert parse_model_ref(str(ref), "") == ref


def config(models: dict[str, Any]) -> Config:
    return Config.model_validate({"agents": {"defaults": {"models": models}}})


def test_an_alias_of_the_config_means_its_model() -> None:
    own = config({"openai/gpt-5.2": {"alias": "Fast"}})
    assert resolve_model_ref(" fast ", own, "x") == ModelRef("openai", "gpt-5.2")
    assert resolve_model_ref("slow", own, "x") == ModelRef("x", "slow")


def test_the_usual_aliases_exist_only_where_their_model_is_listed() -> None:
    assert aliases(config({})) == {}
    listed = config({"anthropic/opus-4.6": {}, "openai/gpt-5.2": {}, "openai/gpt-5-mini": {}})
    assert sorted(aliases(listed)) == ["gpt", "gpt-mini", "opus"]


def test_an_own_alias_replaces_the_usual_one_and_an_empty_one_removes_it() -> None:
    assert sorted(aliases(config({"openai/gpt-5.2": {"alias": "five"}}))) == ["five"]
    assert aliases(config({"openai/gpt-5.2": {"alias": ""}})) == {}


def test_an_alias_taken_by_another_model_stays_with_it() -> None:
    taken = config({"openai/gpt-5.2": {}, "local/mine": {"alias": "gpt"}})
    assert aliases(taken)["gpt"] == ModelRef("local", "mine")
