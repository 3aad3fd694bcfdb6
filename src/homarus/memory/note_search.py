"""Search the index of a workspace's notes; also usable as a library, without the gateway.

with NoteSearch(workspace, state / "memory" / "main.homarus.sqlite") as notes:
    notes.sync()
    for result in notes.search("When did Ada move?"):
        print(result.citation, result.snippet)

`find` also says whether vectors were compared, and why not.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from homarus.core.errors import CorruptDataError, HomarusError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.memory import hybrid_scoring, results
from homarus.memory.base import Progress, SearchOptions, ignore_progress
from homarus.memory.candidates import IndexSnapshot, gather_candidates, read_snapshot
from homarus.memory.chunking import DEFAULT_CHUNK_SIZE, ChunkSize, NoteChunk, whole_lines
from homarus.memory.embed.base import Embedder, embed_question
from homarus.memory.hybrid_search import HybridQuery, search_chunks
from homarus.memory.index import Index, SyncReport, open_index
from homarus.memory.note_files import find_notes
from homarus.memory.query import ParsedQuery, parse_query
from homarus.memory.ranker import (
    LEXICAL,
    WITH_VECTORS,
    CandidatePool,
    NoteInfo,
    RankedLine,
    RankingWeights,
    max_score,
    rank,
    score_to_probability,
)
from homarus.memory.ranking_settings import RankingSettings
from homarus.memory.relevance_feedback import expects_many_answers, rerank_by_feedback
from homarus.memory.results import Passage, ResultLimits, SearchResult
from homarus.memory.vectors import VectorTable
from homarus.memory.view import MemoryView
from homarus.store.query import select

_PASSAGE_NOTES = 60  # notes whose chunks are read
_PASSAGE_LINES = 160  # best lines whose notes are considered
_PREFIX_CHARS = 300
_MAX_SNAPSHOTS = 8  # one for each view
_DIVERSITY_FACTOR = 3  # times as many results as requested are ranked before they are diversified


class SearchTimeoutError(StoreError):
    """A search exceeded its timeout."""

    code = "store.too_slow"


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The results of a search; `why` says why vectors were not compared though there are some."""

    results: tuple[SearchResult, ...]
    by_vectors: bool = False
    why: str = ""


class _Deadline:
    """The deadline of one search."""

    def __init__(self, timeout_ms: int | None, monotonic: Callable[[], float]) -> None:
        self._monotonic, self._timeout_ms = monotonic, timeout_ms
        self._until = monotonic() + timeout_ms / 1000 if timeout_ms else math.inf

    @property
    def is_over(self) -> bool:
        return self._monotonic() >= self._until

    def check(self) -> None:
        if self.is_over:
            raise SearchTimeoutError(
                f"memory was searched for longer than {self._timeout_ms} ms",
                fix="Ask with fewer words, or raise memory.qmd.limits.timeoutMs.",
            )


