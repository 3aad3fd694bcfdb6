"""What 300 skills cost: to be found and listed for the first time, and when nothing has changed.

The skills are of one workspace and two further folders, with metadata, requirements and long
descriptions as those have that people install; 150 of them are in the list for the prompt.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figure import CpuClock, Figure
from homarus.config.check import check_config
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths

if TYPE_CHECKING:
    from homarus.skills.catalog import SkillCatalog

SKILLS = 300
_FOLDERS = (".openclaw/workspace/skills", ".openclaw/skills", ".agents/skills")


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for at in range(SKILLS):
            _write(home / _FOLDERS[at % len(_FOLDERS)], at)
        clock = CpuClock()
        from homarus.skills.catalog import SkillCatalog  # what a first use imports is part of it

        config = check_config({}).config
        if config is None:
            sys.exit("bench: an empty config is refused")
        loaded = LoadedConfig(config, {}, source="", hash="", exists=True, env={"PATH": "/bin"})
        catalog = SkillCatalog(lambda: loaded, Paths.find({"HOME": folder}), home / "none")
        _list(catalog)
        cold_s = clock.spent_s()
        rounds = []
        for _ in range(5 if quick else 20):
            clock = CpuClock()
            _list(catalog)
            rounds.append(clock.spent_s() * 1000)
    note = f"{SKILLS} skills found, checked and listed"
    return [
        Figure("skills.cold_cpu_s", cold_s, "CPU-s", f"{note} for the first time"),
        # Noise only ever adds.
        Figure("skills.warm_cpu_ms", min(rounds), "CPU-ms", f"{note} again"),
    ]


def _list(catalog: "SkillCatalog") -> None:
    found = catalog.load("main")
    listing = found.listing()
    if len(found.skills) != SKILLS or not listing.entries or found.problems:
        sys.exit(f"bench: of {SKILLS} skills {len(found.skills)} were found: {found.problems}")


def _write(root: Path, at: int) -> None:
    file = root / f"skill-{at:03}" / "SKILL.md"
    file.parent.mkdir(parents=True)
    own = {
        "emoji": "🐙",
        "requires": {"bins": ["sh"], "anyBins": ["cat", f"program{at}"]},
        "install": [{"id": "brew", "kind": "brew", "formula": f"program{at}", "bins": ["cat"]}],
    }
    metadata = json.dumps({"openclaw": own}, ensure_ascii=False, indent=2).replace("\n", "\n  ")
    file.write_text(
        f"---\nname: skill-{at:03}\ndescription: {'What it does, and when to use it. ' * 6}\n"
        f"homepage: https://skill{at}.example\nmetadata:\n  {metadata}\n---\n\n"
        f"# Skill {at}\n\n" + "Do this, then that.\n" * 100,
        encoding="utf-8",
    )
