"""Install, replace and remove skill folders; a crash leaves the old version or the new one.

A new version is written to `<root>/.clawhub/staging/<id>/new`, with its origin file, and synced.
Then it is exchanged with `<root>/skills/<slug>`, the lock is written, and the staging folder is
deleted. `step.json` in the staging folder says what was planned: the next command completes or
undoes it. Files are written for their owner alone and without the right to be executed; nothing of
a skill is run.
"""

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from homarus.core.atomic_file import sync_folder, write_synced
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.file_lock import file_lock
from homarus.core.private_files import make_private_dir
from homarus.skills.hub.entry_names import check_entry_path, check_no_collisions, check_slug
from homarus.skills.hub.folder_swap import exchange_folders
from homarus.skills.hub.lock_file import (
    DOT_FOLDER,
    LEGACY_DOT_FOLDER,
    SkillLock,
    SkillOrigin,
    format_json,
    read_json_object,
    read_origin,
)
from homarus.skills.hub.skill_files import (
    SKILL_FILE,
    SkillFile,
    fingerprint_files,
    read_skill_folder,
)

if TYPE_CHECKING:
    from homarus.skills.hub.prepared_skill import PreparedSkill

LOCK_TIMEOUT_S: Final = 30.0
_STAGING: Final = "staging"
_OWN_FOLDERS: Final = (DOT_FOLDER, LEGACY_DOT_FOLDER)


@dataclass(frozen=True, slots=True)
class InstalledSkill:
    """A skill in a root, tracked by the lock or not."""

    slug: str
    folder: Path
    version: str = ""
    origin: SkillOrigin | None = None
    is_pinned: bool = False
    is_edited: bool = False  # its files are not those that were installed


