"""Find the skills in folders: which files are looked at, and which skill of a name is used.

A root contains a folder for each skill, with a SKILL.md in it; such folders may be grouped in
folders of one further level, and a root may itself be a skill. What is not usable is a problem
with its reason, and does not keep other skills from being found. A link that leads out of its root
is not followed: who may write into one root must not be able to show the model another file.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Final

from homarus.config.skills_schema import SkillLimitsConfig
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_stamp import FileStamp
from homarus.core.text import one_line
from homarus.skills.frontmatter import MAX_FRONTMATTER_CHARS, FrontmatterError, read_frontmatter
from homarus.skills.skill import SKILL_FILE, Skill, SkillTier, make_skill

DEFAULT_LIMITS: Final = SkillLimitsConfig.model_construct()
_MAX_HEAD_BYTES: Final = MAX_FRONTMATTER_CHARS * 4 + 16
_END: Final = re.compile(rb"\n---[ \t]*(?=\r?\n|\Z)")
_EXTRA_FIX: Final = "create it, or remove it from skills.load.extraDirs"
_MAX_CACHED: Final = 5_000  # more than all tiers of several agents may have
_SKIPPED: Final = frozenset({"node_modules", "__pycache__"})


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


@dataclass(frozen=True, slots=True)
class _SkillFile:
    path: str
    stamp: FileStamp


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
    finder = _RootFinder(root, limits.max_candidates_per_root, problems)
    loaded = 0
    for file in finder.files():
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


class _RootFinder:
    """Finds the files of one root's skills, in the order of their names."""

    def __init__(self, root: SkillRoot, max_candidates: int, problems: list[SkillProblem]) -> None:
        self._root, self._max, self._problems = root, max_candidates, problems
        self._folder, self._real = str(root.folder), os.path.realpath(root.folder)
        self._seen, self._is_full = 0, False

    def files(self) -> Iterator[_SkillFile]:
        if self._root.tier is SkillTier.EXTRA and not Path(self._real).is_dir():
            self._add_problem(self._root.folder, "there is no such folder", _EXTRA_FIX)
            return
        own = self._file(self._folder)
        if own is not None:
            yield own
            return
        yield from self._below(self._folder, levels=2)

    def _below(self, folder: str, levels: int) -> Iterator[_SkillFile]:
        for name, is_link in self._folders(folder):
            if self._is_full or self._seen >= self._max:
                self._end_early()
                return
            self._seen += 1
            path = f"{folder}/{name}"
            if is_link and not self._is_inside(path):
                continue
            file = self._file(path)
            if file is not None:
                yield file
            elif levels > 1 and not is_link:
                yield from self._below(path, levels - 1)

    def _end_early(self) -> None:
        if self._is_full:
            return
        self._is_full = True
        message = f"it has more than {self._max} folders: the rest is not looked at"
        fix = "remove folders, or raise skills.limits.maxCandidatesPerRoot"
        self._add_problem(self._root.folder, message, fix)

    def _folders(self, folder: str) -> list[tuple[str, bool]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(
                    (entry.name, entry.is_symlink())
                    for entry in entries
                    if not entry.name.startswith(".")
                    and entry.name not in _SKIPPED
                    and (entry.is_dir(follow_symlinks=False) or entry.is_symlink())
                )
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as exc:
            self._add_problem(Path(folder), f"the folder cannot be read: {exc.strerror}")
            return []

    def _file(self, folder: str) -> _SkillFile | None:
        """Return the SKILL.md of a folder; None when there is none that may be read."""
        path = f"{folder}/{SKILL_FILE}"
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                if not self._is_inside(path):
                    return None
                found = Path(path).stat()
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            self._add_problem(Path(path), "it is not a file")
            return None
        return _SkillFile(path, FileStamp(found.st_size, found.st_mtime_ns, found.st_ino))

    def _is_inside(self, path: str) -> bool:
        target = Path(os.path.realpath(path))
        if target.is_relative_to(self._real):
            return True
        if target.exists():
            self._add_problem(
                Path(path),
                f"it is a link that leads out of {self._root.folder}",
                f"put the skill there, or name {target.parent} in skills.load.extraDirs",
            )
        return False

    def _add_problem(self, path: Path, message: str, fix: str = "") -> None:
        self._problems.append(SkillProblem(self._root.tier, path, message, fix))


def _load(root: SkillRoot, file: _SkillFile, max_bytes: int) -> Skill | SkillProblem:
    path = Path(file.path)
    try:
        if file.stamp.size > max_bytes:
            raise FrontmatterError(f"it has {file.stamp.size} bytes; at most {max_bytes} are read")
        return make_skill(read_frontmatter(_read_head(file)), root.tier, path, file.stamp)
    except FrontmatterError as exc:
        return SkillProblem(root.tier, path, str(exc), "correct the file, or remove its folder")
    except OSError as exc:
        return SkillProblem(root.tier, path, f"it cannot be read: {one_line(str(exc), 120)}")


def _read_head(file: _SkillFile) -> str:
    """Return the text up to the end of the frontmatter; the instructions below are not decoded.

    Raises FrontmatterError for text that is not UTF-8.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(os.path.realpath(file.path), flags)
    try:
        if os.fstat(handle).st_ino != file.stamp.inode:  # a link may lead elsewhere by now
            raise FrontmatterError("it was replaced while it was read")
        data = os.read(handle, _MAX_HEAD_BYTES)
    finally:
        os.close(handle)
    end = _END.search(data, 3)
    if end is None:  # there is no frontmatter, or one that is too long
        return data.decode(errors="replace")
    try:
        return data[: end.end()].decode()
    except UnicodeDecodeError:
        raise FrontmatterError("its frontmatter is not UTF-8") from None
