"""The indexes of memory as files, for commands that only mention them: nothing of memory is loaded.

Each is `memory/<agentId>.sqlite` in the state directory; one with an `@` is of a workspace that
was named on the command line.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from homarus.cli.sessions import age
from homarus.config.paths import Paths
from homarus.core.value import dataclass


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index, how large it is, and when it was last written."""

    agent: str
    size_bytes: int
    written_ms: int

    def told(self, now_ms: int) -> str:
        """For people."""
        since = age(now_ms - self.written_ms)
        when = "just now" if since == "now" else f"{since} ago"
        return f"{self.size_bytes / 1_000_000:.1f} MB, written {when}"


def index_files(paths: Paths) -> Iterator[IndexFile]:
    """The index of each agent that has one."""
    for file in sorted((paths.state / "memory").glob("*.sqlite")):
        if "@" not in file.name and (found := look_at(file)):
            yield found


def look_at(file: Path) -> IndexFile | None:
    """An index with what is kept beside it, which others may be making or removing right now."""
    parts = [_stat(file.with_name(f"{file.name}{end}")) for end in ("", "-wal", "-vectors")]
    held = [one for one in parts if one]
    if not parts[0]:
        return None
    written_ms = max(one.st_mtime_ns for one in held) // 1_000_000
    return IndexFile(file.stem, sum(one.st_size for one in held), written_ms)


def _stat(file: Path) -> os.stat_result | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
