"""A durable cache of vectors, by provider, model, key and text.

    cache = VectorCache(database, embedder, most=50_000)
    cache.request("- Ada: hello")
    cache.embed_requested()  # before anything is locked: it may take minutes
    cache.close()

Vectors cost time or money, so they are in a file of their own (`<agent>.homarus.sqlite-vectors`),
which survives when the index is damaged and rebuilt. A damaged cache is deleted, and its vectors
are made again. An embedding failure does not lose the words: the first one ends the embedding, and
is reported.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from homarus.config.sqlite_errors import TranslateErrors
from homarus.core.errors import CorruptDataError, HomarusError, ProviderError
from homarus.core.private_files import create_private
from homarus.memory import schema
from homarus.memory.database import BUSY_MS, beside, translate_os_errors
from homarus.memory.embed.base import Embedder, EmbeddingModel, batch_size
from homarus.memory.vectors import embedded_text, pack, text_key
from homarus.store.query import select

log = logging.getLogger(__name__)

_SUFFIX = "-vectors"
_PUT = "INSERT OR REPLACE INTO embedding_cache VALUES (?, ?, ?, ?, ?, ?, ?)"
_GET = (
    "SELECT embedding FROM embedding_cache"
    " WHERE provider = ? AND model = ? AND provider_key = ? AND hash = ? AND dims = ?"
)
_PRUNE = (
    "DELETE FROM embedding_cache WHERE rowid IN (SELECT rowid FROM embedding_cache"
    " ORDER BY updated_at DESC, rowid DESC LIMIT -1 OFFSET ?)"
)


class VectorCache:
    """The cached vectors of one model, and the texts that are requested."""

    def __init__(self, database: Path, embedder: Embedder, max_entries: int | None = None) -> None:
        self._path = beside(database, _SUFFIX)
        self._db: apsw.Connection | None = None  # opened when it is needed
        self._embedder = embedder
        self._max_entries = max_entries
        self._at_once = batch_size(embedder)
        self._wanted: dict[str, str] = {}
        self.made = 0
        self.problem = ""

    @property
    def model(self) -> EmbeddingModel:
        return self._embedder.model

    def close(self) -> None:
        if self._db:
            self._db.close()
            self._db = None

    def get(self, text: str) -> bytes | None:
        """Return the vector of a line, or None."""
        return self._held(text_key(text).hex())

    def request(self, text: str) -> None:
        """Request a vector for a line; many are embedded at once."""
        key = text_key(text).hex()
        if self.problem or key in self._wanted or self._held(key) is not None:
            return
        self._wanted[key] = embedded_text(text)
        if len(self._wanted) >= self._at_once:
            self.embed_requested()

    def embed_requested(self) -> None:
        """Embed what was requested."""
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
        self._run(partial(_put, rows))
        self.made += len(rows)

    def prune(self) -> None:
        """Delete the oldest vectors beyond the limit."""
        if self._max_entries is not None:
            self._run(partial(_prune, self._max_entries))

    def _held(self, key: str) -> bytes | None:
        model = self._embedder.model
        known_by = (model.provider, model.name, model.key, key, model.dims)
        rows = self._run(lambda db: select(db, _GET, known_by))
        vector = rows[0][0] if rows else None
        return vector if isinstance(vector, bytes) and len(vector) == model.dims else None

    def _run(self, work: Callable[[apsw.Connection], Any]) -> Any:
        """Use the file; a damaged one is deleted and created again."""
        try:
            return self._try(work)
        except CorruptDataError as exc:
            log.warning("vectors that were kept are lost: %s", exc.message)
        self.close()
        with translate_os_errors(self._path):
            for suffix in ("", "-wal", "-shm"):
                beside(self._path, suffix).unlink(missing_ok=True)
        return self._try(work)

    def _try(self, work: Callable[[apsw.Connection], Any]) -> Any:
        with translate_os_errors(self._path), TranslateErrors(self._path):
            try:
                if self._db is None:
                    self._db = self._connect()
                return work(self._db)
            except apsw.SQLError as exc:
                raise CorruptDataError(
                    f"{self._path} has tables of another program: {exc}"
                ) from exc

    def _connect(self) -> apsw.Connection:
        create_private(self._path)
        db = apsw.Connection(str(self._path))
        try:
            self._path.chmod(0o600)
            db.set_busy_timeout(BUSY_MS)
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
                select(db, f"PRAGMA {pragma}")
            made = schema.TABLES["embedding_cache"].replace("TABLE", "TABLE IF NOT EXISTS", 1)
            db.execute(made)
        except BaseException:
            db.close()
            raise
        return db

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text; zeros for a text without a word."""
        nonempty = [text for text in texts if text]
        made = self._embedder.embed(nonempty) if nonempty else []
        model = self._embedder.model
        if len(made) != len(nonempty):
            raise ProviderError(f"{model.id} gave {len(made)} vectors for {len(nonempty)} texts")
        for vector in made:
            if len(vector) != model.dims or not math.isfinite(sum(vector)):
                raise ProviderError(
                    f"{model.id} gave a vector that is none of {model.dims} numbers"
                )
        rest = iter(made)
        return [next(rest) if text else [0.0] * model.dims for text in texts]


def _put(rows: Sequence[tuple[Any, ...]], db: apsw.Connection) -> None:
    with db:  # all of them or none
        db.executemany(_PUT, rows)


def _prune(max_entries: int, db: apsw.Connection) -> None:
    db.execute(_PRUNE, (max_entries,))
