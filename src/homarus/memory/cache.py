"""Vectors that were made once: kept by provider, model, key and text, whatever becomes of notes.

    cache = VectorCache(database, embedder, most=50_000)
    cache.wish("- Ada: hello")
    cache.make()                 # before anything is locked: it may take minutes

What cannot be made is no reason to lose the words: the first failure ends it, and is told.
"""

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from homarus.core.errors import HomarusError, ProviderError
from homarus.memory.embed.base import Embedder, texts_at_once
from homarus.memory.vectors import embedded_text, pack, text_key
from homarus.store.query import select

if TYPE_CHECKING:
    from homarus.memory.database import Database


class VectorCache:
    """The vectors of one model, and those that are wished for."""

    def __init__(self, database: "Database", embedder: Embedder, most: int | None = None) -> None:
        self._database = database
        self._embedder = embedder
        self._most = most
        self._at_once = texts_at_once(embedder)
        self._wanted: dict[str, str] = {}
        self.made = 0
        self.problem = ""

    def get(self, text: str) -> bytes | None:
        """The vector of a line, when there is one."""
        return self._held(text_key(text).hex())

    def wish(self, text: str) -> None:
        """A line that needs a vector; many are made at once."""
        key = text_key(text).hex()
        if self.problem or key in self._wanted or self._held(key) is not None:
            return
        self._wanted[key] = embedded_text(text)
        if len(self._wanted) >= self._at_once:
            self.make()

    def make(self) -> None:
        """Make what was wished for."""
        wanted, self._wanted = self._wanted, {}
        if not wanted or self.problem:
            return
        try:
            made = self._embed(list(wanted.values()))
        except HomarusError as exc:
            self.problem = str(exc)
            return
        model = self._embedder.model
        known_by = (model.provider, model.name, model.key)
        now_ms = time.time_ns() // 1_000_000
        rows = [
            (*known_by, key, pack(vector), model.dims, now_ms)
            for key, vector in zip(wanted, made, strict=True)
        ]
        with self._database.writing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO embedding_cache VALUES (?, ?, ?, ?, ?, ?, ?)", rows
            )
        self.made += len(rows)

    def prune(self) -> None:
        """Forget the oldest beyond what may be kept, inside a transaction."""
        if self._most is not None:
            self._database.db.execute(
                "DELETE FROM embedding_cache WHERE rowid IN (SELECT rowid FROM embedding_cache"
                " ORDER BY updated_at DESC, rowid DESC LIMIT -1 OFFSET ?)",
                (self._most,),
            )

    def _held(self, key: str) -> bytes | None:
        model = self._embedder.model
        rows = select(
            self._database.db,
            "SELECT embedding FROM embedding_cache"
            " WHERE provider = ? AND model = ? AND provider_key = ? AND hash = ? AND dims = ?",
            (model.provider, model.name, model.key, key, model.dims),
        )
        return rows[0][0] if rows else None

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each; a text without a word has one of zeros."""
        said = [text for text in texts if text]
        made = self._embedder.embed(said) if said else []
        model = self._embedder.model
        if len(made) != len(said):
            raise ProviderError(f"{model.id} gave {len(made)} vectors for {len(said)} texts")
        for vector in made:
            if len(vector) != model.dims or not math.isfinite(sum(vector)):
                raise ProviderError(
                    f"{model.id} gave a vector that is none of {model.dims} numbers"
                )
        rest = iter(made)
        return [next(rest) if text else [0.0] * model.dims for text in texts]
