"""The file of the state directory that says which hooks the owner enabled, and which are suspended.

A workspace hook runs while its files are those that were enabled: the agent may write there. A
hook that was too slow several times is suspended until it is enabled again or its files change.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from homarus.core.atomic_file import write_atomic
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_lock import file_lock
from homarus.core.file_stamp import FileStamp, stat_stamp

FILE_NAME: Final = "internal-hooks.json"
_LOCK_NAME: Final = ".internal-hooks.lock"
_LOCK_S: Final = 5.0
_MAX_BYTES: Final = 1_000_000
_MAX_ENTRIES: Final = 500


@dataclass(frozen=True, slots=True)
class SuspendedHook:
    """A hook that is not called any more: the digest of its files then, why, and since when."""

    digest: str
    reason: str
    at_ms: int


class EnabledHooks:
    """The digests of enabled workspace hooks and the suspended hooks, by their folder."""

    def __init__(self, state: Path) -> None:
        self._file = state / FILE_NAME

    @property
    def stamp(self) -> FileStamp | None:
        """The version of the file; None when there is none."""
        return stat_stamp(self._file)

    def find_digest(self, folder: Path) -> str:
        """Return the digest with which a hook was enabled; "" if it was not."""
        found = self._section("enabled").get(str(folder))
        digest = found.get("digest") if isinstance(found, dict) else None
        return digest if isinstance(digest, str) else ""

    def find_suspended(self, folder: Path) -> SuspendedHook | None:
        found = self._section("suspended").get(str(folder))
        if not isinstance(found, dict):
            return None
        at_ms = found.get("atMs")
        return SuspendedHook(
            str(found.get("digest", "")),
            str(found.get("reason", "")),
            at_ms if isinstance(at_ms, int) else 0,
        )

    def enable(self, folder: Path, digest: str, at_ms: int) -> None:
        """Record the files of a hook as those that may run; it is no longer suspended."""
        self._change("enabled", folder, {"digest": digest, "atMs": at_ms}, removed="suspended")

    def disable(self, folder: Path) -> None:
        self._change("enabled", folder, None)

    def suspend(self, folder: Path, suspended: SuspendedHook) -> None:
        entry = {
            "digest": suspended.digest,
            "reason": suspended.reason,
            "atMs": suspended.at_ms,
        }
        self._change("suspended", folder, entry)

    def resume(self, folder: Path) -> None:
        """Remove the suspension of a hook."""
        self._change("suspended", folder, None)

    def _change(
        self, section: str, folder: Path, entry: Mapping[str, Any] | None, *, removed: str = ""
    ) -> None:
        with file_lock(self._file.with_name(_LOCK_NAME), _LOCK_S, is_optional=True):
            tree = self._read()
            entries = dict(tree.get(section) or {})
            entries.pop(str(folder), None)
            if entry is not None:
                entries[str(folder)] = dict(entry)
            tree[section] = dict(list(entries.items())[-_MAX_ENTRIES:])
            if removed and isinstance(tree.get(removed), dict):
                tree[removed].pop(str(folder), None)
            text = json.dumps({"version": 1, **tree}, ensure_ascii=False, indent=2)
            write_atomic(self._file, text.encode())

    def _section(self, name: str) -> Mapping[str, Any]:
        found = self._read().get(name)
        return found if isinstance(found, dict) else {}

    def _read(self) -> dict[str, Any]:
        """Return the content; nothing is enabled by a file that cannot be read."""
        try:
            with self._file.open("rb") as file:
                tree = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return tree if isinstance(tree, dict) else {}
