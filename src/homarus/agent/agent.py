"""The configured agent as runs use it: workspace, model, tool rules, limits."""

from collections.abc import Callable
from dataclasses import field
from functools import partial
from pathlib import Path

from homarus.config.agent_settings import AgentSettings
from homarus.config.schema import (
    CompactionConfig,
    ContextPruningConfig,
    LoopDetectionConfig,
    ToolsConfig,
)
from homarus.config.timezone import load_zone
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import DEFAULT_AGENT
from homarus.policy.tool_policy import ToolRules, model_layers, tool_layers
from homarus.sessions.envelope import EnvelopeOptions as Envelope
from homarus.sessions.envelope import resolve_envelope_zone


@dataclass(frozen=True, slots=True)
class Agent:
    """A configured agent.

    `model` None means the first model that this machine can use; `thinking` None, the default of
    the model.
    """

    id: str
    name: str
    workspace: Path
    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    thinking: str | None = None
    timeout_s: float = 600.0
    rules: tuple[ToolRules, ...] = ()
    model_rules: Callable[[str, str], tuple[ToolRules, ...]] = lambda _provider, _model: ()
    max_file_chars: int = 20_000
    max_total_chars: int = 150_000
    pruning: ContextPruningConfig = ContextPruningConfig.model_construct()
    compaction: CompactionConfig = CompactionConfig.model_construct()
    loops: LoopDetectionConfig = LoopDetectionConfig.model_construct()
    is_named: bool = False  # by the config; else IDENTITY.md may give the name
    timezone: str = ""
    aliases: tuple[tuple[str, str], ...] = ()  # short names of models
    envelope: Envelope = field(default_factory=Envelope)


def make_agent(settings: AgentSettings, tools: ToolsConfig) -> Agent:
    """Return an agent from its settings; `tools` is the section for all agents."""
    return Agent(
        id=settings.id,
        name="Homarus" if settings.name == DEFAULT_AGENT else settings.name,
        workspace=settings.workspace,
        model=settings.model,
        fallbacks=settings.fallbacks,
        thinking=settings.thinking,
        timeout_s=settings.timeout_s,
        rules=tool_layers(tools, settings.tools),
        model_rules=partial(model_layers, tools, settings.tools),
        max_file_chars=settings.bootstrap_max_chars,
        max_total_chars=settings.bootstrap_total_max_chars,
        pruning=settings.pruning,
        compaction=settings.compaction,
        loops=effective_tools("loop_detection", settings.tools, tools).loop_detection,
        is_named=settings.name != settings.id,
        timezone=settings.timezone,
        aliases=settings.aliases,
        envelope=_envelope(settings),
    )


def effective_tools(name: str, own: ToolsConfig | None, common: ToolsConfig) -> ToolsConfig:
    """Return the tools section that holds for one key: the agent's own where it sets the key."""
    return own if own is not None and name in own.model_fields_set else common


def _envelope(settings: AgentSettings) -> Envelope:
    own = load_zone(settings.timezone) if settings.timezone else None
    return Envelope(
        zone=resolve_envelope_zone(settings.envelope_zone, own),
        own_zone=own,
        timestamp=settings.envelope_timestamp,
        elapsed=settings.envelope_elapsed,
    )
