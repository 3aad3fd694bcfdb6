"""The list of skills for the prompt: within its limits, and the same for the same skills."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from homarus.config.skills_schema import SkillLimitsConfig
from homarus.skills.find import DEFAULT_LIMITS
from homarus.skills.listing import list_skills
from homarus.skills.skill import Skill
from tests.unit.skills.builders import catalog, make, write_skill

HOME = Path("/people/ann")


def named(name: str, **frontmatter: object) -> Skill:
    skill = make({"name": name, **frontmatter})
    return replace(skill, file=HOME / "skills" / name / "SKILL.md")


def limits(**values: Any) -> SkillLimitsConfig:
    return SkillLimitsConfig.model_construct(**values)


def test_listing_is_sorted_escaped_and_has_short_paths() -> None:
    skills = [named("b"), named("a", description="1 < 2 & <script>")]
    found = list_skills(skills, DEFAULT_LIMITS, HOME)
    assert [entry.name for entry in found.entries] == ["a", "b"]
    assert "1 &lt; 2 &amp; &lt;script&gt;" in found.text
    assert "~/skills/a/SKILL.md" in found.text and str(HOME) not in found.text
    assert found == list_skills(reversed(skills), DEFAULT_LIMITS, HOME)


def test_listing_omits_skills_that_the_model_may_not_invoke() -> None:
    hidden = named("a", **{"disable-model-invocation": True})
    found = list_skills([hidden, named("b", **{"user-invocable": False})], DEFAULT_LIMITS, HOME)
    assert [entry.name for entry in found.entries] == ["b"] and found.omitted == ()


def test_listing_stays_within_its_limits() -> None:
    skills = [named(f"s{at:02}") for at in range(20)]
    assert len(list_skills(skills, limits(max_skills_in_prompt=7), HOME).entries) == 7
    for most in (0, 1, 500, 1_000, 5_000):
        found = list_skills(skills, limits(max_skills_prompt_chars=most), HOME)
        assert len(found.text) <= most
        assert len(found.entries) + len(found.omitted) == len(skills)
    assert list_skills(skills, limits(max_skills_in_prompt=0), HOME).entries == ()


def test_listing_cuts_a_description_that_is_too_long() -> None:
    found = list_skills([named("a", description="x" * 60_000)], DEFAULT_LIMITS, HOME)
    assert len(found.text) < 1_400


def test_listing_is_unchanged_by_unrelated_files(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "bundled", "a")
    it = catalog(tmp_path)
    before = it.load("main").listing().text
    (tmp_path / ".openclaw" / "workspace").mkdir(parents=True)
    (tmp_path / ".openclaw" / "workspace" / "notes.md").write_text("x")
    (file.parent / "reference.md").write_text("x")
    write_skill(tmp_path / "bundled", "lacking", requires={"bins": ["no-such-program"]})
    assert it.load("main").listing().text.encode() == before.encode()
