"""The indexes of memory as files, for commands that only mention them: nothing of memory is loaded.

Each is `memory/<agentId>.sqlite` in the state directory; one with an `@` is of a workspace that
was named on the command line.
"""

from collections.abc import Iterator

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
        if "@" in file.name or not file.is_file():
            continue
        parts = [part for end in ("", "-wal") if (part := file.with_name(file.name + end)).exists()]
        found = [part.stat() for part in parts]
        written_ms = max(one.st_mtime_ns for one in found) // 1_000_000
        yield IndexFile(file.stem, sum(one.st_size for one in found), written_ms)
