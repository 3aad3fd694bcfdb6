"""The cost of memory: to index lines, to check unchanged files, to search.

Compared in the same run: plain FTS5, qmd, and the figures of OpenClaw. Quality is measured by
`make bench-memory`, on conversations that are not in this repository. The notes consist of
invented words with the frequencies of real ones.
"""

import itertools
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench import rivals
from bench.figure import CpuClock, Figure, best_of, rss_mb
from homarus.memory.base import SearchOptions
from homarus.memory.note_search import NoteSearch

LINES_PER_NOTE = 100
WORDS = 12_000
SPEAKERS = ("Ada", "Ben", "Cleo", "Dan")
DAILY_NOTES = 1_000
NAMES = {
    10_000: (
        "memory.10k_index_lines",
        "memory.10k_unchanged_ms",
        "memory.10k_search_p50_ms",
        "memory.10k_search_p95_ms",
        "memory.10k_grown_mb",
    ),
    100_000: (
        "memory.100k_index_lines",
        "memory.100k_unchanged_ms",
        "memory.100k_search_p50_ms",
        "memory.100k_search_p95_ms",
        "memory.100k_grown_mb",
    ),
}


def measure(*, quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    idle_mb = rss_mb()
    for lines in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            figures += _measure(Path(folder), lines, idle_mb, quick=quick)
    with tempfile.TemporaryDirectory() as folder:
        figures += _beside_the_original(Path(folder))
    return figures


def _measure(place: Path, lines: int, idle_mb: float, *, quick: bool) -> list[Figure]:
    words = _Words(random.Random(9))
    write_notes(place, lines, words)
    database = place / "index.sqlite"
    looks = () if quick else (1, 2)
    index_s = min((_index_s(place, place / f"{look}.sqlite") for look in looks), default=math.inf)
    with NoteSearch(place, database) as memory:
        cpu = CpuClock()
        report = memory.sync()
        index_s = min(index_s, cpu.spent_s())
        grown_mb = rss_mb() - idle_mb
        _age(memory, place)
        cpu = CpuClock()
        again = memory.sync()
        assert again.unchanged == lines // LINES_PER_NOTE
        again_ms = cpu.spent_s() * 1000
        asked = [words.question() for _ in range(60 if quick else 300)]
        spent_ms = sorted(best_of(2, partial(_search_ms, memory, one)) for one in asked)
        grown_mb = max(grown_mb, rss_mb() - idle_mb)
    note = f"{report.lines} lines in {len(report.indexed)} notes"
    p50, p95 = statistics.median(spent_ms), spent_ms[int(len(spent_ms) * 0.95)]
    values = (report.lines / index_s, again_ms, p50, p95, grown_mb)
    units = ("lines/CPU-s", "CPU-ms", "CPU-ms", "CPU-ms", "MB")
    named = zip(NAMES[lines], values, units, strict=True)
    figures = [Figure(name, value, unit, note) for name, value, unit in named]
    if lines == max(NAMES):
        figures += _beside_fts5(database, asked, (p50, p95))
        plain_s = rivals.index_plain_s(place / "memory")
        told = f"FTS5 {plain_s:.3g} CPU-s"
        figures.append(Figure("memory.100k_index_of_fts5", index_s / plain_s, "×", told))
    else:
        figures.append(_beside_qmd(place, asked, p50))
    return figures


def _index_s(place: Path, database: Path) -> float:
    """Return the CPU seconds of a first sync; the machine's noise only ever adds."""
    with NoteSearch(place, database) as memory:
        cpu = CpuClock()
        memory.sync()
        return cpu.spent_s()


def _beside_fts5(
    database: Path, asked: Sequence[str], ours_ms: tuple[float, float]
) -> list[Figure]:
    """Return the cost relative to plain FTS5 for the same questions and notes."""
    plain = rivals.PlainFts(database)
    try:
        spent_ms = sorted(best_of(2, partial(plain.search_ms, one)) for one in asked)
    finally:
        plain.close()
    p50, p95 = statistics.median(spent_ms), spent_ms[int(len(spent_ms) * 0.95)]
    note = f"FTS5, chunks 400/80, any word, BM25: p50 {p50:.3g}, p95 {p95:.3g} CPU-ms"
    return [
        Figure("memory.100k_p50_of_fts5", ours_ms[0] / p50, "×", note),
        Figure("memory.100k_p95_of_fts5", ours_ms[1] / p95, "×", note),
    ]


def _beside_qmd(place: Path, asked: Sequence[str], p50: float) -> Figure:
    measured = rivals.qmd_search_ms(place / "memory", asked[:5])
    spent_ms = rivals.QMD_SEARCH_MS if measured is None else measured
    how = "measured 15 Nov 2026: it does not run here" if measured is None else "here"
    note = f"`qmd search` takes {spent_ms:.3g} CPU-ms, {how}"
    return Figure("memory.qmd_search_times", spent_ms / p50, "×", note)


def _beside_the_original(place: Path) -> list[Figure]:
    """Return how many times as long OpenClaw took, on notes of the same kind."""
    chance = random.Random(3)
    words = rivals.write_daily(place, DAILY_NOTES)
    with NoteSearch(place, place / "index.sqlite") as memory:
        cpu = CpuClock()
        memory.sync()
        index_s = cpu.spent_s()
        asked = [" ".join(chance.sample(words, 3)) for _ in range(40)]
        spent_ms = statistics.median(_search_ms(memory, question) for question in asked)
    return [
        Figure(
            "memory.original_index_times",
            rivals.ORIGINAL_INDEX_S / index_s,
            "×",
            f"{DAILY_NOTES} notes: ours {index_s:.3g} CPU-s, its own {rivals.ORIGINAL_INDEX_S}",
        ),
        Figure(
            "memory.original_search_times",
            rivals.ORIGINAL_SEARCH_MS / spent_ms,
            "×",
            f"ours {spent_ms:.3g} CPU-ms, its own {rivals.ORIGINAL_SEARCH_MS:g} ms over HTTP",
        ),
    ]


def _age(memory: NoteSearch, place: Path) -> None:
    """Make notes older and check them once: notes of this very second would be read again."""
    old_s = time.time() - 3600
    for path in (place / "memory").iterdir():
        os.utime(path, (old_s, old_s))
    memory.sync()


def _search_ms(memory: NoteSearch, question: str) -> float:
    cpu = CpuClock()
    memory.search(question, SearchOptions(max_results=20))
    return cpu.spent_s() * 1000


def write_notes(place: Path, lines: int, words: "_Words") -> None:
    """Write daily notes of a dialogue with this many lines in all."""
    folder = place / "memory"
    folder.mkdir()
    for number in range(lines // LINES_PER_NOTE):
        year, day = divmod(number, 336)
        month, day = divmod(day, 28)
        path = folder / f"{2000 + year}-{month + 1:02}-{day + 1:02}.md"
        path.write_text("\n".join(words.lines(LINES_PER_NOTE)) + "\n", encoding="utf-8")


_COMMON = "the to and a I it of that you is my was for in so we have on with this"


class _Words:
    """Invented words by Zipf's law, after the commonest words of English."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        common = _COMMON.split()
        syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u")]
        made = ["".join(chance.choices(syllables, k=chance.choice((2, 3)))) for _ in range(WORDS)]
        self._all = common + made
        self._sums = list(itertools.accumulate(1 / (rank + 8) for rank in range(len(self._all))))

    def _some(self, number: int) -> list[str]:
        return self._chance.choices(self._all, cum_weights=self._sums, k=number)

    def lines(self, number: int) -> Iterator[str]:
        for _ in range(number):
            said = self._some(self._chance.randint(8, 36))
            yield f"- {self._chance.choice(SPEAKERS)}: {' '.join(said)}."

    def question(self) -> str:
        asked = self._some(9)
        return f"What did {self._chance.choice(SPEAKERS)} say of {' '.join(asked)}?"
