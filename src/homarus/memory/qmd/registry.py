"""Keeping qmd's list of collections at what the agent's settings say.

qmd's list does not tell where a collection is. What was added is written down beside it, in
`collections.json`; one whose folder or pattern is another now is taken out and added again.
Collections that somebody else added there, under other names, are left alone.
"""

import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from homarus.core.errors import StoreError
from homarus.core.whole import replace_whole
from homarus.memory.place import Place
from homarus.memory.qmd.collections import Collection, collections_of
from homarus.memory.qmd.program import Program, folders_of

_LISTED = re.compile(r"^(\S.*?) \(qmd://.*\)$", re.MULTILINE)


class _Added(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    path: str
    pattern: str


_LIST = TypeAdapter(list[_Added])


class Registry:
    """The collections of one agent's qmd."""

    def __init__(self, place: Place, program: Program) -> None:
        self._place, self._program = place, program
        self._file = folders_of(place).base / "collections.json"
        self._settled: tuple[Collection, ...] | None = None
        self._settling = threading.Lock()

    @property
    def collections(self) -> tuple[Collection, ...] | None:
        """Those that qmd has; None when nobody knows yet."""
        return self._settled

    def settle(self, *, wait_ms: int = 0) -> None:
        """Add what is wanted, take out what is not; nothing is run when nothing changed.

        One thread does it, another waits for it: `wait_ms` at most, and 0 as long as it takes.
        """
        if not self._settling.acquire(timeout=wait_ms / 1000 if wait_ms else -1):
            raise StoreError("qmd is still indexing its collections for the first time")
        try:
            self._settle()
        finally:
            self._settling.release()

    def _settle(self) -> None:
        wanted = tuple(one for one in collections_of(self._place) if self._is_there(one))
        if wanted == self._settled:
            return
        update = self._place.settings.qmd.update
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

    def _is_there(self, collection: Collection) -> bool:
        """A folder that is there; one in the workspace may not be a link out of it."""
        root = collection.root
        is_own = root != self._place.workspace and root.is_relative_to(self._place.workspace)
        return root.is_dir() and not (is_own and root.is_symlink())

    def _add(self, one: Collection, *, timeout_ms: int) -> None:
        """Add one, which also indexes it."""
        named = (f"--name={one.name}", f"--mask={one.pattern}")
        self._run("add", *named, "--", str(one.root), timeout_ms=timeout_ms)

    def _run(self, *args: str, timeout_ms: int) -> None:
        self._program.run("collection", *args, timeout_ms=timeout_ms)

    def _recorded(self) -> Sequence[_Added]:
        """What was added before; a record that cannot be read counts as none."""
        try:
            return _LIST.validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            return ()

    def _write(self, added: Sequence[_Added]) -> None:
        text = json.dumps([one.model_dump() for one in added], indent=2, ensure_ascii=False)
        try:
            replace_whole(self._file, f"{text}\n".encode("utf-8", "surrogatepass"))
        except OSError as exc:
            raise StoreError(f"{self._file} cannot be written: {exc.strerror}") from exc


def _record(one: Collection) -> _Added:
    return _Added(name=one.name, path=str(one.root), pattern=one.pattern)


def remove_index(index: Path) -> None:
    """Take a damaged index away: it is made of the files, and will be again."""
    for ending in ("", "-wal", "-shm", "-journal"):
        index.with_name(index.name + ending).unlink(missing_ok=True)
