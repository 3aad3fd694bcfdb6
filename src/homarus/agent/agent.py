"""An agent: a name, a workspace of markdown, a model, a policy."""

from pathlib import Path

from homarus.core.value import dataclass
from homarus.policy.decide import Rules


@dataclass(frozen=True, slots=True)
class Agent:
    """Who answers.

    `model` None means whatever this machine can offer; `thinking` None, a little where the model
    can.
    """

    id: str
    name: str
    workspace: Path
    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    thinking: str | None = None
    timeout_s: float = 600.0
    rules: tuple[Rules, ...] = ()
    max_file_chars: int = 20_000
    max_total_chars: int = 150_000
