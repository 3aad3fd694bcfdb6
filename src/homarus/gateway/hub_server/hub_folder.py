"""The skills of a registry in plain files, which a person can read and back up.

    DIR/skills/<slug>/skill.json                   whose skill it is, and whether it was deleted
    DIR/skills/<slug>/<version>/version.json       what was published, with the hash of each file
    DIR/skills/<slug>/<version>/files/…            the files

A version is written next to its place and renamed into it: it is there as a whole or not at all,
and it is never changed. Everything else (latest version, tags, search) follows from these files.
Deleting marks; nothing is removed.
"""

import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from homarus.core.atomic_file import sync_folder, write_atomic, write_synced
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.private_files import make_private_dir
from homarus.core.text import one_line
from homarus.skills.hub.archive import make_zip
from homarus.skills.hub.entry_names import check_entry_path, check_no_collisions, check_slug
from homarus.skills.hub.lock_file import format_json, read_json_object
from homarus.skills.hub.skill_files import SKILL_FILE, SkillFile, fingerprint_files
from homarus.skills.hub.versions import SkillVersion, find_version, parse_version
from homarus.skills.lint import LintFinding, lint_skill

MAX_FINDINGS: Final = 50


class HubRefusalError(UserError):
    """A request that the registry refuses, with the HTTP status for it."""

    code = "hub"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version; `content` is its version.json."""

    version: SkillVersion
    content: Mapping[str, Any]

    @property
    def is_withdrawn(self) -> bool:
        return bool(self.content.get("withdrawnAt"))

    @property
    def created_at_ms(self) -> int:
        return int(self.content.get("createdAt", 0))

    @property
    def files(self) -> list[dict[str, Any]]:
        return list(self.content.get("files", []))

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.content.get("findings", []))


@dataclass(frozen=True, slots=True)
class PublishedSkill:
    """A skill with its versions, the newest first."""

    slug: str
    owner: str
    created_at_ms: int
    deleted_at_ms: int = 0
    versions: tuple[PublishedVersion, ...] = ()

    @property
    def available(self) -> tuple[PublishedVersion, ...]:
        return tuple(each for each in self.versions if not each.is_withdrawn)

    @property
    def latest(self) -> PublishedVersion | None:
        """The newest version; one that is a preview only if there is no other."""
        stable = [each for each in self.available if not each.version.prerelease]
        return next(iter(stable or self.available), None)

    @property
    def is_visible(self) -> bool:
        return not self.deleted_at_ms and self.latest is not None

    @property
    def tags(self) -> dict[str, str]:
        """The newest version of each tag; `latest` follows from the versions."""
        tags: dict[str, str] = {}
        for each in reversed(self.available):
            for tag in each.content.get("tags", []):
                tags[str(tag)] = each.version.text
        if self.latest:
            tags["latest"] = self.latest.version.text
        return tags

    def find(self, version: str) -> PublishedVersion | None:
        """Return a version, also one that was withdrawn."""
        return next((each for each in self.versions if each.version.text == version), None)


@dataclass(frozen=True, slots=True)
class NewVersion:
    """What a publisher sends."""

    slug: str
    version: str
    name: str
    changelog: str
    files: tuple[SkillFile, ...]
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


class HubFolder:
    """The skills of a registry; read once, and changed by one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._skills_folder = folder / "skills"
        self._skills: dict[str, PublishedSkill] = {}
        self._lock = threading.Lock()
        self.problems: list[str] = []

    def load(self) -> None:
        """Read all skills. What cannot be read is a problem, and is not served."""
        make_private_dir(self._skills_folder)
        for leftover in self._skills_folder.glob("*/.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)  # of a publish that a crash ended
        for folder in sorted(self._skills_folder.iterdir()):
            try:
                slug = check_slug(folder.name)
                self._skills[slug] = self._read_skill(folder)
            except UserError as exc:
                self.problems.append(f"{folder.name}: {exc.message}")

    def _read_skill(self, folder: Path) -> PublishedSkill:
        content = read_json_object(folder / "skill.json")
        if content is None:
            raise UserError("it has no skill.json")
        versions = list[PublishedVersion]()
        for path in folder.iterdir():
            version = find_version(path.name)
            found = read_json_object(path / "version.json") if version else None
            if version and found:
                versions.append(PublishedVersion(version, found))
        return PublishedSkill(
            folder.name,
            str(content.get("owner", "")),
            int(content.get("createdAt", 0)),
            int(content.get("deletedAt", 0) or 0),
            tuple(sorted(versions, key=lambda each: each.version, reverse=True)),
        )

    def all(self) -> list[PublishedSkill]:
        """Return the skills that are offered."""
        return [skill for skill in self._skills.values() if skill.is_visible]

    def find(self, slug: str, owner: str = "", *, with_deleted: bool = False) -> PublishedSkill:
        """Return a skill. Raises HubRefusalError."""
        found = self._skills.get(slug)
        is_hidden = found is not None and not found.is_visible and not with_deleted
        if found is None or is_hidden or (owner and owner.removeprefix("@") != found.owner):
            raise HubRefusalError("Skill not found", 404)
        return found

    def read_files(self, skill: PublishedSkill, version: PublishedVersion) -> tuple[SkillFile, ...]:
        """Return the files of a version. Raises HubRefusalError when one was changed."""
        base = self._skills_folder / skill.slug / version.version.text / "files"
        files = list[SkillFile]()
        for row in version.files:
            path = check_entry_path(str(row["path"]))
            try:
                data = (base / path).read_bytes()
            except OSError:
                data = b""
            if hashlib.sha256(data).hexdigest() != row["sha256"]:
                raise HubRefusalError(
                    f"The archive of {skill.slug} {version.version.text} is refused: "
                    f"{one_line(path, 80)} is not what was published",
                    500,
                )
            files.append(SkillFile(path, data))
        return tuple(files)

    def archive(self, skill: PublishedSkill, version: PublishedVersion) -> bytes:
        """Return a version as a zip, made from files that were verified."""
        return make_zip(self.read_files(skill, version))

    def publish(self, new: NewVersion, handle: str) -> PublishedVersion:
        """Add a version. Raises HubRefusalError; then nothing is changed."""
        content = _describe(new, handle)
        with self._lock:
            skill = self._skills.get(new.slug)
            if skill is not None and skill.owner != handle:
                raise HubRefusalError(f"{new.slug} belongs to @{skill.owner}", 403)
            if skill is not None and skill.deleted_at_ms:
                raise HubRefusalError(f"{new.slug} is deleted; undelete it first", 409)
            if skill is not None and skill.find(new.version) is not None:
                text = f"Version {new.version} of {new.slug} exists, and versions are not changed"
                raise HubRefusalError(text, 409)
            if skill is None:
                skill = PublishedSkill(new.slug, handle, _now_ms())
                make_private_dir(self._skills_folder / new.slug)
                self._write_skill(skill)
            self._write_version(new, content)
            added = PublishedVersion(parse_version(new.version), content)
            versions = sorted((*skill.versions, added), key=lambda each: each.version, reverse=True)
            self._skills[new.slug] = replace(skill, versions=tuple(versions))
            return added

    def _write_version(self, new: NewVersion, content: Mapping[str, Any]) -> None:
        folder = self._skills_folder / new.slug
        staged = folder / f".new-{secrets.token_hex(8)}"
        try:
            for file in new.files:
                path = staged / "files" / file.path
                make_private_dir(path.parent)
                write_synced(path, file.data)
            write_synced(staged / "version.json", format_json(content))
            sync_folder(staged)
            fault_point("hub.staged")
            staged.rename(folder / new.version)
            sync_folder(folder)
        except OSError as exc:
            shutil.rmtree(staged, ignore_errors=True)
            text = f"The version could not be stored: {os.strerror(exc.errno or 0)}"
            raise HubRefusalError(text, 507) from exc

    def set_deleted(self, slug: str, handle: str, *, is_deleted: bool) -> None:
        """Delete a skill so that it can be restored, or restore it."""
        with self._lock:
            skill = self._own(slug, handle)
            changed = replace(skill, deleted_at_ms=_now_ms() if is_deleted else 0)
            self._write_skill(changed)
            self._skills[slug] = changed

    def set_withdrawn(self, slug: str, version: str, handle: str, *, is_withdrawn: bool) -> None:
        """Withdraw a version, or restore it; its number stays taken, and its files stay."""
        with self._lock:
            skill = self._own(slug, handle)
            found = skill.find(version)
            if found is None:
                raise HubRefusalError("Version not found", 404)
            if is_withdrawn and skill.latest == found:
                raise HubRefusalError("The latest version cannot be withdrawn", 409)
            content = {key: value for key, value in found.content.items() if key != "withdrawnAt"}
            content |= {"withdrawnAt": _now_ms()} if is_withdrawn else {}
            path = self._skills_folder / slug / version / "version.json"
            write_atomic(path, format_json(content))
            changed = PublishedVersion(found.version, content)
            versions = tuple(changed if each is found else each for each in skill.versions)
            self._skills[slug] = replace(skill, versions=versions)

    def _own(self, slug: str, handle: str) -> PublishedSkill:
        skill = self.find(slug, with_deleted=True)
        if skill.owner != handle:
            raise HubRefusalError(f"{slug} belongs to @{skill.owner}", 403)
        return skill

    def _write_skill(self, skill: PublishedSkill) -> None:
        content: dict[str, Any] = {
            "slug": skill.slug,
            "owner": skill.owner,
            "createdAt": skill.created_at_ms,
        }
        content |= {"deletedAt": skill.deleted_at_ms} if skill.deleted_at_ms else {}
        write_atomic(self._skills_folder / skill.slug / "skill.json", format_json(content))


def _describe(new: NewVersion, handle: str) -> dict[str, Any]:
    """Check a version, and return its version.json."""
    try:
        check_slug(new.slug)
        parse_version(new.version)
        for file in new.files:
            check_entry_path(file.path)
        check_no_collisions(file.path for file in new.files)
    except UserError as exc:
        raise HubRefusalError(exc.message, 400) from exc
    if not any(file.path == SKILL_FILE for file in new.files):
        raise HubRefusalError("SKILL.md is missing", 400)
    report = lint_skill(new.files)
    if report.needs.problem:
        raise HubRefusalError(f"SKILL.md cannot be used: {report.needs.problem}", 400)
    return {
        "version": new.version,
        "createdAt": _now_ms(),
        "publishedBy": handle,
        "displayName": one_line(new.name, 120) or new.slug,
        "summary": report.needs.description,
        "changelog": new.changelog[:4_000],
        "tags": [one_line(tag, 40) for tag in new.tags[:20]],
        "topics": [one_line(topic, 40) for topic in new.topics[:20]],
        "fingerprint": fingerprint_files(new.files),
        "files": [
            {"path": file.path, "size": len(file.data), "sha256": file.sha256} for file in new.files
        ],
        "findings": [_finding_row(each) for each in _worst(report.findings)],
    }


def _worst(findings: Iterable[LintFinding]) -> list[LintFinding]:
    return [each for each in findings if each.severity != "info"][:MAX_FINDINGS]


def _finding_row(finding: LintFinding) -> dict[str, Any]:
    return {
        "code": finding.rule,
        "severity": "critical" if finding.severity == "block" else finding.severity,
        "file": finding.file,
        "line": finding.line,
        "message": finding.message,
        "evidence": finding.excerpt,
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
