"""The lock and origin files of the `clawhub` program, which both programs read and write.

`<root>/.clawhub/lock.json` has the version of each installed skill, and
`<root>/skills/<slug>/.clawhub/origin.json` where it came from. Keys that we do not know stay as
they are. Ours is `fingerprint` in the lock, which the other program ignores.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir

DOT_FOLDER: Final = ".clawhub"
LEGACY_DOT_FOLDER: Final = ".clawdhub"
MAX_BYTES: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class LockEntry:
    """What the lock says of one skill; `values` has all keys of it."""

    slug: str
    values: Mapping[str, Any]

    @property
    def version(self) -> str:
        found = self.values.get("version")
        return found if isinstance(found, str) else ""

    @property
    def is_pinned(self) -> bool:
        return self.values.get("pinned") is True

    @property
    def pin_reason(self) -> str:
        found = self.values.get("pinReason")
        return found if self.is_pinned and isinstance(found, str) else ""

    @property
    def owner(self) -> str:
        found = self.values.get("ownerHandle")
        return found if isinstance(found, str) else ""

    @property
    def fingerprint(self) -> str:
        found = self.values.get("fingerprint")
        return found if isinstance(found, str) else ""


@dataclass(frozen=True, slots=True)
class SkillOrigin:
    """Where an installed skill came from, and the fingerprint of its files then."""

    registry: str
    slug: str
    version: str
    installed_at_ms: int
    owner: str = ""
    fingerprint: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the content of origin.json."""
        owner = {"ownerHandle": self.owner} if self.owner else {}
        return {
            "version": 1,
            "registry": self.registry,
            "slug": self.slug,
            **owner,
            "installedVersion": self.version,
            "installedAt": self.installed_at_ms,
            "fingerprint": self.fingerprint,
        }


class SkillLock:
    """The lock file below a root."""

    def __init__(self, root: Path) -> None:
        self.path = root / DOT_FOLDER / "lock.json"
        self._legacy = root / LEGACY_DOT_FOLDER / "lock.json"

    def entries(self) -> dict[str, LockEntry]:
        """Return what is installed, by the key of each skill. Raises UserError for a bad file."""
        skills: Mapping[str, Any] = self._read()["skills"]
        return {
            key: LockEntry(key.rpartition("/")[2], values)
            for key, values in skills.items()
            if isinstance(values, Mapping)
        }

    def find(self, slug: str) -> tuple[str, LockEntry] | None:
        """Return the key and the entry of a skill, also one that was installed as @owner/slug."""
        found = self.entries()
        if slug in found:
            return slug, found[slug]
        return next(((key, entry) for key, entry in found.items() if entry.slug == slug), None)

    def put(self, key: str, values: Mapping[str, Any]) -> None:
        """Set the entry of a skill."""
        content = self._read()
        content["skills"][key] = dict(values)
        self._write(content)

    def remove(self, key: str) -> None:
        """Remove the entry of a skill, if there is one."""
        content = self._read()
        if content["skills"].pop(key, None) is not None:
            self._write(content)

    def _read(self) -> dict[str, Any]:
        for path in (self.path, self._legacy):
            content = read_json_object(path)
            if content is None:
                continue
            if content.get("version") != 1 or not isinstance(content.get("skills"), dict):
                raise UserError(
                    f"{path} is not a lock file of version 1",
                    fix="move it away and install the skills again",
                )
            return content
        return {"version": 1, "skills": {}}

    def _write(self, content: Mapping[str, Any]) -> None:
        make_private_dir(self.path.parent)
        write_atomic(self.path, format_json(content))


def read_origin(folder: Path) -> SkillOrigin | None:
    """Return the origin of an installed skill; None without a valid one."""
    for name in (DOT_FOLDER, LEGACY_DOT_FOLDER):
        try:
            content = read_json_object(folder / name / "origin.json")
        except UserError:
            continue
        if content is None or content.get("version") != 1:
            continue
        texts = [content.get(key) for key in ("registry", "slug", "installedVersion")]
        at_ms = content.get("installedAt")
        if not all(isinstance(text, str) and text for text in texts) or not isinstance(at_ms, int):
            continue
        owner, fingerprint = content.get("ownerHandle"), content.get("fingerprint")
        return SkillOrigin(
            str(texts[0]),
            str(texts[1]),
            str(texts[2]),
            at_ms,
            owner if isinstance(owner, str) else "",
            fingerprint if isinstance(fingerprint, str) else "",
        )
    return None


def read_json_object(path: Path) -> dict[str, Any] | None:
    """Return the object of a JSON file; None if there is no file. Raises UserError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise UserError(f"{path} cannot be read: {exc.strerror}") from exc
    try:
        content = json.loads(data) if len(data) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a JSON object", fix="correct it, or move it away")
    return content


def format_json(content: Mapping[str, Any]) -> bytes:
    """Return JSON as the `clawhub` program writes it."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
