"""Decide which skills can be used on this machine, and say what each of the others lacks."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from homarus.config.skills_schema import SkillEntryConfig, SkillsConfig
from homarus.config.tree_edit import format_path
from homarus.core.fast_dataclass import dataclass
from homarus.skills.requirements import GateReason, Requirements, describe_unmet, find_unmet
from homarus.skills.skill import Skill, SkillTier

_NO_ENTRY: Final = SkillEntryConfig.model_construct()


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Whether a skill can be used. `missing` is what it lacks, `reasons` the same in words."""

    is_eligible: bool
    is_disabled: bool = False
    is_blocked: bool = False  # bundled, and not in `skills.allowBundled`
    requirements: Requirements = Requirements()
    missing: Requirements = Requirements()
    reasons: tuple[GateReason, ...] = ()


@dataclass(frozen=True, slots=True)
class GateFacts:
    """What gates are checked against: this machine, its environment and the config.

    `config_tree` is the config as it is written; `has_bin` says whether a program is on the PATH.
    """

    has_bin: Callable[[str], bool]
    env: Mapping[str, str]
    config_tree: Mapping[str, Any]
    settings: SkillsConfig
    platform: str = sys.platform

    def entry(self, skill: Skill) -> SkillEntryConfig:
        """Return the settings of a skill; empty ones if the config has none."""
        return self.settings.entries.get(skill.key) or _NO_ENTRY


def check_skill(skill: Skill, facts: GateFacts) -> Eligibility:
    """Return whether a skill can be used, and every reason why not.

    `always` is for the requirements: a skill for another system, a disabled one, and one that the
    list of bundled skills leaves out are not used in any case.
    """
    is_disabled = facts.entry(skill).enabled is False
    allowed = facts.settings.allow_bundled
    is_blocked = (
        skill.tier is SkillTier.BUNDLED
        and bool(allowed)
        and not {skill.key, skill.name} & set(allowed)
    )
    missing = find_missing(skill, facts)
    return Eligibility(
        is_eligible=not (is_disabled or is_blocked or missing),
        is_disabled=is_disabled,
        is_blocked=is_blocked,
        requirements=Requirements(
            bins=skill.requires.bins,
            any_bins=skill.requires.any_bins,
            env=skill.requires.env,
            config=skill.requires.config,
            os=skill.metadata.os,
        ),
        missing=missing,
        reasons=tuple(_explain(skill, missing, is_disabled=is_disabled, is_blocked=is_blocked)),
    )


def find_missing(skill: Skill, facts: GateFacts) -> Requirements:
    """Return the requirements of a skill that are not met."""
    return find_unmet(
        skill.requires,
        skill.metadata.os,
        facts,
        lambda name: has_variable(skill, name, facts),
        is_always=bool(skill.metadata.always),
    )


def has_variable(skill: Skill, name: str, facts: GateFacts) -> bool:
    """Return whether a variable of a skill has a value: in the environment or in its settings."""
    entry = facts.entry(skill)
    return bool(
        facts.env.get(name)
        or entry.env.get(name)
        or (entry.api_key and skill.metadata.primary_env == name)
    )


def _explain(
    skill: Skill, missing: Requirements, *, is_disabled: bool, is_blocked: bool
) -> list[GateReason]:
    """Say every reason; the fix names the setting or what to install."""
    reasons: list[GateReason] = []
    if is_disabled:
        fix = f"homarus config set {_entry_path(skill, 'enabled')} true"
        reasons.append(GateReason("disabled", "it is switched off in the config", fix))
    if is_blocked:
        message = "skills.allowBundled leaves it out"
        reasons.append(GateReason("allowlist", message, f"add {skill.key} to skills.allowBundled"))
    return [*reasons, *describe_unmet(missing, _install_fix(skill), partial(_variable_fix, skill))]


def _variable_fix(skill: Skill, name: str) -> str:
    steps = ("apiKey",) if name == skill.metadata.primary_env else ("env", name)
    return f"homarus config set {_entry_path(skill, *steps)} VALUE, or set the variable"


def _entry_path(skill: Skill, *steps: str) -> str:
    return format_path(("skills", "entries", skill.key, *steps))


def _install_fix(skill: Skill) -> str:
    if skill.metadata.install:
        return f"homarus skills install {skill.name} --deps"
    return "install it, or add its folder to the PATH"
