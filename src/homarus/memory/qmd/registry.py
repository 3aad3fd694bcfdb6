"""Keep qmd's list of collections in line with the agent's settings.

qmd's list does not tell where a collection is. What was added is recorded next to it, in
`collections.json`; a collection with another folder or pattern now is removed and added again.
Other collections, added by the user, are left alone.
"""

import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import StoreError
from homarus.memory.qmd.collections import QmdCollection, collections_of
from homarus.memory.qmd.process import QmdProcess, folders_of
from homarus.memory.spec import MemorySpec

_LISTED = re.compile(r"^(\S.*?) \(qmd://.*\)$", re.MULTILINE)


class _Added(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    path: str
    pattern: str


_LIST = TypeAdapter(list[_Added])


class CollectionRegistry:
    """The collections of one agent's qmd."""

    def __init__(self, spec: MemorySpec, program: QmdProcess) -> None:
        self._spec, self._program = spec, program
        self._file = folders_of(spec).base / "collections.json"
        self._settled: tuple[QmdCollection, ...] | None = None
        self._settling = threading.Lock()

    @property
    def collections(self) -> tuple[QmdCollection, ...] | None:
        """Return the collections that qmd has; None before the first `reconcile`."""
        return self._settled

    def reconcile(self, *, wait_ms: int = 0) -> None:
        """Add and remove collections; runs nothing when nothing changed.

        One thread does it, others wait for it: at most `wait_ms`, 0 without limit.
        """
        if not self._settling.acquire(timeout=wait_ms / 1000 if wait_ms else -1):
            raise StoreError("qmd is still indexing its collections for the first time")
        try:
            self._settle()
        finally:
            self._settling.release()

    def _settle(self) -> None:
        wanted = tuple(one for one in collections_of(self._spec) if self._is_there(one))
        if wanted == self._settled:
            return
        update = self._spec.settings.qmd.update
        listed = self._program.run("collection", "list", timeout_ms=update.command_timeout_ms)
        held = set(_LISTED.findall(listed))
        added = {one.name: one for one in self._recorded()}
        kept = {one.name: one for one in map(_record, wanted) if added.get(one.name) == one}
        for name in sorted(held & {*added, *(one.name for one in wanted)}):
            if name not in kept:
                self._run("remove", name, timeout_ms=update.command_timeout_ms)
        done = [one for name, one in kept.items() if name in held]
        self._write(done)
        for one in wanted:
            if one.name not in held or one.name not in kept:
                self._add(one, timeout_ms=update.update_timeout_ms)
                done.append(_record(one))
                self._write(done)
        self._settled = wanted

    def _is_there(self, collection: QmdCollection) -> bool:
        """Return whether the folder exists; one in the workspace must not be a link."""
        root = collection.root
        is_own = root != self._spec.workspace and root.is_relative_to(self._spec.workspace)
        return root.is_dir() and not (is_own and root.is_symlink())

    def _add(self, one: QmdCollection, *, timeout_ms: int) -> None:
        """Add a collection, which also indexes it."""
        named = (f"--name={one.name}", f"--mask={one.pattern}")
        self._run("add", *named, "--", str(one.root), timeout_ms=timeout_ms)

    def _run(self, *args: str, timeout_ms: int) -> None:
        self._program.run("collection", *args, timeout_ms=timeout_ms)

    def _recorded(self) -> Sequence[_Added]:
        """Return what was added before; an unreadable record counts as empty."""
        try:
            return _LIST.validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            return ()

    def _write(self, added: Sequence[_Added]) -> None:
        text = json.dumps([one.model_dump() for one in added], indent=2, ensure_ascii=False)
        try:
            write_atomic(self._file, f"{text}\n".encode("utf-8", "surrogatepass"))
        except OSError as exc:
            raise StoreError(f"{self._file} cannot be written: {exc.strerror}") from exc


def _record(one: QmdCollection) -> _Added:
    return _Added(name=one.name, path=str(one.root), pattern=one.pattern)


def remove_index(index: Path) -> None:
    """Remove a damaged index; it is rebuilt from the files."""
    for ending in ("", "-wal", "-shm", "-journal"):
        index.with_name(index.name + ending).unlink(missing_ok=True)
