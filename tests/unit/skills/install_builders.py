"""Build skills with installs, and the facts of a machine."""

import io
import json
import stat
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from homarus.config.skills_schema import SkillInstallConfig
from homarus.skills.frontmatter import read_frontmatter
from homarus.skills.install_plan import InstallFacts
from homarus.skills.skill import Skill, SkillTier, make_skill

BREW = {"id": "brew", "kind": "brew", "formula": "prog", "bins": ["prog"]}
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


def add_program(folder: Path, name: str, text: str) -> None:
    """Write a script that stands in for a program which is not on every machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / name).chmod(stat.S_IRWXU)


def make_tar(*entries: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """Return a tar.gz of files and of entries that are none."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            archive.addfile(info, io.BytesIO(entry[1]))
    return buffer.getvalue()
