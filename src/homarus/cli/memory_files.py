"""The index files of memory, for commands that only mention them: memory is not imported.

Each is `memory/<agentId>.homarus.sqlite` in the state directory; one with an `@` is of a workspace
that was given on the command line.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from homarus.cli.sessions import age
from homarus.config.paths import Paths
from homarus.core.fast_dataclass import dataclass

SUFFIX: Final = ".homarus.sqlite"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The file of an index: size and time of the last write."""

    agent: str
    size_bytes: int
    written_ms: int

    def describe(self, now_ms: int) -> str:
        since = age(now_ms - self.written_ms)
        when = "just now" if since == "now" else f"{since} ago"
        return f"{self.size_bytes / 1_000_000:.1f} MB, written {when}"


def index_files(paths: Paths) -> Iterator[IndexFile]:
    """Return the index of each agent that has one."""
    for file in sorted((paths.state / "memory").glob(f"*{SUFFIX}")):
        if "@" not in file.name and (found := stat_index(file)):
            yield found


def stat_index(file: Path) -> IndexFile | None:
    """Return an index with its companion files, which may be created or removed meanwhile."""
    parts = [_stat(file.with_name(f"{file.name}{end}")) for end in ("", "-wal", "-vectors")]
    stats = [one for one in parts if one]
    if not parts[0]:
        return None
    written_ms = max(one.st_mtime_ns for one in stats) // 1_000_000
    return IndexFile(file.name.removesuffix(SUFFIX), sum(one.st_size for one in stats), written_ms)


def _stat(file: Path) -> os.stat_result | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
