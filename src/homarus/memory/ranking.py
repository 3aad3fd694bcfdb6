"""The ranking settings of an agent's memory: our own ranking, or OpenClaw's formula."""

from homarus.config.memory import Hybrid
from homarus.core.value import dataclass
from homarus.memory import compatible
from homarus.memory.search import Weights


@dataclass(frozen=True, slots=True)
class Formula:
    """OpenClaw's weighted sum of two lists of chunks, each longer than the response by a factor."""

    vector: float = compatible.VECTOR_WEIGHT
    text: float = compatible.TEXT_WEIGHT
    candidates: int = compatible.CANDIDATE_MULTIPLIER


@dataclass(frozen=True, slots=True)
class Ranking:
    """How results are ranked; `half_life_days` enables decay, `spread` diversity."""

    half_life_days: float = 0.0
    spread: float | None = None
    formula: Formula | None = None
    weights: Weights | None = None  # instead of the fitted ones, for measurements


def ranking_of(hybrid: Hybrid) -> Ranking:
    """Return the ranking that `memorySearch.query.hybrid` asks for."""
    decay, spread = hybrid.temporal_decay, hybrid.mmr
    formula = Formula(hybrid.vector_weight, hybrid.text_weight, hybrid.candidate_multiplier)
    return Ranking(
        float(decay.half_life_days) if decay.enabled else 0.0,
        spread.lambda_ if spread.enabled else None,
        formula if hybrid.is_asked else None,
    )
