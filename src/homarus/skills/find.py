"""Find the skills in folders: which files are looked at, and which skill of a name is used.

A root contains a folder for each skill, with a SKILL.md in it (`folder_search.py`). What is not
usable is a problem with its reason, and does not keep other skills from being found.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Final

from homarus.config.skills_schema import SkillLimitsConfig
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import FileStamp
from homarus.core.text import one_line
from homarus.skills.folder_search import FolderSearch, FoundFile, SearchKind, load_frontmatter
from homarus.skills.frontmatter import FrontmatterError
from homarus.skills.skill import SKILL_FILE, Skill, SkillTier, make_skill

DEFAULT_LIMITS: Final = SkillLimitsConfig.model_construct()
SKILLS: Final = SearchKind(
    noun="skill",
    file_name=SKILL_FILE,
    extra_dirs_key="skills.load.extraDirs",
    max_folders_fix="remove folders, or raise skills.limits.maxCandidatesPerRoot",
)
_MAX_CACHED: Final = 5_000  # more than all tiers of several agents may have


@dataclass(frozen=True, slots=True)
class SkillRoot:
    """A folder with skills, and the tier of all of them."""

    tier: SkillTier
    folder: Path


@dataclass(frozen=True, slots=True)
class SkillProblem:
    """A file or folder that is not used as a skill: why, and what helps."""

    tier: SkillTier
    path: Path
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class FoundSkills:
    """The skills by name, those that another of the same name overrides, and the problems."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()
    overridden: tuple[Skill, ...] = ()


@dataclass(slots=True)
class SkillFileCache:
    """The skills of files that were read before, while the files are unchanged."""

    _entries: dict[tuple[str, SkillTier], tuple[FileStamp, Skill | SkillProblem]] = field(
        default_factory=dict
    )

    def find(self, path: str, tier: SkillTier, stamp: FileStamp) -> Skill | SkillProblem | None:
        """Return what was read from a file; None if that was another version of it."""
        found = self._entries.get((path, tier))
        return found[1] if found is not None and found[0] == stamp else None

    def add(
        self, path: str, tier: SkillTier, stamp: FileStamp, found: Skill | SkillProblem
    ) -> None:
        if len(self._entries) >= _MAX_CACHED:
            self._entries.clear()
        self._entries[path, tier] = stamp, found


def find_skills(
    roots: Iterable[SkillRoot],
    limits: SkillLimitsConfig = DEFAULT_LIMITS,
    cache: SkillFileCache | None = None,
) -> FoundSkills:
    """Return the skills of all roots, sorted by name. Of equal names the last root's is used."""
    cache = SkillFileCache() if cache is None else cache
    by_name: dict[str, Skill] = {}
    problems, overridden = list[SkillProblem](), list[Skill]()
    for root in roots:
        for found in _read_root(root, limits, cache, problems):
            before = by_name.get(found.name)
            if before is not None and before.file != found.file:  # one folder may be two roots
                overridden.append(before)
            by_name[found.name] = found
    skills = tuple(by_name[name] for name in sorted(by_name))
    return FoundSkills(skills, tuple(problems), tuple(overridden))


def _read_root(
    root: SkillRoot,
    limits: SkillLimitsConfig,
    cache: SkillFileCache,
    problems: list[SkillProblem],
) -> Iterator[Skill]:
    search = FolderSearch(
        SKILLS,
        root.folder,
        limits.max_candidates_per_root,
        lambda *problem: problems.append(SkillProblem(root.tier, *problem)),
        must_exist=root.tier is SkillTier.EXTRA,
    )
    loaded = 0
    for file in search.files():
        found = cache.find(file.path, root.tier, file.stamp)
        if found is None:
            found = _load(root, file, limits.max_skill_file_bytes)
            cache.add(file.path, root.tier, file.stamp, found)
        if isinstance(found, SkillProblem):
            problems.append(found)
            continue
        if loaded >= limits.max_skills_loaded_per_source:
            maximum = f"at most {loaded} skills of one folder are loaded; the rest is left out"
            fix = "raise skills.limits.maxSkillsLoadedPerSource"
            problems.append(SkillProblem(root.tier, root.folder, maximum, fix))
            return
        loaded += 1
        yield found


def _load(root: SkillRoot, file: FoundFile, max_bytes: int) -> Skill | SkillProblem:
    path = Path(file.path)
    try:
        return make_skill(load_frontmatter(file, max_bytes), root.tier, path, file.stamp)
    except FrontmatterError as exc:
        return SkillProblem(root.tier, path, str(exc), "correct the file, or remove its folder")
    except OSError as exc:
        return SkillProblem(root.tier, path, f"it cannot be read: {one_line(str(exc), 120)}")
