"""Memory as a library: an agent's notes, indexed and searched, without the gateway.

with Memory(workspace, state / "memory" / "main.sqlite") as memory:
    memory.sync()
    for result in memory.search("When did Ada move?"):
        print(result.citation, result.snippet)

`find` says besides whether vectors were compared, and why not.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from homarus.core.errors import Corrupt, HomarusError, StoreError
from homarus.core.value import dataclass
from homarus.memory import compatible, results
from homarus.memory.base import Ask, Progress, unseen
from homarus.memory.chunk import Chunk, whole_lines
from homarus.memory.chunks import Asked, search_chunks
from homarus.memory.embed.base import Embedder, embed_question
from homarus.memory.index import Counts, Report, open_index
from homarus.memory.pool import Snapshot, gather, read_snapshot
from homarus.memory.question import Question, read_question
from homarus.memory.ranking import Ranking
from homarus.memory.results import Passage, Result, Room
from homarus.memory.search import (
    LEXICAL,
    WITH_VECTORS,
    Found,
    Pool,
    Ranked,
    Weights,
    attainable,
    chance,
    rank,
)
from homarus.memory.second_look import asks_for_many, look_again
from homarus.memory.source import find_notes
from homarus.memory.vectors import Vectors
from homarus.memory.view import View
from homarus.store.query import select

_PASSAGE_NOTES = 60  # notes whose chunks are looked at
_PASSAGE_LINES = 160  # lines that may bring one
_WHOLE_CHARS = 300
_VIEWS_HELD = 8
_SPREAD_OVER = 3  # times as many results as are asked for


class TooSlow(StoreError):
    """A search took longer than it may."""

    code = "store.too_slow"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found. Where vectors were not compared, though there are some, `why` says it."""

    results: tuple[Result, ...]
    by_vectors: bool = False
    why: str = ""


class _Clock:
    """How long a search may still take."""

    def __init__(self, timeout_ms: int | None, monotonic: Callable[[], float]) -> None:
        self._monotonic, self._timeout_ms = monotonic, timeout_ms
        self._until = monotonic() + timeout_ms / 1000 if timeout_ms else math.inf

    @property
    def is_over(self) -> bool:
        return self._monotonic() >= self._until

    def check(self) -> None:
        if self.is_over:
            told = f"memory was searched for longer than {self._timeout_ms} ms"
            raise TooSlow(told, fix="Ask with fewer words, or raise memory.qmd.limits.timeoutMs.")


