"""Store and compare the vectors of lines, quantised to eight bits a dimension.

A vector is stored as signed bytes. One bit of each dimension, its sign, is enough to find the
nearest few hundred of many; those are then compared by their bytes. numpy is loaded when it is
needed.
"""

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import apsw

from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.flags import HEADING
from homarus.store.query import select

VisibleRows: TypeAlias = Any  # row numbers of the vector table, as a numpy array

EXACT_UP_TO: Final = 5_000
NEAREST: Final = 200


MAX_MODELS: Final = 3  # that an index has vectors of


def number_of(db: apsw.Connection, model: EmbeddingModel) -> int:
    """Return the number of a model in an index; 0 if it has none."""
    rows = select(db, "SELECT number FROM vector_models WHERE model = ?", (model.id,))
    return int(rows[0][0]) if rows else 0


def add_model(db: apsw.Connection, model: EmbeddingModel) -> int:
    """Return a model's number, adding it if it is new; the oldest model's vectors are dropped."""
    if known := number_of(db, model):
        return known
    ((number,),) = select(db, "SELECT COALESCE(MAX(number), 0) + 1 FROM vector_models")
    db.execute("INSERT INTO vector_models VALUES (?, ?, 0)", (number, model.id))
    gone = "(SELECT number FROM vector_models ORDER BY number DESC LIMIT -1 OFFSET ?)"
    for table, column in (("line_vectors", "model"), ("vector_models", "number")):
        db.execute(f"DELETE FROM {table} WHERE {column} IN {gone}", (MAX_MODELS,))  # noqa: S608 - names above
    return int(number)


def count_missing(db: apsw.Connection) -> None:
    """Record for every model how many lines have no vector of it."""
    db.execute(
        "UPDATE vector_models SET missing = (SELECT count(*) FROM lines WHERE NOT flags & ?)"
        " - (SELECT count(*) FROM line_vectors WHERE line_vectors.model = number)",
        (HEADING,),
    )


def missing_of(db: apsw.Connection, model: EmbeddingModel) -> int | None:
    """Return how many lines have no vector of a model; None if the model is unknown."""
    rows = select(db, "SELECT missing FROM vector_models WHERE model = ?", (model.id,))
    return int(rows[0][0]) if rows else None


def text_key(text: str) -> bytes:
    """Return the cache key of a text."""
    return hashlib.blake2b(embedded_text(text).encode("utf-8", "replace"), digest_size=16).digest()


def embedded_text(text: str) -> str:
    """Return what is embedded of a line: its text without a list marker."""
    return text.strip().lstrip("-*+•> \t")


def pack(vector: Sequence[float]) -> bytes:
    """Quantise a unit vector to signed bytes."""
    largest = max((abs(float(number)) for number in vector), default=0.0)
    scale = 127 / largest if largest else 0.0
    return array("b", [round(float(number) * scale) for number in vector]).tobytes()


class VectorTable:
    """All vectors of one generation in memory: a byte, and a bit, for each dimension."""

    def __init__(self, rows: Iterable[tuple[int, bytes]], dims: int) -> None:
        import numpy as np

        held = [(at, vector) for at, vector in rows if len(vector) == dims]
        self._ids = np.fromiter((at for at, _ in held), np.int64, len(held))
        whole = np.frombuffer(b"".join(vector for _, vector in held), np.int8)
        self._bytes = whole.reshape(len(held), dims)
        self._signs = self._bits(self._bytes)

    @staticmethod
    def read(db: apsw.Connection, model: EmbeddingModel) -> "VectorTable":
        """Read all vectors of a model."""
        asked = "SELECT id, vector FROM line_vectors WHERE model = ? ORDER BY id"
        return VectorTable(db.execute(asked, (number_of(db, model),)), model.dims)

    def __len__(self) -> int:
        return len(self._ids)

    @staticmethod
    def _bits(numbers: Any) -> Any:
        import numpy as np

        packed = np.packbits(numbers > 0, axis=1)
        short = -packed.shape[1] % 8
        whole = np.ascontiguousarray(np.pad(packed, ((0, 0), (0, short)))).view(np.uint64)
        return np.ascontiguousarray(whole.T)  # 64 signs of every line together

    def within(self, spans: Iterable[tuple[int, int]]) -> VisibleRows:
        """Return the rows of the lines in some ranges, for `nearest`."""
        import numpy as np

        ends = np.array(sorted(spans), np.int64).reshape(-1, 2)
        at = np.searchsorted(ends[:, 0], self._ids, side="right") - 1
        inside = at >= 0
        inside[inside] = self._ids[inside] <= ends[at[inside], 1]
        return np.flatnonzero(inside)

    def nearest(
        self, question: Sequence[float], most: int = NEAREST, within: VisibleRows | None = None
    ) -> list[int]:
        """Return the lines nearest to a query; among many, those nearest by their signs."""
        import numpy as np

        rows = np.arange(len(self._ids)) if within is None else within
        if len(rows) <= most:
            return [int(at) for at in self._ids[rows]]
        asked = np.asarray(question, np.float32)
        if len(rows) <= EXACT_UP_TO:
            distance = -self._compare(self._bytes[rows], asked)
        else:
            signs = self._bits(asked[None, :])
            distance = np.zeros(len(rows), np.uint16)
            for held, wanted in zip(self._signs, signs[:, 0], strict=True):
                distance += np.bitwise_count((held if within is None else held[rows]) ^ wanted)
        return [int(at) for at in self._ids[rows[np.argpartition(distance, most)[:most]]]]

    def cosine_of(self, question: Sequence[float], first: int, last: int) -> float:
        """Return the cosine of the mean vector of a range of lines."""
        import numpy as np

        low, high = np.searchsorted(self._ids, (first, last + 1))
        if low == high:
            return 0.0
        held = self._bytes[low:high].astype(np.float32)
        held /= np.maximum(np.sqrt(np.einsum("ij,ij->i", held, held)), 1e-9)[:, None]
        asked = np.asarray(question, np.float32)
        return float(self._compare(held.sum(0, keepdims=True), asked)[0])

    def cosines(self, question: Sequence[float], ids: Iterable[int]) -> Mapping[int, float]:
        """Return the cosine of each of these lines that has a vector."""
        import numpy as np

        asked = np.fromiter(sorted(set(ids)), np.int64)
        if not len(self._ids) or not len(asked):
            return {}
        rows = np.minimum(np.searchsorted(self._ids, asked), len(self._ids) - 1)
        rows = rows[self._ids[rows] == asked]
        found = self._compare(self._bytes[rows], np.asarray(question, np.float32))
        return dict(zip(self._ids[rows].tolist(), found.tolist(), strict=True))

    @staticmethod
    def _compare(numbers: Any, asked: Any) -> Any:
        import numpy as np

        exact = numbers.astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", exact, exact)) * (np.linalg.norm(asked) or 1.0)
        # Not `@`: two threads of BLAS wait for each other longer than one takes.
        return np.einsum("ij,j->i", exact, asked) / np.maximum(lengths, 1e-9)
