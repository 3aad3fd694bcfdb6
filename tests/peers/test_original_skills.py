"""OpenClaw's own skills load unchanged: the same eligibility and listing as its `skills list`."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.skills.catalog import AgentSkills, SkillCatalog
from homarus.skills.status import encode_skill, encode_summary, list_statuses
from tests.peers.install import Original, bare_env
from tests.unit.skills.builders import write_skill

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

# Its frontmatter is not valid YAML, so OpenClaw does not load it; ours reads it with corrections.
CORRECTED = {"food-order"}
OWN_FIELDS = {"reasons"}
CONFIG: dict[str, Any] = {
    "skills": {
        "load": {"extraDirs": ["~/extra"]},
        "entries": {
            "weather": {"enabled": False},
            "notion": {"apiKey": "a-key"},
            "trello": {"env": {"TRELLO_API_KEY": "a", "TRELLO_TOKEN": "b"}},
            "sherpa-onnx-tts": {"env": {"SHERPA_ONNX_RUNTIME_DIR": "/x"}},
        },
    },
    "logging": {"level": "info"},
}


class Sides:
    """One home, as OpenClaw and as we see it."""

    def __init__(self, original: Original, home: Path, config: dict[str, Any]) -> None:
        self._original, self._home, self._env = original, home, bare_env(home)
        state = home / ".openclaw"
        state.mkdir(parents=True, exist_ok=True)
        (state / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")

    def theirs(self, *args: str) -> Any:
        done = self._original.run("skills", *args, "--json", env=self._env, cwd=self._home)
        assert done.status == 0, done.err
        return json.loads(done.out)

    def ours(self) -> AgentSkills:
        paths = Paths.find(self._env)
        loaded = load_config(paths, self._env)
        bundled = self._original.entry.parent / "skills"
        return SkillCatalog(lambda: loaded, paths, bundled).load("main")


def summaries(found: AgentSkills) -> dict[str, Any]:
    """Return what our `skills list --json` shows, without what it adds."""
    shown = map(encode_summary, list_statuses(found))
    return {
        str(one["name"]): {key: one[key] for key in one if key not in OWN_FIELDS}
        for one in shown
        if one["name"] not in CORRECTED
    }


def by_name(skills: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what OpenClaw lists. It calls a skill bundled whose name is; ours has to be it."""
    return {one["name"]: one | {"bundled": one["source"] == "openclaw-bundled"} for one in skills}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with skills in every tier; `same` is in all of them."""
    workspace = tmp_path / ".openclaw" / "workspace"
    folders = {
        "extra": tmp_path / "extra",
        "managed": tmp_path / ".openclaw" / "skills",
        "personal": tmp_path / ".agents" / "skills",
        "project": workspace / ".agents" / "skills",
        "workspace": workspace / "skills",
    }
    at = list(folders)
    for tier, folder in folders.items():
        write_skill(folder, f"only-{tier}", requires={"anyBins": ["sh", "no-such"]}, emoji="🐙")
        for other in at[: at.index(tier) + 1]:  # the last of them wins
            write_skill(folder, f"from-{other}")
    write_skill(folders["extra"], "github")  # bundled skills override those of extra folders
    write_skill(folders["managed"], "tmux", "name: tmux\ndescription: Ours.\n")
    write_skill(folders["managed"], "no-description", "name: no-description\n")
    write_skill(folders["managed"], "off", always=True, requires={"bins": ["no-such"]})
    write_skill(
        folders["workspace"],
        "keyed",
        skillKey="weather",
        requires={"config": ["browser.enabled", "logging.level", "channels.x"]},
    )
    write_skill(
        folders["workspace"],
        "configured",
        requires={"config": ["browser.enabled", "browser.evaluateEnabled", "logging.level"]},
    )
    return tmp_path


def test_openclaw_bundled_skills_are_listed_as_by_openclaw(
    original: Original, tmp_path: Path
) -> None:
    sides = Sides(original, tmp_path, {})
    theirs, found = sides.theirs("list"), sides.ours()
    assert len(theirs["skills"]) >= 50
    assert summaries(found) == by_name(theirs["skills"])
    assert {skill.name for skill in found.skills} - by_name(theirs["skills"]).keys() == CORRECTED
    assert str(found.workspace) == theirs["workspaceDir"]
    eligible = {skill.name for skill in found.eligible()} - CORRECTED
    assert eligible == {one["name"] for one in sides.theirs("list", "--eligible")["skills"]}


def test_openclaw_tiers_settings_and_gates_give_the_same_list(
    original: Original, home: Path
) -> None:
    sides = Sides(original, home, CONFIG)
    theirs, ours = by_name(sides.theirs("list")["skills"]), summaries(sides.ours())
    assert ours == theirs
    assert {
        name: ours[name]["source"] for name in ours if name.startswith("from-")
    } == dict.fromkeys(
        ["from-extra", "from-managed", "from-personal", "from-project", "from-workspace"],
        "openclaw-workspace",
    )
    assert ours["weather"]["disabled"] and ours["keyed"]["disabled"] and ours["off"]["eligible"]
    assert ours["configured"]["eligible"] and ours["notion"]["eligible"]


def test_openclaw_list_of_bundled_skills_blocks_the_same(original: Original, home: Path) -> None:
    config = {"skills": {"allowBundled": ["github", "weather"]}}
    sides = Sides(original, home, config)
    ours = summaries(sides.ours())
    assert ours == by_name(sides.theirs("list")["skills"])
    assert ours["notion"]["blockedByAllowlist"] and not ours["weather"]["blockedByAllowlist"]


@pytest.mark.parametrize("name", ["nano-banana-pro", "discord", "sherpa-onnx-tts"])
def test_openclaw_details_of_a_skill_are_the_same(
    name: str, original: Original, tmp_path: Path
) -> None:
    sides = Sides(original, tmp_path, {})
    theirs, found = sides.theirs("info", name), sides.ours()
    [status] = [one for one in list_statuses(found) if one.skill.name == name]
    ours = encode_skill(found, status)
    shown = {one["id"]: one for one in ours["install"]}
    for option in theirs.pop("install"):  # OpenClaw shows one of several ways
        assert shown[option["id"]] == option
    assert {key: ours[key] for key in theirs} == theirs
