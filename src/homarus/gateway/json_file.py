"""A small file with one JSON object, which other programs may read and write too.

It is read again when its stamp has changed, replaced atomically, and readable by its owner alone.
Text that is not JSON counts as empty, is logged, and is archived before the first write. A file
that cannot be read, or that is or would become too large, is an error and stays as it is.
"""

import errno
import json
import logging
import os
from pathlib import Path

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import DiskFullError, StoreError
from homarus.core.message import Json
from homarus.store.state_paths import FileStamp, make_private_dir, stat_stamp

MAX_BYTES = 4 << 20  # of what is written
MAX_READ_BYTES = 16 << 20  # larger, so that a file that another program wrote can be pruned
_log = logging.getLogger(__name__)


class JsonFile:
    """One file, which may not exist."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))  # a symbolic link stays one
        self._stamp: FileStamp | None = None
        self._tree: dict[str, Json] = {}
        self._is_damaged = False

    def read(self) -> dict[str, Json]:
        """Return a copy of the object; its entries are shared and must not be changed.

        Raises StoreError when there is a file that cannot be read.
        """
        stamp = stat_stamp(self.path)
        if stamp is None:
            self._tree, self._is_damaged = {}, os.path.lexists(self.path)
        elif stamp != self._stamp:
            self._stamp = None
            self._tree = self._load(stamp)
        self._stamp = stamp
        return dict(self._tree)

    def write(self, tree: dict[str, Json]) -> None:
        """Replace the file atomically with this object, fsynced before returning.

        Raises StoreError, and leaves the file as it is, when that fails or the object is too large.
        """
        self.read()
        data = (json.dumps(tree, indent=2) + "\n").encode("ascii")
        if len(data) > MAX_BYTES:
            raise StoreError(
                f"{self.path} was not changed: it would have {len(data)} bytes, and"
                f" {MAX_BYTES >> 20} MB are the limit",
                fix="remove entries that are no longer needed from it",
            )
        try:
            make_private_dir(self.path.parent)
            if self._is_damaged:
                self.path.rename(self.path.with_name(f"{self.path.name}.corrupt"))
            write_atomic(self.path, data)
        except OSError as exc:
            kind = DiskFullError if exc.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
            raise kind(
                f"{self.path} was not changed: {exc.strerror or exc}",
                fix="check the room on its disk and who owns its folder",
            ) from exc
        self._tree, self._stamp, self._is_damaged = dict(tree), stat_stamp(self.path), False

    def _load(self, stamp: FileStamp) -> dict[str, Json]:
        if stamp.size > MAX_READ_BYTES:
            raise self._unreadable(f"it is larger than {MAX_READ_BYTES >> 20} MB")
        self._is_damaged = True
        try:
            tree = json.loads(self.path.read_bytes())
        except FileNotFoundError:  # the file disappeared meanwhile
            self._is_damaged = False
            return {}
        except OSError as exc:
            self._is_damaged = False
            raise self._unreadable(exc.strerror or str(exc)) from exc
        except (ValueError, RecursionError) as exc:
            _log.warning("%s is not JSON and counts as empty: %s", self.path, exc)
            return {}
        if not isinstance(tree, dict):
            _log.warning("%s is no JSON object and counts as empty", self.path)
            return {}
        self._is_damaged = False
        return tree

    def _unreadable(self, reason: str) -> StoreError:
        return StoreError(
            f"{self.path} cannot be read: {reason}",
            fix="check its size and who may read it; remove entries, or move it away",
        )
