"""How an agent's memory is ranked, as its settings say: our own way, or the original's formula."""

from homarus.config.memory import Hybrid
from homarus.core.value import dataclass
from homarus.memory import compatible
from homarus.memory.search import Weights


@dataclass(frozen=True, slots=True)
class Formula:
    """The original's weighted sum of two lists of chunks, each so much longer than the answer."""

    vector: float = compatible.VECTOR_WEIGHT
    text: float = compatible.TEXT_WEIGHT
    candidates: int = compatible.CANDIDATE_MULTIPLIER


@dataclass(frozen=True, slots=True)
class Ranking:
    """With `half_life_days` old notes count less; with `spread`, results that are alike."""

    half_life_days: float = 0.0
    spread: float | None = None
    formula: Formula | None = None
    weights: Weights | None = None  # others than the fitted ones, to measure what they do


def ranking_of(hybrid: Hybrid) -> Ranking:
    """What `memorySearch.query.hybrid` asks for."""
    decay, spread = hybrid.temporal_decay, hybrid.mmr
    formula = Formula(hybrid.vector_weight, hybrid.text_weight, hybrid.candidate_multiplier)
    return Ranking(
        float(decay.half_life_days) if decay.enabled else 0.0,
        spread.lambda_ if spread.enabled else None,
        formula if hybrid.is_asked else None,
    )