class Memory:
    """The notes of one workspace. Blocks: to be used from a thread."""

    def __init__(
        self,
        workspace: Path,
        database: Path,
        embedder: Embedder | None = None,
        extra: Sequence[Path] = (),
        ranking: Ranking | None = None,
        *,
        max_cached: int | None = None,
    ) -> None:
        self._workspace = workspace
        self._extra = tuple(extra)
        self._embedder = embedder
        self._ranking = ranking or Ranking()
        self._index = open_index(database, embedder, max_cached=max_cached)
        self._snapshots: dict[View, Snapshot] = {}
        self._opened = 0
        self._vectors: tuple[int, Vectors | None] = (-1, None)
        self._monotonic: Callable[[], float] = time.monotonic
        self.rebuilt = ""  # why a search had to make the index anew, the last time it had to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._index.close()

    def sync(self, *, force: bool = False, progress: Progress = unseen) -> Report:
        """Bring the index to what the files say."""
        found = find_notes(self._workspace, self._extra)
        return self._index.sync(found, force=force, progress=progress)

    def count(self) -> Counts:
        """How much is in the index."""
        return self._index.count()

    def search(self, text: str, ask: Ask | None = None) -> list[Result]:
        """The lines or passages that answer a question, best first."""
        return list(self.find(text, ask).results)

    def find(self, text: str, ask: Ask | None = None) -> Finding:
        """The same, and by what: when the question cannot be embedded, words alone are compared.

        An index that is damaged, or was never made, is made first. TooSlow when it takes too long.
        """
        ask = ask or Ask()
        if not self._index.is_made():
            self._make_anew()
        try:
            return self._search(text, ask)
        except Corrupt as exc:
            self._index.renew(exc)
        self._make_anew()
        return self._search(text, ask)

    def _make_anew(self) -> None:
        self.rebuilt = self.sync().rebuilt

    def _search(self, text: str, ask: Ask) -> Finding:
        clock = _Clock(ask.timeout_ms, self._monotonic)
        with self._index.reading():
            snapshot = self._snapshot(ask.view)
            question = read_question(text, snapshot.speakers, snapshot.years, ask.now)
            clock.check()
            asked, why = self._embed(text, snapshot, clock)
            if self._ranking.formula:
                shown = self._by_formula(snapshot, Asked(text, asked, ask.view, ask.now), ask)
            else:
                pool = gather(self._index.db, snapshot, question, asked, ask.view)
                if not why:
                    clock.check()
                shown = self._ranked(question, pool, ask)
        return Finding(tuple(shown), asked is not None, why)

    def _embed(
        self, text: str, snapshot: Snapshot, clock: _Clock
    ) -> tuple[Sequence[float] | None, str]:
        """The question as a vector; or none, and why."""
        if self._embedder is None or snapshot.vectors is None:
            return None, ""
        try:
            asked = embed_question(self._embedder, text)
        except (HomarusError, OSError) as exc:
            return None, str(exc) or type(exc).__name__
        if clock.is_over:
            return None, f"{self._embedder.model.provider} took too long to embed the question"
        return asked, ""

    def _by_formula(self, snapshot: Snapshot, asked: Asked, ask: Ask) -> list[Result]:
        least = compatible.MIN_SCORE if ask.min_score is None else ask.min_score
        chars = ask.max_snippet_chars or compatible.MAX_SNIPPET_CHARS
        room = Room(ask.max_results, chars, ask.max_injected_chars, least)
        return search_chunks(self._index.db, snapshot, asked, self._ranking, room)

    def _ranked(self, question: Question, pool: Pool, ask: Ask) -> list[Result]:
        weights, spread = self._weights(pool), self._ranking.spread
        half_life_days, lines = self._ranking.half_life_days, ask.mode == "lines"

        def order(candidates: Pool) -> list[Ranked]:
            return rank(question, candidates, weights, half_life_days)

        if lines and asks_for_many(question):
            ranked = look_again(question, pool, order, partial(self._gather, ask.view))
        else:
            ranked = order(pool)
        ranked = [one for one in ranked if one.is_told]
        chars = results.MAX_LINE_CHARS if lines else results.MAX_PASSAGE_CHARS
        chars = ask.max_snippet_chars or chars
        room = Room(ask.max_results, chars, ask.max_injected_chars, ask.min_score)
        if spread is not None:  # more than are shown, each of which there is room for
            fitting = int(min(chars, room.budget))
            room = Room(ask.max_results * _SPREAD_OVER, fitting, None, ask.min_score)
        if lines:
            words = (*question.phrases, *question.terms, *question.names)
            scale = partial(_chance, weights, attainable(question, pool, weights))
            shown = results.show_lines(ranked, pool.notes, room, scale, words)
        else:
            top = ranked[0].score if ranked else 0.0
            scale = partial(_chance, weights, attainable(question, pool, weights) - top)
            shown = results.show_passages(self._passages(ranked, pool), room, scale)
        if spread is None:
            return shown
        spare = Room(ask.max_results, chars, ask.max_injected_chars)
        return results.keep(results.spread(shown, spread), spare)

    def _gather(self, view: View, question: Question) -> Pool:
        """Candidates by words."""
        return gather(self._index.db, self._snapshot(view), question, None, view)

    def _weights(self, pool: Pool) -> Weights:
        if self._ranking.weights:
            return self._ranking.weights
        if not self._embedder or not pool.cosines:
            return LEXICAL
        return LEXICAL.towards(WITH_VECTORS, self._embedder.model.weight)

    def _snapshot(self, view: View) -> Snapshot:
        generation = self._index.generation
        if self._opened != self._index.opened:  # another file: its generations are others
            self._opened, self._vectors = self._index.opened, (-1, None)
            self._snapshots.clear()
        held = self._snapshots.get(view)
        if held is None or held.generation != generation:
            vectors = self._read_vectors(generation)
            held = read_snapshot(self._index.db, generation, view, vectors)
            kept = [one for one in self._snapshots.items() if one[1].generation == generation]
            self._snapshots = dict(kept[1 - _VIEWS_HELD :]) | {view: held}
        return held

    def _read_vectors(self, generation: int) -> Vectors | None:
        """All vectors of a generation, whoever may see them; read once."""
        if self._embedder is None:
            return None
        if self._vectors[0] != generation:
            read = Vectors.read(self._index.db, self._embedder.model)
            self._vectors = (generation, read if len(read) else None)
        return self._vectors[1]

    def _passages(self, ranked: Sequence[Ranked], pool: Pool) -> list[Passage]:
        """The chunks around the best lines, and what each line of them is worth."""
        by_note: dict[int, list[Ranked]] = {}
        for one in ranked:
            by_note.setdefault(one.line.note, []).append(one)
        best = dict.fromkeys(one.line.note for one in ranked[:_PASSAGE_LINES])
        passages: list[Passage] = []
        for note in list(best)[:_PASSAGE_NOTES]:
            found = pool.notes[note]
            rows = select(
                self._index.db,
                "SELECT start_line, end_line, text FROM chunks WHERE path = ? ORDER BY rowid",
                (found.path,),
            )
            for row in rows:
                if chunk := whole_lines(Chunk(*row)):
                    passages += _passage(found, chunk, by_note[note], ranked[0].score)
        return passages


def _chance(weights: Weights, most: float, score: float) -> float:
    return chance(most - score, weights)


def _passage(found: Found, chunk: Chunk, lines: Sequence[Ranked], top: float) -> Iterator[Passage]:
    """A chunk as a passage, when it has one of the lines; `lines` are the best first."""
    worth: dict[int, float] = {}
    best = ""
    for one in lines:
        line = one.line
        if not chunk.start_line <= line.line <= chunk.end_line:
            continue
        if len(line.text) > _WHOLE_CHARS and line.text[:_WHOLE_CHARS] not in chunk.text:
            continue  # another part of a long line
        best = best or line.text
        worth[line.line] = worth.get(line.line, 0.0) + math.exp(one.score - top)
    if worth:
        yield Passage(found, chunk, worth, best)
