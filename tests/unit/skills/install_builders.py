"""Build skills with installs, and the facts of a machine."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from homarus.config.skills_schema import SkillInstallConfig
from homarus.skills.frontmatter import read_frontmatter
from homarus.skills.install_plan import InstallFacts
from homarus.skills.skill import Skill, SkillTier, make_skill

ALL = frozenset({"brew", "apt-get", "npm", "pnpm", "yarn", "bun", "go", "uv"})


def write_install_skill(
    folder: Path, *installs: Any, bins: Collection[str] = ("prog",), name: str = "helper"
) -> Skill:
    """Write a skill that requires programs, and return it."""
    own = {"requires": {"bins": list(bins)}, "install": list(installs)}
    text = (
        f"---\nname: {name}\ndescription: For tests.\n"
        f"metadata: {json.dumps({'openclaw': own})}\n---\nUse it.\n"
    )
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "SKILL.md").write_text(text, encoding="utf-8")
    return make_skill(read_frontmatter(text), SkillTier.WORKSPACE, place / "SKILL.md")


def machine(
    programs: Collection[str] = ALL,
    *,
    platform: str = "linux",
    is_root: bool = False,
    state: Path = Path("/state"),
    **settings: Any,
) -> InstallFacts:
    """Return a machine with programs."""
    config = SkillInstallConfig.model_validate(settings)
    return InstallFacts(
        platform,
        lambda name: name in programs,
        is_root=is_root,
        state=state,
        home=Path("/home/ann"),
        settings=config,
    )
