"""The list of skills in the system prompt: which skills are in it, and their text.

The same skills always have the same text, so that a provider's prompt cache stays valid: they are
sorted by name, and nothing in the text changes by itself.
"""

from collections.abc import Iterable
from pathlib import Path

from homarus.config.paths import shorten
from homarus.config.skills_schema import SkillLimitsConfig
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import escape_markup, one_line
from homarus.skills.skill import Skill, SkillTier

MAX_DESCRIPTION_CHARS = 1_024  # the longest that the AgentSkills format has
BUNDLED_ENTRY = ""  # the name of the entry that is no skill


@dataclass(frozen=True, slots=True)
class ListedSkill:
    """A skill in the list: its name, and the text of its entry.

    The folder of bundled skills has an entry of its own, without a name.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class SkillListing:
    """The entries of the list, and the names of the skills for which it has no room."""

    entries: tuple[ListedSkill, ...] = ()
    omitted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(entry.text for entry in self.entries)


def list_skills(skills: Iterable[Skill], limits: SkillLimitsConfig, home: Path) -> SkillListing:
    """Return the list of the skills that the model may invoke, within the limits.

    Bundled skills come last. They share a folder, which is stated once, before the first of them.
    """
    entries, omitted, chars = list[ListedSkill](), list[str](), 0
    room = limits.max_skills_in_prompt
    offered = (skill for skill in skills if skill.invocation.by_model)
    for skill in sorted(offered, key=lambda each: (_is_bundled(each), each.name)):
        added = [ListedSkill(skill.name, format_skill(skill, home))]
        if _is_bundled(skill) and all(entry.name != BUNDLED_ENTRY for entry in entries):
            added.insert(0, ListedSkill(BUNDLED_ENTRY, format_bundled_folder(skill, home)))
        chars_added = sum(len(entry.text) + 1 for entry in added)
        if omitted or not room or chars + chars_added > limits.max_skills_prompt_chars:
            omitted.append(skill.name)
            continue
        entries += added
        chars, room = chars + chars_added, room - 1
    return SkillListing(tuple(entries), tuple(omitted))


def format_skill(skill: Skill, home: Path) -> str:
    """Format one entry: name, description, and where its SKILL.md is."""
    name = escape_markup(skill.name)
    description = escape_markup(one_line(skill.description, MAX_DESCRIPTION_CHARS))
    if _is_bundled(skill):
        return f"  <skill><name>{name}</name>{description}</skill>"
    return (
        f"  <skill>\n    <name>{name}</name>\n    <description>{description}</description>\n"
        f"    <location>{escape_markup(shorten(skill.file, home))}</location>\n  </skill>"
    )


def format_bundled_folder(skill: Skill, home: Path) -> str:
    """Format the entry that says where the bundled skills after it are."""
    pattern = skill.folder.parent / "NAME" / skill.file.name
    return f"  <bundled><location>{escape_markup(shorten(pattern, home))}</location></bundled>"


def _is_bundled(skill: Skill) -> bool:
    """Return whether the skill can be listed in one line, without its own location."""
    return skill.tier is SkillTier.BUNDLED and skill.folder.name == skill.name
