"""Gates: what a skill requires, whether this machine has it, and the words for what it lacks."""

import os
from pathlib import Path
from typing import Any

import pytest

from homarus.skills.gates import check_skill
from homarus.skills.requirements import Requirements, is_set, make_bin_lookup
from homarus.skills.skill import Skill, SkillTier
from tests.unit.skills.builders import facts, make


def needs(tier: SkillTier = SkillTier.MANAGED, **own: Any) -> Skill:
    return make({"metadata": {"openclaw": own}}, tier)


def test_skill_without_requirements_is_eligible() -> None:
    found = check_skill(make(), facts())
    assert found.is_eligible and not found.missing and found.reasons == ()


def test_all_bins_are_needed_and_one_of_any_bins() -> None:
    skill = needs(requires={"bins": ["git", "jq"], "anyBins": ["claude", "codex"]})
    assert check_skill(skill, facts({}, "git", "jq", "codex")).is_eligible
    found = check_skill(skill, facts({}, "git"))
    assert found.missing == Requirements(bins=("jq",), any_bins=("claude", "codex"))
    assert [reason.gate for reason in found.reasons] == ["bins", "anyBins"]
    assert "jq is not on the PATH" in found.reasons[0].message
    assert "claude, codex" in found.reasons[1].message


@pytest.mark.parametrize(
    ("config", "env", "is_met"),
    [
        ({}, {}, False),
        ({}, {"A_KEY": "1"}, True),
        ({}, {"A_KEY": ""}, False),
        ({"apiKey": "secret"}, {}, True),
        ({"env": {"A_KEY": "1"}}, {}, True),
        ({"env": {"OTHER": "1"}}, {}, False),
    ],
)
def test_variable_comes_from_environment_or_settings(
    config: dict[str, Any], env: dict[str, str], is_met: bool
) -> None:
    skill = needs(requires={"env": ["A_KEY"]}, primaryEnv="A_KEY", skillKey="k")
    found = check_skill(skill, facts({"skills": {"entries": {"k": config}}}, **env))
    assert found.is_eligible is is_met
    assert found.missing.env == (() if is_met else ("A_KEY",))
    assert all("skills.entries.k.apiKey" in reason.fix for reason in found.reasons)


def test_api_key_is_for_the_primary_variable_alone() -> None:
    skill = needs(requires={"env": ["A_KEY", "B_KEY"]}, primaryEnv="A_KEY")
    found = check_skill(skill, facts({"skills": {"entries": {"x": {"apiKey": "secret"}}}}))
    assert found.missing.env == ("B_KEY",)
    assert "skills.entries.x.env.B_KEY" in found.reasons[0].fix


@pytest.mark.parametrize(
    ("tree", "path", "expected"),
    [
        ({}, "browser.enabled", True),
        ({}, "browser.evaluateEnabled", True),
        ({"browser": {"enabled": False}}, "browser.enabled", False),
        ({}, "channels.slack", False),
        ({"channels": {"slack": {}}}, "channels.slack", True),
        ({"channels": {"discord": {"token": " "}}}, "channels.discord.token", False),
        ({"channels": {"discord": {"token": "x"}}}, "channels.discord.token", True),
        ({"a": 0}, "a", False),
        ({"a": 1}, "a", True),
        ({"a": [1]}, "a.0.b", False),
        ({"a": "x"}, "a.b", False),
        ({"a": 1}, "", False),
        ({"a": 1}, "a[", False),
    ],
)
def test_config_path_is_set_or_on_by_default(
    tree: dict[str, Any], path: str, expected: bool
) -> None:
    assert is_set(path, tree) is expected


def test_config_gate_names_the_setting() -> None:
    found = check_skill(needs(requires={"config": ["channels.slack"]}), facts())
    assert found.missing.config == ("channels.slack",)
    assert found.reasons[0].fix == "homarus config set channels.slack VALUE"


@pytest.mark.parametrize("always", [None, True])
def test_other_system_is_not_eligible_even_always(always: bool | None) -> None:
    skill = needs(os=["darwin"], always=always)
    assert check_skill(skill, facts(platform="darwin")).is_eligible
    found = check_skill(skill, facts(platform="linux"))
    assert found.missing == Requirements(os=("darwin",)) and not found.is_eligible


def test_always_ignores_missing_requirements() -> None:
    lacks = {"bins": ["a"], "anyBins": ["b"], "env": ["C"], "config": ["d"]}
    assert not check_skill(needs(requires=lacks), facts()).is_eligible
    assert check_skill(needs(requires=lacks, always=True), facts()).is_eligible


def test_disabled_skill_is_not_eligible_even_always() -> None:
    config = {"skills": {"entries": {"x": {"enabled": False}}}}
    found = check_skill(needs(always=True), facts(config))
    assert found.is_disabled and not found.is_eligible
    assert found.reasons[0].fix == "homarus config set skills.entries.x.enabled true"


@pytest.mark.parametrize(
    ("tier", "allowed", "is_blocked"),
    [
        (SkillTier.BUNDLED, [], False),
        (SkillTier.BUNDLED, ["x"], False),
        (SkillTier.BUNDLED, ["the-key"], False),
        (SkillTier.BUNDLED, ["other"], True),
        (SkillTier.MANAGED, ["other"], False),
    ],
)
def test_list_of_bundled_skills_blocks_the_others(
    tier: SkillTier, allowed: list[str], is_blocked: bool
) -> None:
    skill = needs(tier, skillKey="the-key")
    found = check_skill(skill, facts({"skills": {"allowBundled": allowed}}))
    assert (found.is_blocked, found.is_eligible) == (is_blocked, not is_blocked)


def test_bin_lookup_finds_executable_files_only(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "data").write_text("x")
    (tmp_path / "a" / "folder").mkdir()
    (tmp_path / "b" / "program").write_text("x")
    (tmp_path / "b" / "program").chmod(0o755)
    has_bin = make_bin_lookup({"PATH": f"{tmp_path}/a{os.pathsep}{tmp_path}/b{os.pathsep}"})
    assert has_bin("program")
    odd = ("data", "folder", "missing", "", "../b/program", f"{tmp_path}/b/program", "a\0b")
    assert not any(map(has_bin, odd))
    (tmp_path / "b" / "program").unlink()
    assert has_bin("program")  # one check looks once
    assert not make_bin_lookup({"PATH": f"{tmp_path}/b"})("program")
