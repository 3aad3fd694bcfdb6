"""Decide which skills can be used on this machine, and say what each of the others lacks."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from homarus.config.skills_schema import SkillEntryConfig, SkillsConfig
from homarus.config.tree_edit import format_path, get_path, parse_path
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.skills.skill import Skill, SkillTier

Gate: TypeAlias = Literal["disabled", "allowlist", "os", "bins", "anyBins", "env", "config"]

# What is on unless the config says otherwise.
_DEFAULT_TRUE: Final = frozenset({"browser.enabled", "browser.evaluateEnabled"})
_NO_ENTRY: Final = SkillEntryConfig.model_construct()


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements by their kind: those that a skill has, or those that are missing."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    os: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bins or self.any_bins or self.env or self.config or self.os)


@dataclass(frozen=True, slots=True)
class GateReason:
    """One reason why a skill is not used, and what would change that."""

    gate: Gate
    message: str
    fix: str


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


def make_bin_lookup(env: Mapping[str, str]) -> Callable[[str], bool]:
    """Return a function that says whether the PATH has a program; it looks once for each."""
    folders = [each for each in (env.get("PATH") or os.defpath).split(os.pathsep) if each]

    @cache
    def has_bin(name: str) -> bool:
        if not name or "/" in name or "\0" in name:
            return False
        paths = (f"{folder}/{name}" for folder in folders)
        return any(os.access(path, os.X_OK) and os.path.isfile(path) for path in paths)  # noqa: PTH113 - a string is faster

    return has_bin


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
    requires, systems = skill.requires, skill.metadata.os
    missing_os = () if not systems or facts.platform in systems else systems
    if skill.metadata.always:
        return Requirements(os=missing_os)
    has_any = any(map(facts.has_bin, requires.any_bins))
    return Requirements(
        bins=tuple(name for name in requires.bins if not facts.has_bin(name)),
        any_bins=() if has_any else requires.any_bins,
        env=tuple(name for name in requires.env if not has_variable(skill, name, facts)),
        config=tuple(path for path in requires.config if not is_set(path, facts.config_tree)),
        os=missing_os,
    )


def has_variable(skill: Skill, name: str, facts: GateFacts) -> bool:
    """Return whether a variable of a skill has a value: in the environment or in its settings."""
    entry = facts.entry(skill)
    return bool(
        facts.env.get(name)
        or entry.env.get(name)
        or (entry.api_key and skill.metadata.primary_env == name)
    )


def is_set(path: str, config_tree: Mapping[str, Any]) -> bool:
    """Return whether a path of the config has a value that is not empty, false or 0."""
    try:
        value = get_path(config_tree, parse_path(path))
    except (HomarusError, LookupError):
        value = None
    if value is None:
        return path in _DEFAULT_TRUE
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, dict | list) or bool(value)


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
    if missing.os:
        message = f"it is for {' or '.join(missing.os)}"
        reasons.append(GateReason("os", message, "use it on such a machine"))
    install = _install_fix(skill)
    reasons += [
        GateReason("bins", f"the program {name} is not on the PATH", install)
        for name in missing.bins
    ]
    if missing.any_bins:
        message = f"none of these programs is on the PATH: {', '.join(missing.any_bins)}"
        reasons.append(GateReason("anyBins", message, install))
    for name in missing.env:
        steps = ("apiKey",) if name == skill.metadata.primary_env else ("env", name)
        fix = f"homarus config set {_entry_path(skill, *steps)} VALUE, or set the variable"
        reasons.append(GateReason("env", f"the variable {name} has no value", fix))
    for path in missing.config:
        fix = f"homarus config set {path} VALUE"
        reasons.append(GateReason("config", f"the setting {path} is not set", fix))
    return reasons


def _entry_path(skill: Skill, *steps: str) -> str:
    return format_path(("skills", "entries", skill.key, *steps))


def _install_fix(skill: Skill) -> str:
    if skill.metadata.install:
        return f"homarus skills install {skill.name} --deps"
    return "install it, or add its folder to the PATH"
