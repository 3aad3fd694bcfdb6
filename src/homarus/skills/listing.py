"""The list of skills in the system prompt: which skills are in it, and their text.

The same skills always have the same text, so that a provider's prompt cache stays valid: they are
sorted by name, and nothing in the text changes by itself.
"""

from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from homarus.config.paths import shorten
from homarus.config.skills_schema import SkillLimitsConfig
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import clip_middle
from homarus.skills.skill import Skill

MAX_DESCRIPTION_CHARS = 1_024  # the longest that the AgentSkills format has


@dataclass(frozen=True, slots=True)
class ListedSkill:
    """A skill in the list: its name, and the text of its entry."""

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
    """Return the list of the skills that the model may invoke, within the limits."""
    entries, omitted, chars = list[ListedSkill](), list[str](), 0
    offered = (skill for skill in skills if skill.invocation.by_model)
    for skill in sorted(offered, key=lambda each: each.name):
        entry = ListedSkill(skill.name, format_skill(skill, home))
        added = len(entry.text) + 1
        is_full = len(entries) >= limits.max_skills_in_prompt
        if omitted or is_full or chars + added > limits.max_skills_prompt_chars:
            omitted.append(skill.name)
            continue
        entries.append(entry)
        chars += added
    return SkillListing(tuple(entries), tuple(omitted))


def format_skill(skill: Skill, home: Path) -> str:
    """Format one entry: name, description, and where its SKILL.md is."""
    description = clip_middle(skill.description, MAX_DESCRIPTION_CHARS)
    return (
        f"  <skill>\n    <name>{escape(skill.name)}</name>\n"
        f"    <description>{escape(description)}</description>\n"
        f"    <location>{escape(shorten(skill.file, home))}</location>\n  </skill>"
    )
