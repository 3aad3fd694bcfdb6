"""The skills of an agent: tiers, its own list, a version that changes with what it depends on."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import UnknownNameError
from homarus.skills.skill import SkillTier
from tests.unit.skills.builders import catalog, write_skill

FOLDERS = {
    SkillTier.EXTRA: "extra",
    SkillTier.BUNDLED: "bundled",
    SkillTier.MANAGED: ".openclaw/skills",
    SkillTier.PERSONAL: ".agents/skills",
    SkillTier.PROJECT: ".openclaw/workspace/.agents/skills",
    SkillTier.WORKSPACE: ".openclaw/workspace/skills",
}
EXTRA = {"skills": {"load": {"extraDirs": ["~/extra"]}}}


@pytest.mark.parametrize("last", FOLDERS)
def test_catalog_tiers_override_each_other_in_order(last: SkillTier, tmp_path: Path) -> None:
    tiers = list(FOLDERS)
    for tier in tiers[: tiers.index(last) + 1]:
        write_skill(tmp_path / FOLDERS[tier], "same")
    (tmp_path / "extra").mkdir(exist_ok=True)
    found = catalog(tmp_path, EXTRA).load("main")
    [skill] = found.skills
    assert (skill.tier, found.problems) == (last, ())
    assert skill.file == tmp_path / FOLDERS[last] / "same" / "SKILL.md"
    assert len(found.found.overridden) == tiers.index(last)


def test_catalog_plugin_skills_are_between_bundled_and_managed(tmp_path: Path) -> None:
    plugin = tmp_path / ".openclaw" / "extensions" / "voice"
    write_skill(plugin / "skills", "call")
    write_skill(plugin / "skills", "both")
    write_skill(tmp_path / "bundled", "both")
    manifest = {"id": "voice", "configSchema": {}, "skills": ["./skills"]}
    (plugin / "openclaw.plugin.json").write_text(json.dumps(manifest))
    tiers = {skill.name: skill.tier for skill in catalog(tmp_path).load("main").skills}
    assert tiers == {"call": SkillTier.PLUGIN, "both": SkillTier.PLUGIN}
    write_skill(tmp_path / ".openclaw" / "skills", "both")
    tiers = {skill.name: skill.tier for skill in catalog(tmp_path).load("main").skills}
    assert tiers["both"] is SkillTier.MANAGED


@pytest.mark.parametrize(
    "plugins",
    [
        {"enabled": False},
        {"deny": ["voice"]},
        {"allow": ["other"]},
        {"entries": {"voice": {"enabled": False}}},
    ],
)
def test_catalog_skills_of_a_plugin_that_is_off_are_not_used(
    plugins: dict[str, Any], tmp_path: Path
) -> None:
    plugin = tmp_path / ".openclaw" / "extensions" / "voice"
    write_skill(plugin / "skills", "call")
    manifest = {"id": "voice", "configSchema": {}, "skills": ["skills"]}
    (plugin / "openclaw.plugin.json").write_text(json.dumps(manifest))
    assert catalog(tmp_path, {"plugins": plugins}).load("main").skills == ()


@pytest.mark.parametrize("folder", ["../outside", "/outside", "link"])
def test_catalog_plugin_folder_outside_of_it_is_refused(folder: str, tmp_path: Path) -> None:
    plugin = tmp_path / ".openclaw" / "extensions" / "voice"
    plugin.mkdir(parents=True)
    write_skill(tmp_path / ".openclaw" / "extensions" / "outside", "secret")
    (plugin / "link").symlink_to("../outside")
    name = folder.replace("/outside", f"{tmp_path}/.openclaw/extensions/outside", 1)
    name = folder if folder.startswith("..") else name
    manifest = {"id": "voice", "configSchema": {}, "skills": [name]}
    (plugin / "openclaw.plugin.json").write_text(json.dumps(manifest))
    found = catalog(tmp_path).load("main")
    assert found.skills == ()
    [problem] = found.problems
    assert "leads out of the plugin" in problem.message


@pytest.mark.parametrize("text", ["", "{", "[]", '{"skills": 3}', '{"id": "v", "skills": [3]}'])
def test_catalog_broken_plugin_manifest_is_named(text: str, tmp_path: Path) -> None:
    plugin = tmp_path / ".openclaw" / "extensions" / "voice"
    plugin.mkdir(parents=True)
    (plugin / "openclaw.plugin.json").write_text(text)
    write_skill(tmp_path / "bundled", "good")
    found = catalog(tmp_path).load("main")
    assert [skill.name for skill in found.skills] == ["good"]
    [problem] = found.problems
    assert problem.path == plugin / "openclaw.plugin.json"


def test_catalog_agent_list_limits_its_skills(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_skill(tmp_path / "bundled", name)
    write_skill(tmp_path / "bundled", "lacking", requires={"bins": ["no-such-program"]})
    agents = [{"id": "main"}, {"id": "two", "skills": ["b", "lacking"]}, {"id": "x", "skills": []}]
    it = catalog(tmp_path, {"agents": {"list": agents}})
    eligible = {
        agent: [skill.name for skill in it.load(agent).eligible()] for agent in ("main", "two", "x")
    }
    assert eligible == {"main": ["a", "b", "c"], "two": ["b"], "x": []}
    assert [skill.name for skill in it.load("main").eligible(["c", "lacking"])] == ["c"]
    assert it.load("two").eligible(["c"]) == () == it.load("main").eligible([])
    assert len(it.load("x").skills) == 4
    with pytest.raises(UnknownNameError):
        it.load("nobody")


def test_catalog_skill_is_found_by_name_then_key(tmp_path: Path) -> None:
    write_skill(tmp_path / "bundled", "a", skillKey="b")
    write_skill(tmp_path / "bundled", "b")
    found = catalog(tmp_path).load("main")
    names = [skill.name if (skill := found.find(name)) else None for name in "abc"]
    assert names == ["a", "b", None]


def test_catalog_version_changes_with_files_and_settings(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "bundled", "a")
    it = catalog(tmp_path)
    first = it.load("main").version
    (tmp_path / ".openclaw" / "workspace").mkdir(parents=True)
    (tmp_path / ".openclaw" / "workspace" / "notes.md").write_text("unrelated")
    (file.parent / "reference.md").write_text("unrelated")
    assert it.load("main").version == first == catalog(tmp_path).load("main").version
    off = {"skills": {"entries": {"a": {"enabled": False}}}}
    assert catalog(tmp_path, off).load("main").version != first
    os.utime(file, ns=(1, 1))
    assert it.load("main").version != first
    assert 0 <= first < 2**53


def test_catalog_new_and_removed_skills_are_noticed(tmp_path: Path) -> None:
    file, it = write_skill(tmp_path / "bundled", "a"), catalog(tmp_path)
    assert [skill.name for skill in it.load("main").skills] == ["a"]
    write_skill(tmp_path / "bundled", "b")
    file.unlink()
    assert [skill.name for skill in it.load("main").skills] == ["b"]
