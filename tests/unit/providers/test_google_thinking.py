"""Thinking configs for each Gemini model."""

from typing import Any, get_args

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from homarus.providers.base import ThinkLevel
from homarus.providers.google_thinking import generation, thinking_config, thinks


@pytest.mark.parametrize(
    ("model", "want"),
    [
        ("gemini-2.5-pro", (2, 5)),
        ("gemini-3-pro-preview", (3, 0)),
        ("gemini-3.1-flash-lite", (3, 1)),
        ("models/Gemini-3.8-flash", (3, 8)),
        ("gemini-4-argon", (4, 0)),
        ("gemini-flash-latest", (99, 0)),
        ("gemini-embedding-001", (0, 0)),
        ("gemma-3-27b-it", (0, 0)),
        ("gemini-1.5.2", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_generation_is_read_from_name(model: str, want: tuple[int, int]) -> None:
    assert generation(model) == want


def test_thinking_only_for_reasoning_models() -> None:
    for model in ("gemini-2.5-flash", "gemini-3-pro-preview", "gemini-pro-latest"):
        assert thinks(model)
    for model in ("gemini-2.0-flash", "gemma-3-27b-it", "gemini-3-pro-image-preview", "x"):
        assert not thinks(model)


@pytest.mark.parametrize(
    ("model", "levels"),
    [
        ("gemini-3-flash-preview", ["minimal", "minimal", "low", "medium", "high", "high"]),
        ("gemini-3.1-flash-lite", ["minimal", "minimal", "low", "medium", "high", "high"]),
        ("gemini-3.6-flash", ["minimal", "minimal", "low", "medium", "high", "high"]),
        ("gemini-3.8-flash", ["low", "low", "low", "medium", "high", "high"]),
        ("gemini-3.9-flash-lite", ["minimal", "minimal", "low", "medium", "high", "high"]),
        ("gemini-3-pro-preview", ["low", "low", "low", "high", "high", "high"]),
        ("gemini-3.1-pro-preview", ["low", "low", "low", "medium", "high", "high"]),
        ("gemini-4-argon", ["low", "low", "low", "medium", "high", "high"]),
        ("gemini-2.5-flash", [0, 128, 2048, 8192, 24576, 24576]),
        ("gemini-2.5-flash-lite", [0, 512, 2048, 8192, 24576, 24576]),
        ("gemini-2.5-pro", [128, 128, 2048, 8192, 32768, 32768]),
        ("my-own", [None, 128, 2048, 8192, 24576, 24576]),
    ],
)
def test_thinking_config_follows_model(model: str, levels: list[Any]) -> None:
    asked = [thinking_config(model, level) for level in get_args(ThinkLevel)]
    assert [a.get("thinkingLevel", a.get("thinkingBudget")) for a in asked] == levels
    assert [a.get("includeThoughts") for a in asked] == [None, *[True] * 5]


@given(st.text() | st.from_regex(r"gemini-[0-9.]{1,6}-(pro|flash|lite|image)"), st.data())
def test_any_model_name_yields_valid_config(model: str, data: st.DataObject) -> None:
    level = data.draw(st.sampled_from(get_args(ThinkLevel)))
    config = thinking_config(model, level)
    types.ThinkingConfig.model_validate(config)
    assert not {"thinkingLevel", "thinkingBudget"} <= set(config), "never both"
