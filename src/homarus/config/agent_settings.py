"""Resolve the settings of one agent from its entry, the defaults and the paths."""

from functools import lru_cache
from pathlib import Path

from homarus.config.paths import Paths, expand
from homarus.config.schema import (
    AgentEntry,
    CompactionConfig,
    Config,
    ContextPruningConfig,
    IdentityConfig,
    ModelChoiceConfig,
)
from homarus.config.timezone import zone_name
from homarus.config.tools_schema import ToolsConfig
from homarus.core.errors import UnknownNameError
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import DEFAULT_AGENT, normalize_agent_id
from homarus.core.text import closest_names


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of an agent. If `model` is None, any available model is used."""

    id: str
    name: str
    is_default: bool
    workspace: Path
    agent_dir: Path
    repo_root: Path | None  # None: found by its `.git`
    model: str | None
    fallbacks: tuple[str, ...]
    timeout_s: float
    thinking: str | None
    max_concurrent: int
    context_tokens: int | None
    image_max_px: int | None
    skip_bootstrap: bool
    bootstrap_max_chars: int
    bootstrap_total_max_chars: int
    timezone: str  # of the user; empty when unknown
    uses_12_hours: bool
    envelope_zone: str | None
    envelope_timestamp: bool
    envelope_elapsed: bool
    aliases: tuple[tuple[str, str], ...]  # short names of models
    pruning: ContextPruningConfig
    compaction: CompactionConfig
    identity: IdentityConfig
    tools: ToolsConfig | None  # the agent's own rules, besides `config.tools` for all agents


def agent_ids(config: Config) -> tuple[str, ...]:
    """Return the ids of all agents in the config's order; without a list, the implied one's."""
    ids = dict.fromkeys(normalize_agent_id(entry.id) for entry in config.agents.list)
    return tuple(ids) or (normalize_agent_id(config.agents.defaults.agent_id or DEFAULT_AGENT),)


def lane_widths(config: Config) -> dict[str, int]:
    """Return how many runs may work at once: for people, of sub-agents, and of cron jobs."""
    defaults = config.agents.defaults
    return {
        "main": defaults.max_concurrent,
        "subagent": defaults.subagents.max_concurrent,
        "cron": config.cron.max_concurrent_runs,
    }


def default_agent_id(config: Config) -> str:
    """Return the agent that answers when none is named.

    It is `agents.defaults.agentId`, else the first agent marked as default, else the first one.
    """
    if config.agents.defaults.agent_id:
        return normalize_agent_id(config.agents.defaults.agent_id)
    marked = (normalize_agent_id(entry.id) for entry in config.agents.list if entry.default)
    return next(marked, agent_ids(config)[0])


def agent_workspaces(config: Config, paths: Paths) -> list[Path]:
    """Return the workspaces of all agents."""
    return [resolve_agent_settings(config, paths, each).workspace for each in agent_ids(config)]


def resolve_agent_settings(config: Config, paths: Paths, agent_id: str) -> AgentSettings:
    """Return the settings of one agent. Raises UnknownNameError with the closest ids."""
    known = agent_ids(config)
    agent = normalize_agent_id(agent_id)
    if agent not in known:
        raise UnknownNameError("agent", agent_id, closest_names(agent, known) or known[:3])
    entry = agent_entry(config, agent)
    defaults = config.agents.defaults
    is_default = agent == default_agent_id(config)
    model = _model(entry.model, defaults.model)
    return AgentSettings(
        id=agent,
        name=entry.name or entry.identity.name or agent,
        is_default=is_default,
        workspace=_workspace(config, paths, entry, agent, is_default=is_default),
        agent_dir=expand(entry.agent_dir, paths.home)
        if entry.agent_dir
        else paths.agent_dir(agent),
        repo_root=expand(defaults.repo_root, paths.home) if defaults.repo_root else None,
        model=model.primary,
        fallbacks=model.fallbacks,
        timeout_s=float(defaults.timeout_seconds),
        thinking=defaults.thinking_default,
        max_concurrent=defaults.max_concurrent,
        context_tokens=defaults.context_tokens,
        image_max_px=defaults.image_max_dimension_px,
        skip_bootstrap=defaults.skip_bootstrap,
        bootstrap_max_chars=defaults.bootstrap_max_chars,
        bootstrap_total_max_chars=defaults.bootstrap_total_max_chars,
        timezone=zone_name(defaults.user_timezone),
        uses_12_hours=defaults.time_format == "12",
        envelope_zone=defaults.envelope_timezone,
        envelope_timestamp=defaults.envelope_timestamp == "on",
        envelope_elapsed=defaults.envelope_elapsed == "on",
        aliases=tuple(
            (model_entry.alias.strip(), ref)
            for ref, model_entry in sorted(defaults.models.items())
            if model_entry.alias and model_entry.alias.strip()
        ),
        pruning=defaults.context_pruning,
        compaction=defaults.compaction,
        identity=entry.identity,
        tools=entry.tools,
    )


def agent_entry(config: Config, agent: str) -> AgentEntry:
    """Return the entry of an agent; an empty one if the config has none."""
    agent_id = normalize_agent_id(agent)
    found = (entry for entry in config.agents.list if normalize_agent_id(entry.id) == agent_id)
    return next(found, None) or _unlisted_entry(agent_id)


@lru_cache(64)
def _unlisted_entry(agent_id: str) -> AgentEntry:
    return AgentEntry(id=agent_id)


def _model(own: ModelChoiceConfig, defaults: ModelChoiceConfig) -> ModelChoiceConfig:
    """Merge the model choice: the default fallbacks apply unless the agent has a list."""
    fallbacks = own if "fallbacks" in own.model_fields_set else defaults
    return ModelChoiceConfig.model_construct(
        primary=own.primary or defaults.primary, fallbacks=fallbacks.fallbacks
    )


def _workspace(
    config: Config, paths: Paths, entry: AgentEntry, agent: str, *, is_default: bool
) -> Path:
    named = entry.workspace or (config.agents.defaults.workspace if is_default else None)
    if named:
        return expand(named, paths.home)
    return paths.default_workspace(agent, is_default)
