"""What memory is compared with: FTS5 as it comes, the original's own figures, and qmd.

FTS5 as it comes is what `chunks_fts` is: the same notes cut 400/80, Porter's stems, any of the
words of a question, the best six by BM25. It gives chunks of 1,600 characters where memory gives
lines, and finds less (docs/adr/0014): the ratio says what the better answer costs.
"""

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path

import apsw

from bench.figure import CpuClock
from homarus.memory.chunking import cut_chunks
from homarus.memory.stems import content_stems

# Measured on the machine the limits are for, 15 Nov 2026: the original 2026.2.17, 1,000 daily notes
# of 1.5 KB (`write_daily`), indexing in CPU time of its process, and a search as `memory_search` by
# its HTTP interface, both without vectors. Its 2026.9.6 took 28 s and 112 ms.
ORIGINAL_INDEX_S = 13.6
ORIGINAL_SEARCH_MS = 44.0
# `qmd search` 2.8.3 on conversations of 600 lines, CPU of a call: a process each time.
QMD_SEARCH_MS = 180.0

_ASKED = (
    "SELECT path, start_line, end_line, text FROM chunks_fts WHERE chunks_fts MATCH ?"
    " ORDER BY bm25(chunks_fts) LIMIT 6"
)


class PlainFts:
    """The words of an index's own chunks, in a plain FTS5 query."""

    def __init__(self, database: Path) -> None:
        self._db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        self._db.execute("PRAGMA cache_size = -16000").fetchall()

    def close(self) -> None:
        self._db.close()

    def search_ms(self, question: str) -> float:
        cpu = CpuClock()
        words = " OR ".join(f'"{stem}"' for stem in dict.fromkeys(content_stems(question)))
        self._db.execute(_ASKED, (words,)).fetchall()
        return cpu.spent_s() * 1000


def index_plain_s(folder: Path) -> float:
    """Return the CPU seconds to read notes, cut them and index the chunks with FTS5."""
    with tempfile.TemporaryDirectory() as place:
        db = apsw.Connection(str(Path(place) / "plain.sqlite"))
        try:
            cpu = CpuClock()
            db.execute("PRAGMA journal_mode = WAL").fetchall()
            db.execute("CREATE VIRTUAL TABLE plain USING fts5(path, text, tokenize = porter)")
            with db:
                for path in sorted(folder.rglob("*.md")):
                    text = path.read_text(encoding="utf-8")
                    rows = [(path.name, chunk.text) for chunk in cut_chunks(text)]
                    db.executemany("INSERT INTO plain VALUES (?, ?)", rows)
            return cpu.spent_s()
        finally:
            db.close()


def write_daily(place: Path, number: int) -> list[str]:
    """Write notes like those OpenClaw was measured with; return words to search for."""
    chance = random.Random(7)
    pairs = [one + two for one in "bcdfghklmnprstvz" for two in "aeiou"]
    words = ["".join(chance.choices(pairs, k=chance.randint(2, 4))) for _ in range(3000)]
    (place / "memory").mkdir(parents=True)
    for at in range(number):
        day = date(2000, 1, 1) + timedelta(days=at)
        lines = [f"# {day} daily note", ""]
        for section in ("Work", "Home", "Ideas"):
            said = (" ".join(chance.choices(words, k=chance.randint(8, 14))) for _ in range(5))
            lines += [f"## {section}", "", *(f"- {one.capitalize()}." for one in said), ""]
        if at % 10 == 0:
            lines += [f"Decision: project aurora-{at} uses port {2000 + at}.", ""]
        (place / "memory" / f"{day}.md").write_text("\n".join(lines), encoding="utf-8")
    return words


def qmd_search_ms(notes: Path, questions: Sequence[str]) -> float | None:
    """Return the CPU of one `qmd search`, or None where qmd is not installed or fails."""
    found = _find_qmd()
    if found is None:
        return None
    program, node = found
    with tempfile.TemporaryDirectory() as home:
        env = {
            "PATH": os.pathsep.join(filter(None, (node, os.environ["PATH"]))),
            "HOME": home,
            "XDG_CACHE_HOME": f"{home}/cache",
            "XDG_CONFIG_HOME": f"{home}/config",
        }
        if _run_s([program, "collection", "add", str(notes), "--name", "bench"], env) is None:
            return None
        asked = ([program, "search", "--json", "-n", "6", question] for question in questions)
        spent = [_run_s(command, env) for command in asked]
    known = [one * 1000 for one in spent if one is not None]
    return min(known) if known else None


def _run_s(command: Sequence[str], env: Mapping[str, str]) -> float | None:
    """Return the CPU seconds of a command, or None when it fails."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return None if child.returncode else usage.ru_utime + usage.ru_stime


def _find_qmd() -> tuple[str, str] | None:
    """Find qmd on the path, or where `make test-peers` puts it, with a Node of its own."""
    if found := shutil.which("qmd"):
        return found, ""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "homarus-peers"
    program = cache / "qmd" / "node_modules" / ".bin" / "qmd"
    nodes = cache.glob("qmd/node/node_modules/node-*/bin")
    return (str(program), str(next(nodes, ""))) if program.exists() else None