class SkillInstaller:
    """Changes the skills of one root: a workspace, or the state directory."""

    def __init__(self, root: Path, exchange: Callable[[Path, Path], bool] = exchange_folders):
        self.root = root
        self.skills = root / "skills"
        self.lock = SkillLock(root)
        self._exchange = exchange

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Exclude other programs of ours, and complete what one of them left unfinished."""
        make_private_dir(self.lock.path.parent)
        make_private_dir(self.skills)
        for folder in (self.lock.path.parent, self.skills):
            if folder.is_symlink():
                raise UserError(f"{folder} is a link", fix="replace it by a folder")
        try:
            with file_lock(self.lock.path.with_name("homarus.lock"), LOCK_TIMEOUT_S):
                self.recover()
                yield
        except TimeoutError as exc:
            raise UserError(f"another program changes the skills of {self.root}") from exc

    def find(self, slug: str) -> InstalledSkill | None:
        """Return an installed skill; None if there is no such folder."""
        folder = self.skills / check_slug(slug)
        if not os.path.lexists(folder):
            return None
        found, origin = self.lock.find(slug), read_origin(folder)
        version = (found[1].version if found else "") or (origin.version if origin else "")
        is_edited = bool(origin and origin.fingerprint) and not self._is_original(folder, origin)
        is_pinned = bool(found and found[1].is_pinned)
        return InstalledSkill(slug, folder, version, origin, is_pinned, is_edited)

    def _is_original(self, folder: Path, origin: SkillOrigin | None) -> bool:
        if origin is None or folder.is_symlink():
            return False
        return fingerprint_files(read_skill_folder(folder)) == origin.fingerprint

    def install(
        self, slug: str, files: Iterable[SkillFile], origin: SkillOrigin | None = None
    ) -> SkillOrigin | None:
        """Put a skill in the place of the one that is there; return its origin, with fingerprint.

        Call it within `changing`. A skill without an origin, one of a local file, has no entry in
        the lock.
        """
        kept = tuple(file for file in files if file.path.split("/")[0] not in _OWN_FOLDERS)
        _check_files(kept)
        target = self.skills / check_slug(slug)
        if target.is_symlink():
            raise UserError(f"{target} is a link", fix="remove it, and install the skill again")
        found = self.lock.find(slug)
        key, old = (found[0], found[1].values) if found else (slug, {})
        entry: dict[str, Any] | None = None
        if origin is not None:
            origin = replace(origin, fingerprint=fingerprint_files(kept))
            entry = _lock_values(origin, old)
        step = self._stage(slug, kept, origin, {"key": key, "entry": entry})
        fault_point("skill.staged")
        self._replace(step, target)
        fault_point("skill.replaced")
        self._finish(step, key, entry)
        return origin

    def remove(self, slug: str) -> None:
        """Remove a skill and its entry in the lock. Call it within `changing`."""
        target = self.skills / check_slug(slug)
        found = self.lock.find(slug)
        step = self._open_step({"slug": slug, "action": "remove", "key": found and found[0]})
        fault_point("skill.staged")
        if target.is_symlink():
            target.unlink()
        elif target.exists():
            target.rename(step / "old")
            sync_folder(self.skills)
        fault_point("skill.replaced")
        self._finish(step, found[0] if found else slug, None)

    def _stage(
        self,
        slug: str,
        files: tuple[SkillFile, ...],
        origin: SkillOrigin | None,
        plan: Mapping[str, Any],
    ) -> Path:
        digest = _digest(files)
        step = self._open_step({"slug": slug, "action": "install", "digest": digest, **plan})
        new = step / "new"
        make_private_dir(new)
        for file in files:
            path = new / file.path
            make_private_dir(path.parent)
            write_synced(path, file.data)
        if origin is not None:
            make_private_dir(new / DOT_FOLDER)
            write_synced(new / DOT_FOLDER / "origin.json", format_json(origin.to_json()))
        for folder in {new / Path(file.path).parent for file in files} | {new}:
            sync_folder(folder)
        return step

    def _open_step(self, plan: Mapping[str, Any]) -> Path:
        step = self.lock.path.parent / _STAGING / secrets.token_hex(8)
        make_private_dir(step)
        write_synced(step / "step.json", json.dumps(plan).encode())
        return step

    def _replace(self, step: Path, target: Path) -> None:
        new, old = step / "new", step / "old"
        if not target.exists():
            new.rename(target)
        elif not self._exchange(new, target):
            target.rename(old)
            fault_point("skill.moved")
            new.rename(target)
        sync_folder(self.skills)

    def _finish(self, step: Path, key: str, entry: Mapping[str, Any] | None) -> None:
        if entry is None:
            self.lock.remove(key)
        else:
            self.lock.put(key, entry)
        fault_point("skill.locked")
        _delete(step)

    def recover(self) -> None:
        """Complete or undo what an interrupted command planned."""
        staging = self.lock.path.parent / _STAGING
        if not staging.is_dir() or staging.is_symlink():
            return
        for step in sorted(staging.iterdir()):
            try:
                plan = read_json_object(step / "step.json")
                slug = check_slug(str((plan or {}).get("slug", "")))
            except UserError:
                plan, slug = None, ""
            if plan and slug:
                self._recover_step(step, plan, slug)
            _delete(step)

    def _recover_step(self, step: Path, plan: Mapping[str, Any], slug: str) -> None:
        target, old = self.skills / slug, step / "old"
        key, entry = plan.get("key") or slug, plan.get("entry")
        if plan.get("action") == "remove":
            if not os.path.lexists(target):
                self.lock.remove(str(key))
            return
        if not os.path.lexists(target) and old.is_dir():
            # Both are whole here; the old one is what the lock says.
            old.rename(target)
            sync_folder(self.skills)
        elif target.is_dir() and _digest(_all_files(target)) == plan.get("digest"):
            self._record(str(key), entry)

    def _record(self, key: str, entry: Any) -> None:
        if isinstance(entry, dict):
            self.lock.put(key, entry)
        else:
            self.lock.remove(key)


def check_replacement(
    installer: SkillInstaller, prepared: "PreparedSkill", *, is_forced: bool
) -> None:
    """Raise UserError when an installed skill would be replaced against its owner's wish."""
    found, locked = installer.find(prepared.slug), installer.lock.find(prepared.slug)
    known = locked[1] if locked else None
    is_same = known is not None and prepared.registry and known.version == prepared.version
    if known and is_same and known.fingerprint and known.fingerprint != prepared.fingerprint:
        raise UserError(
            f"{prepared.slug} {prepared.version} is not what it was when it was installed before",
            fix="versions do not change: ask its publisher; to install it, remove the skill first",
        )
    if found is None:
        return
    if found.is_pinned:
        raise UserError(
            f"{found.slug} is pinned at {found.version}", fix=f"homarus skills unpin {found.slug}"
        )
    if not is_forced:
        fix = f"homarus skills update {found.slug}, or --force to replace it"
        raise UserError(f"{found.slug} is installed already", fix=fix)


def _check_files(files: tuple[SkillFile, ...]) -> None:
    for file in files:
        check_entry_path(file.path)
    check_no_collisions(file.path for file in files)
    if not any(file.path == SKILL_FILE for file in files):
        raise UserError("there is no SKILL.md at the top of it: it is not a skill")


def _lock_values(origin: SkillOrigin, old: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: old[key] for key in ("pinned", "pinReason") if key in old}
    owner = {"ownerHandle": origin.owner} if origin.owner else {}
    return {
        "version": origin.version,
        "installedAt": origin.installed_at_ms,
        **kept,
        **owner,
        "fingerprint": origin.fingerprint,
    }


def _digest(files: Iterable[SkillFile]) -> str:
    """Return a hash of all files, also of hidden ones."""
    lines = sorted(f"{file.path}:{file.sha256}" for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _all_files(folder: Path) -> Iterator[SkillFile]:
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        is_file = stat.S_ISREG(path.lstat().st_mode)
        if is_file and relative.parts[0] not in _OWN_FOLDERS:
            yield SkillFile(relative.as_posix(), path.read_bytes())


def _delete(step: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(step)
