"""The records of MCP servers, one small file each, in the folder `mcp` of the state directory.

The command line writes them too while the gateway runs, so a record is read again after the folder
has changed. A file that cannot be read counts as absent: its server is then seen as a new one.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from homarus.core.atomic_file import write_atomic
from homarus.core.private_files import make_private_dir
from homarus.tools.mcp.tool_pins import ServerRecord, decode_record, encode_record

log = logging.getLogger(__name__)

FOLDER = "mcp"


class McpRecordStore:
    """Loads and saves records by the name of the server."""

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER
        self._changes, self._seen = 0, -1
        self._cache: dict[str, ServerRecord | None] = {}

    @property
    def revision(self) -> int:
        """Return another number after a record was saved or removed, here or elsewhere."""
        try:
            return self._changes + self._folder.stat().st_mtime_ns
        except OSError:
            return self._changes

    def find(self, server: str) -> ServerRecord | None:
        """Return what is known of a server, None before it was first seen."""
        if self._seen != (revision := self.revision):
            self._seen = revision
            self._cache.clear()
        if server not in self._cache:
            self._cache[server] = self._read(server)
        return self._cache[server]

    def update(
        self, server: str, change: Callable[[ServerRecord | None], ServerRecord]
    ) -> ServerRecord:
        """Save what `change` makes of the record, and return it."""
        before = self._read(server)
        record = change(before)
        if record != before:
            make_private_dir(self._folder)
            data = json.dumps(encode_record(record), ensure_ascii=False).encode(
                "utf-8", "surrogatepass"
            )
            write_atomic(self._path(server), data)
            self._changes += 1
        return record

    def remove(self, server: str) -> None:
        """Forget a server, with what was trusted of it."""
        self._path(server).unlink(missing_ok=True)
        self._changes += 1

    def _path(self, server: str) -> Path:
        return self._folder / f"{server}.json"

    def _read(self, server: str) -> ServerRecord | None:
        try:
            return decode_record(json.loads(self._path(server).read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as exc:
            log.warning("what was known of the MCP server %s cannot be read: %s", server, exc)
            return None
