"""The chat commands of skills: a name for each that is unique and that every service accepts."""

import re
from collections.abc import Collection, Iterable
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.skills.skill import Skill

MAX_NAME_CHARS: Final = 32  # the longest that chat services list
_MAX_DESCRIPTION_CHARS: Final = 100
_OTHER: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class SkillCommand:
    """The command of a skill; `tool` is the tool that it calls without asking the model, or ""."""

    name: str
    skill: Skill
    description: str
    tool: str = ""


def make_skill_commands(
    skills: Iterable[Skill], reserved: Collection[str] = ()
) -> tuple[SkillCommand, ...]:
    """Return a command for each skill that people may invoke, in the given order.

    `reserved` are the names of other commands. A name that is taken gets a number.
    """
    taken, commands = {_plain(name) for name in reserved}, list[SkillCommand]()
    for skill in skills:
        if not skill.invocation.by_user:
            continue
        name = _make_unique(_plain(skill.name) or "skill", taken)
        taken.add(name)
        description = one_line(skill.description, _MAX_DESCRIPTION_CHARS)
        tool = skill.dispatch.tool if skill.dispatch else ""
        commands.append(SkillCommand(name, skill, description, tool))
    return tuple(commands)


def find_skill_command(
    commands: Iterable[SkillCommand], wanted: str, *, by_skill_name: bool = False
) -> SkillCommand | None:
    """Return the command of a name; with `by_skill_name`, that of a skill's name comes first."""
    found = {command.name: command for command in commands}
    if by_skill_name:
        found |= {_plain(command.skill.name): command for command in reversed(found.values())}
    return found.get(_plain(wanted))


def _plain(name: str) -> str:
    return _OTHER.sub("_", name.lower()).strip("_")[:MAX_NAME_CHARS].strip("_")


def _make_unique(name: str, taken: Collection[str]) -> str:
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name[: MAX_NAME_CHARS - len(str(number)) - 1]}_{number}"
    return unique
