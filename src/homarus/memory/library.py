"""Memory as a library: an agent's notes, indexed and searched, without the gateway.

with Memory(workspace, state / "memory" / "main.sqlite") as memory:
    memory.sync()
    for result in memory.search("When did Ada move?"):
        print(result.citation, result.snippet)
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from homarus.memory import results
from homarus.memory.base import Ask
from homarus.memory.chunk import Chunk
from homarus.memory.embed.base import Embedder
from homarus.memory.index import Counts, Report, open_index
from homarus.memory.pool import Snapshot, gather, read_snapshot
from homarus.memory.question import read_question
from homarus.memory.results import Passage, Result
from homarus.memory.search import LEXICAL, WITH_VECTORS, Found, Pool, Ranked, Weights, rank
from homarus.memory.source import find_notes
from homarus.memory.view import View
from homarus.store.failure import Translated
from homarus.store.query import select

_PASSAGE_NOTES = 60  # notes whose chunks are looked at
_PASSAGE_LINES = 160  # lines that may bring one
_WHOLE_CHARS = 300


class Memory:
    """The notes of one workspace. Blocks: to be used from a thread."""

    def __init__(
        self,
        workspace: Path,
        database: Path,
        embedder: Embedder | None = None,
        extra: Sequence[Path] = (),
        weights: Weights | None = None,
    ) -> None:
        self._workspace = workspace
        self._extra = tuple(extra)
        self._embedder = embedder
        self._chosen = weights
        self._index = open_index(database, embedder)
        self._snapshots: dict[View, Snapshot] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._index.close()

    def sync(self, *, force: bool = False) -> Report:
        """Bring the index to what the files say."""
        return self._index.sync(find_notes(self._workspace, self._extra), force=force)

    def count(self) -> Counts:
        """How much is in the index."""
        return self._index.count()

    def search(self, text: str, ask: Ask | None = None) -> list[Result]:
        """The lines or passages that answer a question, best first."""
        ask = ask or Ask()
        with Translated(self._index.path):
            snapshot = self._snapshot(ask.view)
            question = read_question(text, snapshot.speakers, snapshot.years, ask.now)
            asked = None
            if self._embedder and snapshot.vectors is not None:
                asked = self._embedder.embed([text])[0]
            pool = gather(self._index.db, snapshot, question, asked, ask.view)
            ranked = rank(question, pool, self._weights(pool))
            if ask.mode == "lines":
                return results.show_lines(
                    ranked,
                    pool.notes,
                    max_results=ask.max_results,
                    max_chars=ask.max_snippet_chars or results.MAX_LINE_CHARS,
                    budget_chars=ask.max_injected_chars,
                )
            return results.show_passages(
                self._passages(ranked, pool),
                max_results=ask.max_results,
                max_chars=ask.max_snippet_chars or results.MAX_PASSAGE_CHARS,
                budget_chars=ask.max_injected_chars,
            )

    def _weights(self, pool: Pool) -> Weights:
        if self._chosen:
            return self._chosen
        if not self._embedder or not pool.cosines:
            return LEXICAL
        return LEXICAL.towards(WITH_VECTORS, self._embedder.model.weight)

    def _snapshot(self, view: View) -> Snapshot:
        generation = self._index.generation
        held = self._snapshots.get(view)
        if held is None or held.generation != generation:
            model = self._embedder.model if self._embedder else None
            held = read_snapshot(self._index.db, generation, view, model)
            self._snapshots = {view: held}
        return held

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
                passages += _passage(found, Chunk(*row), by_note[note], ranked[0].score)
        return passages


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
