"""The seam between the index and whatever turns text into vectors."""

from collections.abc import Sequence
from typing import Protocol

from homarus.core.value import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """What a vector is of. Vectors of two models, or of two keys, are never compared.

    `weight` is how far the ranking trusts them: by measurement where there is one.
    """

    provider: str
    name: str
    dims: int
    key: str = ""
    weight: float = 1.0

    @property
    def id(self) -> str:
        return f"{self.provider}/{self.name}/{self.key}/{self.dims}"


class Embedder(Protocol):
    """Texts in, unit vectors out, in the same order."""

    @property
    def model(self) -> Model: ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of length 1 (or 0, for a text that says nothing). Blocks."""
        ...
