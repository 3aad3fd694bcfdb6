"""Find the `actions.json` of skills, and read each again only when it has changed."""

import os
import stat
from collections.abc import Iterable
from dataclasses import field
from typing import Final, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import FileStamp
from homarus.skills.actions.action_reader import MAX_FILE_BYTES, read_actions
from homarus.skills.actions.definition import FILE_NAME, ActionFile, SkillAction
from homarus.skills.actions.keys import declared_keys
from homarus.skills.find import SkillProblem
from homarus.skills.skill import Skill

FoundAction: TypeAlias = tuple[Skill, SkillAction]

_NO_FILE: Final = ActionFile()
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class ActionFileCache:
    """The files that were read before, by path, with what they depend on."""

    entries: dict[str, tuple[FileStamp, frozenset[str], ActionFile]] = field(default_factory=dict)


def find_actions(
    skills: Iterable[Skill], cache: ActionFileCache | None = None
) -> tuple[FoundAction, ...]:
    """Return the actions of skills, in the order of the skills and of their files."""
    used = ActionFileCache() if cache is None else cache
    return tuple(
        (skill, action) for skill in skills for action in load_actions(skill, used).actions
    )


def find_action_problems(skills: Iterable[Skill]) -> list[SkillProblem]:
    """Return what is wrong with the actions of skills."""
    return [
        SkillProblem(skill.tier, skill.folder / FILE_NAME, problem.removeprefix(f"{FILE_NAME}: "))
        for skill in skills
        for problem in load_actions(skill).problems
    ]


def load_actions(skill: Skill, cache: ActionFileCache | None = None) -> ActionFile:
    """Return the actions of a skill, and what is wrong with its file. A link is not followed."""
    path = f"{skill.folder}/{FILE_NAME}"
    try:
        found = os.lstat(path)
    except OSError:
        return _NO_FILE
    stamp = FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)
    names = declared_keys(skill)
    known = cache.entries.get(path) if cache else None
    if known is not None and known[:2] == (stamp, names):
        return known[2]
    try:
        loaded = _load(path, found, names)
    except OSError as exc:
        loaded = ActionFile(problems=(f"{FILE_NAME}: it cannot be read: {exc.strerror}",))
    if cache is not None:
        cache.entries[path] = stamp, names, loaded
    return loaded


def _load(path: str, found: os.stat_result, names: frozenset[str]) -> ActionFile:
    if not stat.S_ISREG(found.st_mode):
        return ActionFile(problems=(f"{FILE_NAME}: it is not a file; a link is not followed",))
    handle = os.open(path, _FLAGS)
    with os.fdopen(handle, "rb") as file:
        return read_actions(file.read(MAX_FILE_BYTES + 1), key_names=names)
