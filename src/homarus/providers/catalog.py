"""What is known of a model: where it answers, how much it holds, what it can do and costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from homarus.core.message import Json

UNKNOWN_WINDOW = 200_000
UNKNOWN_MAX_TOKENS = 8_192


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """One model of one provider. `known` is False when window and limits are guesses."""

    provider: str
    id: str
    name: str = ""
    window: int = UNKNOWN_WINDOW
    max_tokens: int = UNKNOWN_MAX_TOKENS
    reasoning: bool = False
    sees_images: bool = False
    calls_tools: bool = True
    price: Price = field(default_factory=Price)
    compat: Mapping[str, Json] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    known: bool = True

    @property
    def ref(self) -> str:
        return f"{self.provider}/{self.id}"