class NoteSearch:
    """Search the notes of one workspace. It blocks: use it from a thread.

    An index that is missing or damaged is made by `rebuild` before it is searched; by default, by
    `sync`.
    """

    def __init__(
        self,
        workspace: Path,
        database: Path,
        embedder: Embedder | None = None,
        extra: Sequence[Path] = (),
        ranking: RankingSettings | None = None,
        *,
        max_cached: int | None = None,
        rebuild: Callable[[Index], SyncReport] | None = None,
        chunk_size: ChunkSize = DEFAULT_CHUNK_SIZE,
    ) -> None:
        self._workspace = workspace
        self._extra = tuple(extra)
        self._rebuild_index = rebuild
        self._ranking = ranking or RankingSettings()
        self._snapshots: dict[MemoryView, IndexSnapshot] = {}
        self._opened = 0
        self._vectors: tuple[int, VectorTable | None] = (-1, None)
        self._monotonic: Callable[[], float] = time.monotonic
        self.embedder = embedder
        self.index = open_index(database, embedder, max_cached=max_cached, chunk_size=chunk_size)
        self.rebuilt = ""  # why the last rebuild by a search was necessary

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()

    def close(self) -> None:
        self.index.close()

    def sync(self, *, force: bool = False, progress: Progress = ignore_progress) -> SyncReport:
        """Update the index from the files."""
        find = partial(find_notes, self._workspace, self._extra)
        return self.index.sync(find, force=force, progress=progress)

    def search(self, text: str, options: SearchOptions | None = None) -> list[SearchResult]:
        """Return the lines or passages that answer a query, best first."""
        return list(self.find(text, options).results)

    def find(self, text: str, options: SearchOptions | None = None) -> SearchOutcome:
        """Search; when the query cannot be embedded, words alone are compared.

        A missing or damaged index is rebuilt first. Raises SearchTimeoutError.
        """
        options = options or SearchOptions()
        if not self.index.is_made():
            self._rebuild()
        try:
            return self._search(text, options)
        except CorruptDataError as exc:
            self.index.database.reopen(exc)
        self._rebuild()
        return self._search(text, options)

    def _rebuild(self) -> None:
        report = self._rebuild_index(self.index) if self._rebuild_index else self.sync()
        self.rebuilt = report.rebuilt

    def _search(self, text: str, options: SearchOptions) -> SearchOutcome:
        clock = _Deadline(options.timeout_ms, self._monotonic)
        with self.index.database.reading():
            snapshot = self._snapshot(options.view)
            question = parse_query(text, snapshot.speakers, snapshot.years, options.now)
            clock.check()
            vector, why = self._embed(text, snapshot, clock)
            if self._ranking.formula:
                shown = self._by_formula(
                    snapshot, HybridQuery(text, vector, options.view, options.now), options
                )
            else:
                pool = gather_candidates(
                    self.index.database.db, snapshot, question, vector, options.view
                )
                if not why:
                    clock.check()
                shown = self._ranked(question, pool, options)
        return SearchOutcome(tuple(shown), vector is not None, why)

    def _embed(
        self, text: str, snapshot: IndexSnapshot, clock: _Deadline
    ) -> tuple[Sequence[float] | None, str]:
        """Return the vector of the query; or None and the reason."""
        if self.embedder is None or snapshot.vectors is None:
            return None, ""
        try:
            vector = embed_question(self.embedder, text)
        except (HomarusError, OSError) as exc:
            return None, str(exc) or type(exc).__name__
        if clock.is_over:
            return None, f"{self.embedder.model.provider} took too long to embed the question"
        return vector, ""

    def _by_formula(
        self, snapshot: IndexSnapshot, asked: HybridQuery, options: SearchOptions
    ) -> list[SearchResult]:
        min_score = hybrid_scoring.MIN_SCORE if options.min_score is None else options.min_score
        chars = options.max_snippet_chars or hybrid_scoring.MAX_SNIPPET_CHARS
        room = ResultLimits(options.max_results, chars, options.max_injected_chars, min_score)
        return search_chunks(self.index.database.db, snapshot, asked, self._ranking, room)

    def _ranked(
        self, question: ParsedQuery, pool: CandidatePool, options: SearchOptions
    ) -> list[SearchResult]:
        weights, spread = self._weights(pool), self._ranking.spread
        half_life_days, lines = self._ranking.half_life_days, options.mode == "lines"

        def order(candidates: CandidatePool) -> list[RankedLine]:
            return rank(question, candidates, weights, half_life_days)

        if lines and expects_many_answers(question):
            ranked = rerank_by_feedback(question, pool, order, partial(self._gather, options.view))
        else:
            ranked = order(pool)
        ranked = [one for one in ranked if one.is_told]
        chars = results.MAX_LINE_CHARS if lines else results.MAX_PASSAGE_CHARS
        chars = options.max_snippet_chars or chars
        room = ResultLimits(
            options.max_results, chars, options.max_injected_chars, options.min_score
        )
        if spread is not None:  # more than are shown, each of a size that fits alone
            fitting = int(min(chars, room.budget))
            room = ResultLimits(
                options.max_results * _DIVERSITY_FACTOR, fitting, None, options.min_score
            )
        if lines:
            words = (*question.phrases, *question.terms, *question.names)
            scale = partial(_chance, weights, max_score(question, pool, weights))
            shown = results.show_lines(ranked, pool.notes, room, scale, words)
        else:
            top = ranked[0].score if ranked else 0.0
            scale = partial(_chance, weights, max_score(question, pool, weights) - top)
            shown = results.show_passages(self._passages(ranked, pool), room, scale)
        if spread is None:
            return shown
        spare = ResultLimits(options.max_results, chars, options.max_injected_chars)
        return results.limit_results(results.diversify_results(shown, spread), spare)

    def _gather(self, view: MemoryView, question: ParsedQuery) -> CandidatePool:
        """Return the candidates by words alone."""
        return gather_candidates(self.index.database.db, self._snapshot(view), question, None, view)

    def _weights(self, pool: CandidatePool) -> RankingWeights:
        if self._ranking.weights:
            return self._ranking.weights
        if not self.embedder or not pool.cosines:
            return LEXICAL
        return LEXICAL.towards(WITH_VECTORS, self.embedder.model.weight)

    def _snapshot(self, view: MemoryView) -> IndexSnapshot:
        generation = self.index.generation
        if (
            self._opened != self.index.database.opened
        ):  # generations of two files are not comparable
            self._opened, self._vectors = self.index.database.opened, (-1, None)
            self._snapshots.clear()
        snapshot = self._snapshots.get(view)
        if snapshot is None or snapshot.generation != generation:
            vectors = self._read_vectors(generation)
            snapshot = read_snapshot(self.index.database.db, generation, view, vectors)
            current = [one for one in self._snapshots.items() if one[1].generation == generation]
            self._snapshots = dict(current[1 - _MAX_SNAPSHOTS :]) | {view: snapshot}
        return snapshot

    def _read_vectors(self, generation: int) -> VectorTable | None:
        """Return all vectors of a generation, whatever their audience; they are cached."""
        if self.embedder is None:
            return None
        if self._vectors[0] != generation:
            read = VectorTable.read(self.index.database.db, self.embedder.model)
            self._vectors = (generation, read if len(read) else None)
        return self._vectors[1]

    def _passages(self, ranked: Sequence[RankedLine], pool: CandidatePool) -> list[Passage]:
        """Return the chunks around the best lines, with the weight of each line in them."""
        by_note: dict[int, list[RankedLine]] = {}
        for one in ranked:
            by_note.setdefault(one.line.note, []).append(one)
        best = dict.fromkeys(one.line.note for one in ranked[:_PASSAGE_LINES])
        passages: list[Passage] = []
        size = self.index.made_chunk_size()
        for note in list(best)[:_PASSAGE_NOTES]:
            info = pool.notes[note]
            rows = select(
                self.index.database.db,
                "SELECT start_line, end_line, text FROM chunks WHERE path = ? ORDER BY rowid",
                (info.path,),
            )
            for row in rows:
                if chunk := whole_lines(NoteChunk(*row), size):
                    passages += _passage(info, chunk, by_note[note], ranked[0].score)
        return passages


def _chance(weights: RankingWeights, max_score: float, score: float) -> float:
    return score_to_probability(max_score - score, weights)


def _passage(
    info: NoteInfo, chunk: NoteChunk, lines: Sequence[RankedLine], top: float
) -> Iterator[Passage]:
    """Yield a chunk as a passage if it contains any of the lines; `lines` are the best first."""
    line_weights: dict[int, float] = {}
    best = ""
    for one in lines:
        line = one.line
        if not chunk.start_line <= line.line <= chunk.end_line:
            continue
        if len(line.text) > _PREFIX_CHARS and line.text[:_PREFIX_CHARS] not in chunk.text:
            continue  # the chunk holds another piece of this long line
        best = best or line.text
        line_weights[line.line] = line_weights.get(line.line, 0.0) + math.exp(one.score - top)
    if line_weights:
        yield Passage(info, chunk, line_weights, best)
