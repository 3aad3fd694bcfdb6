"""What memory costs: to index lines, to look again at what did not change, to search.

Quality is measured elsewhere (`make bench-memory`), on conversations that are not in this
repository. The notes here are made of invented words as rare and as common as words are.
"""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import CpuClock, Figure, rss_mb
from homarus.memory.library import Ask, Memory

LINES_PER_NOTE = 100
WORDS = 12_000
SPEAKERS = ("Ada", "Ben", "Cleo", "Dan")
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
    for lines in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            found = _measure(Path(folder), lines, asks=60 if quick else 300)
        figures += found
    return figures


def _measure(place: Path, lines: int, asks: int) -> list[Figure]:
    words = _Words(random.Random(9))
    write_notes(place, lines, words)
    idle_mb = rss_mb()
    with Memory(place, place / "index.sqlite") as memory:
        cpu = CpuClock()
        report = memory.sync()
        index_s = cpu.spent_s()
        _age(memory, place)
        cpu = CpuClock()
        again = memory.sync()
        assert again.unchanged == lines // LINES_PER_NOTE
        again_ms = cpu.spent_s() * 1000
        spent_ms = sorted(_search_ms(memory, words.question()) for _ in range(asks))
        grown_mb = rss_mb() - idle_mb
    note = f"{report.lines} lines in {len(report.indexed)} notes"
    values = (
        report.lines / index_s,
        again_ms,
        statistics.median(spent_ms),
        spent_ms[int(len(spent_ms) * 0.95)],
        grown_mb,
    )
    units = ("lines/CPU-s", "CPU-ms", "CPU-ms", "CPU-ms", "MB")
    named = zip(NAMES[lines], values, units, strict=True)
    return [Figure(name, value, unit, note) for name, value, unit in named]


def _age(memory: Memory, place: Path) -> None:
    """Notes written this very second are read again: make them older, and look once."""
    old_s = time.time() - 3600
    for path in (place / "memory").iterdir():
        os.utime(path, (old_s, old_s))
    memory.sync()


def _search_ms(memory: Memory, question: str) -> float:
    cpu = CpuClock()
    memory.search(question, Ask(max_results=20))
    return cpu.spent_s() * 1000


def write_notes(place: Path, lines: int, words: "_Words") -> None:
    """Daily notes of a dialogue, so many lines in all."""
    folder = place / "memory"
    folder.mkdir()
    for number in range(lines // LINES_PER_NOTE):
        year, day = divmod(number, 336)
        month, day = divmod(day, 28)
        path = folder / f"{2000 + year}-{month + 1:02}-{day + 1:02}.md"
        path.write_text("\n".join(words.lines(LINES_PER_NOTE)) + "\n", encoding="utf-8")


_COMMON = "the to and a I it of that you is my was for in so we have on with this"


class _Words:
    """Invented words by Zipf's law, behind the commonest words of English."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        common = _COMMON.split()
        syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u")]
        made = ["".join(chance.choices(syllables, k=chance.choice((2, 3)))) for _ in range(WORDS)]
        self._all = common + made
        self._weights = [1 / (rank + 8) for rank in range(len(self._all))]

    def lines(self, number: int) -> Iterator[str]:
        for _ in range(number):
            said = self._chance.choices(self._all, self._weights, k=self._chance.randint(8, 36))
            yield f"- {self._chance.choice(SPEAKERS)}: {' '.join(said)}."

    def question(self) -> str:
        asked = self._chance.choices(self._all, self._weights, k=9)
        return f"What did {self._chance.choice(SPEAKERS)} say of {' '.join(asked)}?"
