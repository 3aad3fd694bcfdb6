"""The seam between the index and whatever turns text into vectors.

An embedder blocks and is used by one thread at a time. What only some can do is a protocol of its
own: `Asks` (a question has another vector than a note), `Closes`, `TakesMany`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, runtime_checkable

from homarus.core.value import dataclass

TEXTS_AT_ONCE: Final = 64
MAX_TEXT_CHARS: Final = 16_000  # more of one text is looked at by no model here


@dataclass(frozen=True, slots=True)
class Model:
    """What a vector is of. Vectors of two models, or of two keys, are never compared.

    `key` tells two services apart that call their model the same. `weight` is how far the ranking
    trusts them: by measurement where there is one.
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
class Paid:
    """One call of a service that embeds. `cost_usd` is by its list price; 0: free, or not known.

    `guessed` says that the service did not tell how many tokens it took.
    """

    provider: str
    model: str
    texts: int
    tokens: int
    cost_usd: float = 0.0
    guessed: bool = False


# Called on memory's own thread, after each answer.
Paying: TypeAlias = Callable[[Paid], None]
# What a person should hear: a sentence.
Telling: TypeAlias = Callable[[str], None]


def unpaid(_paid: Paid) -> None:
    """Nobody keeps the books."""


class Embedder(Protocol):
    """Texts in, unit vectors out, in the same order."""

    @property
    def model(self) -> Model: ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of length 1 (or 0, for a text that says nothing). Blocks."""
        ...


@runtime_checkable
class Asks(Protocol):
    """An embedder that is told which text is a question. A deadline of its own holds for it."""

    def embed_question(self, text: str) -> list[float]: ...


@runtime_checkable
class Closes(Protocol):
    """An embedder that holds connections or weights. Used again, it opens them anew."""

    def close(self) -> None: ...


@runtime_checkable
class Stops(Protocol):
    """An embedder that may take long, and can be cut short from another thread."""

    def stop(self) -> None:
        """What runs ends now, with an error; nothing more begins until it was closed."""
        ...


@runtime_checkable
class TakesMany(Protocol):
    """An embedder that is cheaper or quicker by another number of texts at once."""

    @property
    def texts_at_once(self) -> int: ...


def embed_question(embedder: Embedder, text: str) -> list[float]:
    """The vector of a question, to be compared with those of notes."""
    if isinstance(embedder, Asks):
        return embedder.embed_question(text)
    return embedder.embed([text])[0]


def texts_at_once(embedder: Embedder) -> int:
    """How many texts to hand over at once."""
    return embedder.texts_at_once if isinstance(embedder, TakesMany) else TEXTS_AT_ONCE


def readable(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """What is looked at of a text: whole characters (half a pair is none), and not too many."""
    return text[:max_chars].encode("utf-8", "replace").decode("utf-8")


def close(embedder: object) -> None:
    """Let go of whatever an embedder holds."""
    if isinstance(embedder, Closes):
        embedder.close()
