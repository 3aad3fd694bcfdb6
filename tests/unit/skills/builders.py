"""Skills in folders of a test."""

import json
from pathlib import Path
from typing import Any

from homarus.config.check import check_config
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths
from homarus.skills.catalog import SkillCatalog
from homarus.skills.gates import GateFacts
from homarus.skills.skill import Skill, SkillTier, make_skill


def write_skill(root: Path, name: str, text: str = "", **own: Any) -> Path:
    """Write a skill into a root; `own` is the part of the metadata for this program."""
    file = root / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    metadata = f"metadata: {json.dumps({'openclaw': own})}\n" if own else ""
    block = text or f"name: {name}\ndescription: What {name} does.\n{metadata}"
    file.write_text(f"---\n{block}---\n# {name}\n", encoding="utf-8")
    return file


def make(frontmatter: dict[str, Any] | None = None, tier: SkillTier = SkillTier.MANAGED) -> Skill:
    """Make a skill without a file."""
    values = {"name": "x", "description": "What x does.", **(frontmatter or {})}
    return make_skill(values, tier, Path("/skills/x/SKILL.md"))


def facts(
    config: dict[str, Any] | None = None, *bins: str, platform: str = "linux", **env: str
) -> GateFacts:
    """Make the facts of a machine that has these programs and variables."""
    tree = config or {}
    checked = check_config(tree).config
    assert checked is not None
    return GateFacts(set(bins).__contains__, env, tree, checked.skills, platform)


def catalog(home: Path, config: dict[str, Any] | None = None, **env: str) -> SkillCatalog:
    """Make the catalog of a home, whose bundled skills are in `bundled`."""
    tree = config or {}
    checked = check_config(tree).config
    assert checked is not None
    paths = Paths.find({"HOME": str(home)})
    loaded = LoadedConfig(checked, tree, source="", hash="", exists=True, env=env)
    return SkillCatalog(lambda: loaded, paths, home / "bundled")
