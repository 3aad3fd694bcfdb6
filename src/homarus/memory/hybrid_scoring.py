"""OpenClaw's hybrid scoring of memory: paths, keyword query, weighted sum, diversity and decay.

It is selectable as `query.hybrid`, and the baseline of our figures. `ranker` does better.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.memory.stems import STOP_WORDS

VECTOR_WEIGHT: Final = 0.7
TEXT_WEIGHT: Final = 0.3
MIN_SCORE: Final = 0.35
MMR_LAMBDA: Final = 0.7
HALF_LIFE_DAYS: Final = 30.0
CANDIDATE_MULTIPLIER: Final = 4
MAX_CANDIDATES: Final = 200
MAX_SNIPPET_CHARS: Final = 700

_DAY_MS = 86_400_000
_WORD = re.compile(r"\w+")
_PLAIN_WORD = re.compile(r"[a-z0-9_]+")
_DAY_FILE = re.compile(r"(?:^|/)memory/(\d{4}-\d{2}-\d{2})\.md$")


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that the vector search, the keyword search, or both returned."""

    id: str
    path: str
    start_line: int
    end_line: int
    snippet: str
    source: str = "memory"
    vector_score: float = 0.0
    text_score: float = 0.0
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class HybridWeights:
    """The weights of both searches; `half_life_days` and `spread` enable decay and diversity."""

    vector: float = VECTOR_WEIGHT
    text: float = TEXT_WEIGHT
    half_life_days: float = 0.0
    spread: float | None = None


def hash_text(text: str) -> str:
    """Return the SHA-256 of the text as UTF-8, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def normalize_path(path: str) -> str:
    """Return a path relative to the workspace: without leading dots and slashes."""
    return path.strip().lstrip("./").replace("\\", "/")


def is_memory_path(path: str) -> bool:
    """Return whether a path names a memory file. No permission check: the disk is not read."""
    normal = normalize_path(path.strip())
    return normal in {"MEMORY.md", "memory.md"} or normal.startswith("memory/")


def cosine_similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the dimensions that both have; 0 when a vector has length 0."""
    pairs = list(zip(one, other, strict=False))
    norms = math.sqrt(sum(x * x for x, _ in pairs)) * math.sqrt(sum(y * y for _, y in pairs))
    return sum(x * y for x, y in pairs) / norms if norms else 0.0


def build_query(text: str) -> str | None:
    """Return OpenClaw's keyword query: every word is required."""
    words = _WORD.findall(text)
    return " AND ".join(f'"{word}"' for word in words) or None


def extract_keywords(text: str) -> list[str]:
    """Return the content words of a question, each once, for searches without vectors."""
    words = dict.fromkeys(word.lower() for word in _WORD.findall(text))
    return [word for word in words if word not in STOP_WORDS and (len(word) > 1 or word > "\x7f")]


def rank_to_score(rank: float | None) -> float:
    """Convert an FTS5 rank, 0 the best, into a score of at most 1; without a rank, into 0.001."""
    return 1 / (1 + (999.0 if rank is None or not math.isfinite(rank) else max(0.0, rank)))


def merge(
    vector: Iterable[Hit], keyword: Iterable[Hit], weights: HybridWeights, now_ms: int = 0
) -> list[Hit]:
    """Return the weighted sum of both searches, best first, with the text of the keyword hit."""
    found = {hit.id: hit for hit in vector}
    for hit in keyword:
        seen = found.get(hit.id, hit)
        snippet = hit.snippet or seen.snippet
        found[hit.id] = _changed(seen, snippet, seen.vector_score, hit.text_score, score=seen.score)
    scored = [_scored(hit, weights, now_ms) for hit in found.values()]
    scored.sort(key=lambda hit: -hit.score)
    return scored if weights.spread is None else diversify_hits(scored, weights.spread)


def _changed(hit: Hit, snippet: str, vector: float, text: float, *, score: float) -> Hit:
    where = (hit.id, hit.path, hit.start_line, hit.end_line)
    return Hit(*where, snippet, hit.source, vector, text, score)


def _scored(hit: Hit, weights: HybridWeights, now_ms: int) -> Hit:
    score = weights.vector * hit.vector_score + weights.text * hit.text_score
    day = day_of(hit.path)
    if weights.half_life_days and day:
        at_ms = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000
        score *= decay((now_ms - at_ms) / _DAY_MS, weights.half_life_days)
    return _changed(hit, hit.snippet, hit.vector_score, hit.text_score, score=score)


def day_of(path: str) -> date | None:
    """Return the day of a daily note; None for notes that do not decay."""
    found = _DAY_FILE.search(path)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def decay(age_days: float, half_life_days: float) -> float:
    """Return a score after some days: it halves with each half-life."""
    if half_life_days <= 0:
        return 1.0
    return math.exp(-math.log(2) / half_life_days * max(0.0, age_days))


def text_similarity(one: str, other: str) -> float:
    """Return the Jaccard similarity of the words of two texts."""
    return _overlap(_words(one), _words(other))


def _words(text: str) -> frozenset[str]:
    return frozenset(_PLAIN_WORD.findall(text.lower()))


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    if not one and not other:
        return 1.0
    return len(one & other) / len(one | other)


def mmr_score(relevance: float, most_alike: float, balance: float) -> float:
    """Return the marginal relevance of a hit beside those already selected."""
    return balance * relevance - (1 - balance) * most_alike


def diversify_hits(hits: Sequence[Hit], balance: float = MMR_LAMBDA) -> list[Hit]:
    """Return the same hits in a less repetitive order; a lambda of 1 changes nothing."""
    if balance >= 1 or len(hits) < 2:
        return list(hits)
    low, high = min(hit.score for hit in hits), max(hit.score for hit in hits)
    relevance = {
        number: (hit.score - low) / (high - low) if high > low else 1.0
        for number, hit in enumerate(hits)
    }
    words = [_words(hit.snippet) for hit in hits]
    alike = dict.fromkeys(relevance, 0.0)
    order: list[int] = []
    while alike:
        best = max(alike, key=lambda n: (_gain(relevance, alike, n, balance), hits[n].score))
        order.append(best)
        del alike[best]
        for number in alike:
            alike[number] = max(alike[number], _overlap(words[number], words[best]))
    return [hits[number] for number in order]


def _gain(
    relevance: Mapping[int, float], alike: Mapping[int, float], number: int, balance: float
) -> float:
    return mmr_score(relevance[number], alike[number], balance)
