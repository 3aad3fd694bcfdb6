"""An agent: a name, a workspace of markdown, a model, a policy."""

from pathlib import Path

from homarus.config.resolve import AgentSettings
from homarus.config.schema import Tools
from homarus.core.keys import DEFAULT_AGENT
from homarus.core.value import dataclass
from homarus.policy.decide import Rules
from homarus.policy.groups import expand


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


def make_agent(settings: AgentSettings, tools: Tools) -> Agent:
    """An agent as the config has it; `tools` is what holds for every agent."""
    return Agent(
        id=settings.id,
        name="Homarus" if settings.name == DEFAULT_AGENT else settings.name,
        workspace=settings.workspace,
        model=settings.model,
        fallbacks=settings.fallbacks,
        thinking=settings.thinking,
        timeout_s=settings.timeout_s,
        rules=tuple(
            Rules(allow=expand(layer.allow or ()), deny=expand(layer.deny))
            for layer in (tools, settings.tools)
            if layer
        ),
        max_file_chars=settings.bootstrap_max_chars,
        max_total_chars=settings.bootstrap_total_max_chars,
    )
