"""Read and replace a small JSON file that two processes write."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import StoreError
from homarus.core.file_lock import file_lock
from homarus.core.message import Json
from homarus.store.state_paths import FileStamp, make_private_dir, stat_stamp

MAX_BYTES: Final = 1 << 20
_FIX: Final = "mend it or move it away; homarus pairing list says when it can be read"


class PairingFile:
    """One file, which may be missing. Raises StoreError when it cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))  # a symbolic link stays one
        self._stamp: FileStamp | None = None
        self._tree: Mapping[str, Json] = {}

    def read(self) -> Mapping[str, Json]:
        """Return the object in the file; an empty one if there is no file."""
        stamp = stat_stamp(self.path)
        if stamp is None:
            if os.path.lexists(self.path):
                raise StoreError(f"{self.path} is not a file", fix=_FIX)
            self._tree = {}
        elif stamp != self._stamp:
            self._stamp = None
            self._tree = self._load(stamp)
        self._stamp = stamp
        return self._tree

    def write(self, tree: Mapping[str, Json]) -> None:
        """Replace the file atomically, with mode 0600, and fsync it."""
        self.read()  # an unreadable file is not overwritten
        data = (json.dumps(tree, indent=2) + "\n").encode("ascii")
        if len(data) > MAX_BYTES:
            raise StoreError(f"{self.path} was not changed: it would become too large", fix=_FIX)
        try:
            make_private_dir(self.path.parent)
            write_atomic(self.path, data)
        except OSError as exc:
            raise StoreError(
                f"{self.path} was not changed: {exc.strerror or exc}",
                fix="check the room on its disk and who owns its folder",
            ) from exc
        self._stamp, self._tree = stat_stamp(self.path), tree

    def _load(self, stamp: FileStamp) -> Mapping[str, Json]:
        try:
            if stamp.size > MAX_BYTES:
                raise ValueError("it is too large")
            tree = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError) as exc:
            raise StoreError(f"{self.path} cannot be read: {exc}", fix=_FIX) from exc
        if not isinstance(tree, dict):
            raise StoreError(f"{self.path} is no JSON object", fix=_FIX)
        return tree


@contextmanager
def locked(path: Path, wait_s: float) -> Iterator[None]:
    """Hold the file lock while the block lasts; the kernel releases it if the process dies."""
    with ExitStack() as stack:
        try:
            make_private_dir(path.parent)
            stack.enter_context(file_lock(path, wait_s))
        except OSError as exc:
            raise StoreError(
                f"{path} cannot be locked: {exc.strerror or exc}",
                fix="check who owns its folder, and try again",
            ) from exc
        yield
