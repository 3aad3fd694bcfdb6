"""The interface of embedders, which turn text into vectors.

An embedder blocks and is used by one thread at a time. Optional abilities are separate protocols:
`SupportsQueryEmbedding`, `SupportsClose`, `SupportsStop`, `SupportsBatchSize`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, runtime_checkable

from homarus.core.fast_dataclass import dataclass

TEXTS_AT_ONCE: Final = 64
MAX_TEXT_CHARS: Final = 16_000  # no model here reads more of one text


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """The model of a vector. Vectors of two models, or of two keys, are never compared.

    `key` tells services apart whose models have the same name. `weight` is how far the ranking
    trusts the vectors: as measured, where there is a measurement.
    """

    provider: str
    name: str
    dims: int
    key: str = ""
    weight: float = 1.0

    @property
    def id(self) -> str:
        return f"{self.provider}/{self.name}/{self.key}/{self.dims}"


@dataclass(frozen=True, slots=True)
class EmbeddingCost:
    """The cost of one call. `cost_usd` is by list price; 0 if it is free or unknown.

    `guessed` says that the service did not report the number of tokens.
    """

    provider: str
    model: str
    texts: int
    tokens: int
    cost_usd: float = 0.0
    guessed: bool = False


# Called on memory's own thread, after each response.
OnCost: TypeAlias = Callable[[EmbeddingCost], None]
# Called with a sentence for the user.
OnNotice: TypeAlias = Callable[[str], None]


def ignore_cost(_paid: EmbeddingCost) -> None:
    """Ignore the cost of a call."""


class Embedder(Protocol):
    """Turns texts into unit vectors, in the same order."""

    @property
    def model(self) -> EmbeddingModel: ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return vectors of length 1, or 0 for a blank text. Blocks."""
        ...


@runtime_checkable
class SupportsQueryEmbedding(Protocol):
    """An embedder that embeds queries differently from notes, with a timeout of its own."""

    def embed_question(self, text: str) -> list[float]: ...


@runtime_checkable
class SupportsClose(Protocol):
    """An embedder that holds connections or weights; it opens them again when it is used again."""

    def close(self) -> None: ...


@runtime_checkable
class SupportsStop(Protocol):
    """An embedder whose calls can be stopped from another thread."""

    def stop(self) -> None:
        """End the running call with an error, and refuse others until `close`."""
        ...


@runtime_checkable
class SupportsBatchSize(Protocol):
    """An embedder with a preferred number of texts for a call."""

    @property
    def texts_at_once(self) -> int: ...


def embed_question(embedder: Embedder, text: str) -> list[float]:
    """Return the vector of a query, to compare with those of notes."""
    if isinstance(embedder, SupportsQueryEmbedding):
        return embedder.embed_question(text)
    return embedder.embed([text])[0]


def batch_size(embedder: Embedder) -> int:
    """Return how many texts to pass in one call."""
    return embedder.texts_at_once if isinstance(embedder, SupportsBatchSize) else TEXTS_AT_ONCE


def to_embeddable(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return what can be embedded of a text: valid Unicode, and not too long."""
    return text[:max_chars].encode("utf-8", "replace").decode("utf-8")


def close(embedder: object) -> None:
    """Close an embedder that holds resources."""
    if isinstance(embedder, SupportsClose):
        embedder.close()
