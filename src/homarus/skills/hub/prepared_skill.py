"""A skill that is ready to be installed: its files are verified and checked, and none is written.

It comes from a registry, from a folder or from an archive of this machine.
"""

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.skills.hub.archive import MAX_ARCHIVE_BYTES, read_archive
from homarus.skills.hub.entry_names import check_owner, check_slug
from homarus.skills.hub.lock_file import SkillOrigin
from homarus.skills.hub.registry_client import RegistryClient, RegistryError, check_hashes
from homarus.skills.hub.skill_files import (
    SKILL_FILE,
    SkillFile,
    fingerprint_files,
    read_skill_folder,
)
from homarus.skills.hub.versions import parse_version
from homarus.skills.lint import LintFinding, LintReport, lint_skill

ARCHIVE_SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".skill")


@dataclass(frozen=True, slots=True)
class SkillReference:
    """How a person names a skill of a registry: `slug`, or `@owner/slug`."""

    slug: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class PreparedSkill:
    """The files of a skill, what was found in them, and where they came from."""

    slug: str
    files: tuple[SkillFile, ...]
    report: LintReport
    version: str = ""
    owner: str = ""
    registry: str = ""
    changelog: str = ""

    @property
    def fingerprint(self) -> str:
        return fingerprint_files(self.files)

    def origin(self, now_ms: int) -> SkillOrigin | None:
        """Return the origin of a skill of a registry; None for one of this machine."""
        if not self.registry:
            return None
        return SkillOrigin(self.registry, self.slug, self.version, now_ms, self.owner)


def parse_reference(text: str) -> SkillReference:
    """Return the skill that a text names. Raises UserError."""
    owner, slash, slug = text.strip().rpartition("/")
    return SkillReference(check_slug(slug.lower()), check_owner(owner) if slash else "")


def is_local_path(text: str) -> bool:
    """Return whether an argument is a file or folder and not the name of a skill."""
    if text.startswith(("./", "../", "/", "~/")) or text in (".", ".."):
        return True
    return text.lower().endswith(ARCHIVE_SUFFIXES) or (not text.startswith("@") and "/" in text)


def prepare_local(path: Path, name: str = "") -> PreparedSkill:
    """Read a folder or an archive. Raises UserError."""
    if path.is_dir():
        files = read_skill_folder(path)
    elif path.is_file():
        with path.open("rb") as file:
            files = read_archive(file.read(MAX_ARCHIVE_BYTES + 1))
    else:
        raise UserError(f"there is no file or folder {path}")
    if not any(file.path == SKILL_FILE for file in files):
        raise UserError(f"{path} has no {SKILL_FILE} at its top: it is not a skill")
    report = lint_skill(files)
    return PreparedSkill(name or suggest_slug(report.needs.name or path.stem), files, report)


def suggest_slug(name: str) -> str:
    """Return the name of a folder for a skill's name. Raises UserError if nothing is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return check_slug(re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-"))


async def prepare_from_registry(
    client: RegistryClient, reference: SkillReference, version: str = ""
) -> PreparedSkill:
    """Download a skill, verify it and check it. Raises UserError."""
    slug = reference.slug
    known = await client.skill(slug, reference.owner)
    if known.is_blocked:
        raise RegistryError(f"the registry blocks {slug} as malicious: {known.verdict}")
    wanted = parse_version(version).text if version else known.latest
    if not wanted:
        raise RegistryError(f"the registry has no version of {slug}", status=404)
    listed = await client.version(slug, wanted, known.owner)
    files = read_archive(await client.download(slug, wanted, known.owner))
    check_hashes(files, listed)
    extra = list[LintFinding]()
    if listed.hashes is None:
        text = "the registry lists no hashes, so the archive could not be verified"
        extra.append(LintFinding("unverified", "warn", SKILL_FILE, 0, text))
    if known.is_suspicious:
        text = f"the registry says that it is suspicious: {known.verdict or 'without a reason'}"
        extra.append(LintFinding("registry-warning", "warn", SKILL_FILE, 0, text))
    report = lint_skill(files)
    report = LintReport((*extra, *report.findings), report.needs)
    base = await client.base_url()
    return PreparedSkill(slug, files, report, wanted, known.owner, base, listed.changelog)


def new_demands(old: LintReport, new: LintReport) -> list[str]:
    """Return what a new version asks for that the old one did not."""
    before: Mapping[str, str] = dict(old.needs.rows())
    rows = [f"{title}: {value}" for title, value in new.needs.rows() if before.get(title) != value]
    known = {(each.rule, each.excerpt) for each in old.findings}
    return rows + [
        f"{each.place}: {each.message}"
        for each in new.warnings
        if (each.rule, each.excerpt) not in known
    ]
