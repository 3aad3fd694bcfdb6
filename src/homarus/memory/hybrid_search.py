"""OpenClaw's hybrid search over our index: chunks by vectors and by words, in a weighted sum.

It is enabled by `query.hybrid`. We store vectors of lines, so the vector of a chunk is the mean of
its lines'. The keyword query requires every word; without vectors any word matches, as in OpenClaw.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

import apsw

from homarus.core.fast_dataclass import dataclass
from homarus.memory import hybrid_scoring
from homarus.memory.candidates import IndexSnapshot
from homarus.memory.hybrid_scoring import Hit
from homarus.memory.ranking_settings import RankingSettings
from homarus.memory.results import ResultLimits, SearchResult, centre
from homarus.memory.view import MemoryView
from homarus.store.query import select

_DAY_MS: Final = 86_400_000
_EPOCH: Final = date(1970, 1, 1)
_COLUMNS = "chunks.id, chunks.path, chunks.start_line, chunks.end_line, chunks.text, chunks.source"


@dataclass(frozen=True, slots=True)
class HybridQuery:
    """A query: its text, its vector if there is one, the view, and today."""

    text: str
    vector: Sequence[float] | None
    view: MemoryView
    now: date | None


def search_chunks(
    db: apsw.Connection,
    snapshot: IndexSnapshot,
    query: HybridQuery,
    ranking: RankingSettings,
    room: ResultLimits,
) -> list[SearchResult]:
    """Return the best chunks by the weighted sum, cut around the matched words."""
    formula = ranking.formula
    assert formula is not None  # noqa: S101 - the caller looked
    max_hits = min(hybrid_scoring.MAX_CANDIDATES, room.max_results * formula.candidates)
    by_vector = list(_near(db, snapshot, query, max_hits))
    by_words = list(_worded(db, query, max_hits))
    shares = (formula.vector, formula.text) if query.vector is not None else (0.0, 1.0)
    weights = hybrid_scoring.HybridWeights(*shares, ranking.half_life_days, ranking.spread)
    now_ms = ((query.now or _newest(snapshot)) - _EPOCH).days * _DAY_MS
    hits = hybrid_scoring.merge(by_vector, by_words, weights, now_ms)
    return list(_shown(hits, room, hybrid_scoring.extract_keywords(query.text)))


def _shown(
    hits: Sequence[Hit], room: ResultLimits, words: Collection[str]
) -> Iterator[SearchResult]:
    left = room.budget
    good = [hit for hit in hits if room.takes(hit.score)]
    for hit in good[: room.max_results]:
        if left <= 0:
            return
        result = _result(hit, words, int(min(room.chars, left)))
        left -= len(result.snippet)
        yield result


def _result(hit: Hit, words: Collection[str], max_hits: int) -> SearchResult:
    """Return a result that cites only the lines it shows."""
    score = max(0.0, min(1.0, hit.score))
    parts = hit.snippet.split("\n")
    if len(parts) != hit.end_line - hit.start_line + 1:  # pieces of one long line are no lines
        best = max(parts, key=lambda part: sum(word in part.lower() for word in words))
        shown = centre(best, words, max_hits)
        return SearchResult(hit.path, hit.start_line, hit.end_line, shown, score, hit.source)
    shown = centre(hit.snippet, words, max_hits)
    at = hit.snippet.find(shown)
    first = hit.start_line + hit.snippet.count("\n", 0, at)
    return SearchResult(hit.path, first, first + shown.count("\n"), shown, score, hit.source)


def _newest(snapshot: IndexSnapshot) -> date:
    return max((found.day for found in snapshot.notes.values() if found.day), default=_EPOCH)


def _near(
    db: apsw.Connection, snapshot: IndexSnapshot, query: HybridQuery, max_hits: int
) -> Iterator[Hit]:
    """Yield chunks that have a line near the query."""
    vectors = snapshot.vectors
    if vectors is None or query.vector is None:
        return
    ids = vectors.nearest(query.vector, within=snapshot.seen)
    found: dict[str, Hit] = {}
    for path, lines in _by_path(db, snapshot, ids).items():
        for row in select(db, f"SELECT {_COLUMNS} FROM chunks WHERE path = ?", (path,)):  # noqa: S608 - columns of ours
            held = [at for at, line in lines if row[2] <= line <= row[3]]
            if held:
                span = _span(db, held[0], row)
                found[row[0]] = _hit(row, vector=vectors.cosine_of(query.vector, *span))
    yield from sorted(found.values(), key=lambda hit: -hit.vector_score)[:max_hits]


def _by_path(
    db: apsw.Connection, snapshot: IndexSnapshot, ids: Collection[int]
) -> Mapping[str, list[tuple[int, int]]]:
    marks = ",".join("?" * len(ids))
    rows = select(db, f"SELECT id, note, line FROM lines WHERE id IN ({marks})", tuple(ids))  # noqa: S608 - marks only
    found: dict[str, list[tuple[int, int]]] = {}
    for at, note, line in rows:
        if note in snapshot.notes:
            found.setdefault(snapshot.notes[note].path, []).append((at, line))
    return found


def _span(db: apsw.Connection, at: int, row: tuple[Any, ...]) -> tuple[int, int]:
    """Return the first and last line id of a chunk that contains the line `at`."""
    rows = select(
        db,
        "SELECT min(id), max(id) FROM lines WHERE line BETWEEN ? AND ?"
        " AND note = (SELECT note FROM lines WHERE id = ?) AND id BETWEEN ? AND ?",
        (row[2], row[3], at, at - (row[3] - row[2] + 1) * 64, at + (row[3] - row[2] + 1) * 64),
    )
    return (int(rows[0][0]), int(rows[0][1]))


def _worded(db: apsw.Connection, query: HybridQuery, max_hits: int) -> Iterator[Hit]:
    fts_query = hybrid_scoring.build_query(query.text)
    if query.vector is None:
        words = hybrid_scoring.extract_keywords(query.text)
        fts_query = " OR ".join(f'"{word}"' for word in words) or fts_query
    if fts_query is None:
        return
    where, values = query.view.condition()
    rows = select(
        db,
        f"SELECT {_COLUMNS}, bm25(chunks_fts) FROM chunks_fts"  # noqa: S608 - columns of ours
        " JOIN chunks ON chunks.rowid = chunks_fts.rowid JOIN notes ON notes.path = chunks.path"
        f" WHERE chunks_fts MATCH ? AND {where or 'TRUE'} ORDER BY bm25(chunks_fts) LIMIT ?",
        (fts_query, *values, max_hits),
    )
    for row in rows:
        # FTS5 ranks are negative: -8 is a better match than -2.
        yield _hit(row, text=1 - hybrid_scoring.rank_to_score(-float(row[6])))


def _hit(row: tuple[Any, ...], vector: float = 0.0, text: float = 0.0) -> Hit:
    chunk_id, path, start, end, words, source = row[:6]
    return Hit(chunk_id, path, start, end, words, source, vector, text)
