"""The section `skills` of the config: where skills come from, limits, and settings of each."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from homarus.config.section import (
    ConfigSection,
    NonEmptyStr,
    NonNegativeInt,
    PositiveInt,
    StrTuple,
)


class SkillLoadConfig(ConfigSection):
    """Further folders with skills, and whether changed files are noticed while it runs."""

    extra_dirs: StrTuple = ()
    watch: bool = True
    watch_debounce_ms: NonNegativeInt = 250


class SkillInstallConfig(ConfigSection):
    """How the programs that skills require are installed."""

    prefer_brew: bool = True
    node_manager: Literal["npm", "pnpm", "yarn", "bun"] = "npm"


class SkillLimitsConfig(ConfigSection):
    """How many skills are looked at, loaded and listed, and how large they may be."""

    max_candidates_per_root: PositiveInt = 300
    max_skills_loaded_per_source: PositiveInt = 200
    max_skills_in_prompt: NonNegativeInt = 150
    max_skills_prompt_chars: NonNegativeInt = 30_000
    max_skill_file_bytes: NonNegativeInt = 256_000


class SkillEntryConfig(ConfigSection):
    """The settings of one skill; `apiKey` is the value of the variable it calls `primaryEnv`."""

    enabled: bool | None = None
    api_key: str | None = Field(None, repr=False)
    env: Mapping[str, str] = Field({}, repr=False)
    config: Mapping[str, Any] = Field({}, repr=False)


class SkillsConfig(ConfigSection):
    """Skills. `allowBundled`, unless empty, names the bundled skills that are used.

    `registry` is the address that skills are installed from.
    """

    allow_bundled: StrTuple = ()
    load: SkillLoadConfig = SkillLoadConfig.model_construct()
    install: SkillInstallConfig = SkillInstallConfig.model_construct()
    limits: SkillLimitsConfig = SkillLimitsConfig.model_construct()
    entries: Mapping[NonEmptyStr, SkillEntryConfig] = {}
    registry: NonEmptyStr | None = None
