"""Model references."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.model_refs import (
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
def test_parse_model_ref_matches_the_vectors(args: list[str], expected: dict[str, str]) -> None:
    assert parse_model_ref(*args) == (ModelRef(**expected) if expected else None)


@pytest.mark.parametrize(
    ("args", "expected"),
    [(c["input"], c["expected"]) for c in CASES if c["fn"] == "normalize_provider_id"],
)
def test_normalize_provider_id_matches_the_vectors(args: list[str], expected: str) -> None:
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
        ("google/gemini-3-pro", "google/gemini-3-pro-preview"),
        ("openrouter/gemini-3-pro", "openrouter/gemini-3-pro"),
    ],
)
def test_parse_model_ref_accepts_other_notations(text: str, ref: str | None) -> None:
    found = parse_model_ref(text, "x")
    assert (str(found) if found else None) == ref


@given(st.text(), st.text())
def test_model_ref_text_is_parsed_back(text: str, provider: str) -> None:
    ref = parse_model_ref(text, provider)
    if ref and "/" not in ref.provider:
        assert parse_model_ref(str(ref), "") == ref


def config(models: dict[str, Any]) -> Config:
    return Config.model_validate({"agents": {"defaults": {"models": models}}})


def test_resolve_model_ref_uses_config_alias() -> None:
    own = config({"openai/gpt-5.2": {"alias": "Fast"}})
    assert resolve_model_ref(" fast ", own, "x") == ModelRef("openai", "gpt-5.2")
    assert resolve_model_ref("slow", own, "x") == ModelRef("x", "slow")


def test_default_alias_exists_only_if_model_is_listed() -> None:
    assert aliases(config({})) == {}
    listed = config({"anthropic/opus-4.6": {}, "openai/gpt-5.2": {}, "openai/gpt-5-mini": {}})
    assert sorted(aliases(listed)) == ["gpt", "gpt-mini", "opus"]


def test_config_alias_replaces_or_removes_the_default() -> None:
    assert sorted(aliases(config({"openai/gpt-5.2": {"alias": "five"}}))) == ["five"]
    assert aliases(config({"openai/gpt-5.2": {"alias": ""}})) == {}


def test_default_alias_does_not_replace_config_alias() -> None:
    taken = config({"openai/gpt-5.2": {}, "local/mine": {"alias": "gpt"}})
    assert aliases(taken)["gpt"] == ModelRef("local", "mine")
