"""The files of a skill: what is published, and the fingerprint of it.

The fingerprint is that of the `clawhub` program: SHA-256 of the lines `path:sha256`, sorted as the
default collation of ICU sorts them. It covers the files that are published: none that begins with
a dot, none in `node_modules`, none that `.gitignore` or `.clawhubignore` names.
"""

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

SKILL_FILE: Final = "SKILL.md"
MAX_FILES: Final = 1_000
MAX_FILE_BYTES: Final = 10 << 20
MAX_TOTAL_BYTES: Final = 50 << 20
_IGNORE_FILES: Final = (".gitignore", ".clawhubignore", ".clawdhubignore")
_SKIPPED: Final = frozenset({"node_modules", "__MACOSX"})
# ASCII in the order of the default collation; a capital letter follows its small one.
_ORDER: Final = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
_WEIGHTS: Final = {ch: weight for weight, ch in enumerate(_ORDER, 1)}


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill, by its path below the skill's folder."""

    path: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def fingerprint_files(files: Iterable[SkillFile]) -> str:
    """Return the fingerprint of a skill; files whose path has a part with a dot do not count."""
    return fingerprint_hashes((file.path, file.sha256) for file in files)


def fingerprint_hashes(hashes: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of paths and the SHA-256 of their files."""
    counted = [pair for pair in hashes if not is_hidden(pair[0])]
    lines = [f"{path}:{sha256}" for path, sha256 in sorted(counted, key=_collation_key)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def is_hidden(path: str) -> bool:
    """Return whether a part of a path begins with a dot."""
    return any(part.startswith(".") for part in path.split("/"))


def _collation_key(pair: tuple[str, str]) -> tuple[list[int], list[int], list[bool], str]:
    """Return the sort key of a path: letters first, then accents, then case.

    Letters beyond Latin ones are sorted by their code points, after Latin ones.
    """
    letters, accents, capitals = list[int](), list[int](), list[bool]()
    for ch in unicodedata.normalize("NFD", pair[0]):
        if unicodedata.combining(ch):
            if accents:
                accents[-1] = accents[-1] * 0x1000 + ord(ch)
            continue
        small = ch.lower()
        letters.append(_WEIGHTS.get(small, 0x1000 + ord(small[0])))
        accents.append(0)
        capitals.append(small != ch)
    return letters, accents, capitals, pair[0]


def read_skill_folder(folder: Path) -> tuple[SkillFile, ...]:
    """Return the files of a folder that are published. Raises UserError beyond the limits.

    Links are not followed.
    """
    ignored = _read_ignore_rules(folder)
    files, total = list[SkillFile](), 0
    for path in _walk(folder, folder):
        relative = path.relative_to(folder).as_posix()
        if _is_ignored(relative, ignored):
            continue
        data = _read_file(path, relative)
        total += len(data)
        if len(files) >= MAX_FILES or total > MAX_TOTAL_BYTES:
            raise UserError(
                f"{folder.name} has more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes",
                fix="name what does not belong to the skill in .clawhubignore",
            )
        files.append(SkillFile(relative, data))
    return tuple(files)


def _read_file(path: Path, relative: str) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise UserError(f"{one_line(relative, 80)} has more than {MAX_FILE_BYTES} bytes")
    return data


def _walk(top: Path, folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(top, Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


@dataclass(frozen=True, slots=True)
class _IgnoreRule:
    pattern: re.Pattern[str]
    is_negated: bool


def _read_ignore_rules(folder: Path) -> tuple[_IgnoreRule, ...]:
    rules: list[_IgnoreRule] = []
    for name in _IGNORE_FILES:
        try:
            text = (folder / name).read_bytes()[:100_000].decode("utf-8", "replace")
        except OSError:
            continue
        rules += [rule for line in text.splitlines() if (rule := _parse_rule(line))]
    return tuple(rules)


def _parse_rule(line: str) -> _IgnoreRule | None:
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text.removeprefix("!")
    only_folders, text = text.endswith("/"), text.rstrip("/")
    is_anchored, text = "/" in text, text.removeprefix("/")
    # `**` is any path; `*` and `?` stay within a part.
    source = re.escape(text)
    source = source.replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*")
    source = source.replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    prefix = "" if is_anchored else "(?:.*/)?"
    suffix = "/.*" if only_folders else "(?:/.*)?"
    return _IgnoreRule(re.compile(f"{prefix}{source}{suffix}"), is_negated)


def _is_ignored(path: str, rules: tuple[_IgnoreRule, ...]) -> bool:
    found = False
    for rule in rules:
        if rule.pattern.fullmatch(path):
            found = not rule.is_negated
    return found
