"""The ranking settings of an agent's memory: our own ranking, or OpenClaw's formula."""

from homarus.config.memory import HybridConfig
from homarus.core.fast_dataclass import dataclass
from homarus.memory import hybrid_scoring
from homarus.memory.ranker import RankingWeights


@dataclass(frozen=True, slots=True)
class HybridFormula:
    """OpenClaw's weighted sum of two lists of chunks, each longer than the response by a factor."""

    vector: float = hybrid_scoring.VECTOR_WEIGHT
    text: float = hybrid_scoring.TEXT_WEIGHT
    candidates: int = hybrid_scoring.CANDIDATE_MULTIPLIER


@dataclass(frozen=True, slots=True)
class RankingSettings:
    """How results are ranked; `half_life_days` enables decay, `spread` diversity."""

    half_life_days: float = 0.0
    spread: float | None = None
    formula: HybridFormula | None = None
    weights: RankingWeights | None = None  # instead of the fitted ones, for measurements


def resolve_ranking(hybrid: HybridConfig) -> RankingSettings:
    """Return the ranking that `memorySearch.query.hybrid` asks for."""
    decay, spread = hybrid.temporal_decay, hybrid.mmr
    formula = HybridFormula(hybrid.vector_weight, hybrid.text_weight, hybrid.candidate_multiplier)
    return RankingSettings(
        float(decay.half_life_days) if decay.enabled else 0.0,
        spread.lambda_ if spread.enabled else None,
        formula if hybrid.is_asked else None,
    )
