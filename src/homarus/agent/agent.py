"""The configured agent as runs use it: workspace, model, tool rules, limits."""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from homarus.config.agent_settings import AgentSettings
from homarus.config.schema import CompactionConfig, ContextPruningConfig, IdentityConfig
from homarus.config.timezone import load_zone
from homarus.config.tools_schema import LoopDetectionConfig, ToolsConfig
from homarus.core.fast_dataclass import dataclass
from homarus.core.installation import find_docs
from homarus.core.session_keys import DEFAULT_AGENT
from homarus.core.text import one_line
from homarus.policy.tool_policy import PolicyRules, make_policy_rules
from homarus.policy.workspace_access import WORKSPACE_SCOPE, FileScope
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
    rules: PolicyRules = PolicyRules()
    max_file_chars: int = 20_000
    max_total_chars: int = 150_000
    pruning: ContextPruningConfig = ContextPruningConfig.model_construct()
    compaction: CompactionConfig = CompactionConfig.model_construct()
    image_max_px: int | None = None
    loops: LoopDetectionConfig = LoopDetectionConfig.model_construct()
    is_named: bool = False  # by the config; else IDENTITY.md may give the name
    persona: str = ""  # the identity of the config, without the name
    timezone: str = ""
    aliases: tuple[tuple[str, str], ...] = ()  # short names of models
    envelope: Envelope = field(default_factory=Envelope)
    repo_root: Path | None = None  # by the config; None: found by its `.git`
    docs: Path | None = None  # of this program, where file tools may read them
    file_scope: FileScope = WORKSPACE_SCOPE
    has_heartbeat: bool = False


def make_agent(
    settings: AgentSettings, tools: ToolsConfig, protected: Sequence[Path] = ()
) -> Agent:
    """Return an agent from its settings; `tools` is the section for all agents.

    `protected` are the folders that its file tools never reach.
    """
    return Agent(
        id=settings.id,
        name="Homarus" if settings.name == DEFAULT_AGENT else settings.name,
        workspace=settings.workspace,
        model=settings.model,
        fallbacks=settings.fallbacks,
        thinking=settings.thinking,
        timeout_s=settings.timeout_s,
        rules=make_policy_rules(tools, settings.tools),
        max_file_chars=settings.bootstrap_max_chars,
        max_total_chars=settings.bootstrap_total_max_chars,
        pruning=settings.pruning,
        compaction=settings.compaction,
        image_max_px=settings.image_max_px,
        loops=effective_tools("loop_detection", settings.tools, tools).loop_detection,
        is_named=settings.name != settings.id,
        persona=_persona(settings.identity),
        timezone=settings.timezone,
        aliases=settings.aliases,
        envelope=_envelope(settings),
        repo_root=settings.repo_root,
        docs=None if _is_confined(settings.tools, tools) else find_docs(),
        file_scope=_file_scope(settings.tools, tools, protected),
    )


def reaches_machine(own: ToolsConfig | None, common: ToolsConfig) -> bool:
    """Return whether the config lets file tools leave the workspace, in the owner's sessions."""
    return not effective_tools("fs", own, common).fs.workspace_only


def _file_scope(
    own: ToolsConfig | None, common: ToolsConfig, protected: Sequence[Path]
) -> FileScope:
    return (
        FileScope(protected=tuple(protected)) if reaches_machine(own, common) else WORKSPACE_SCOPE
    )


def _is_confined(own: ToolsConfig | None, common: ToolsConfig) -> bool:
    """Return whether the config says that file tools stay in the workspace."""
    files = effective_tools("fs", own, common).fs
    return "workspace_only" in files.model_fields_set and files.workspace_only


def effective_tools(name: str, own: ToolsConfig | None, common: ToolsConfig) -> ToolsConfig:
    """Return the tools section that holds for one key: the agent's own where it sets the key."""
    return own if own is not None and name in own.model_fields_set else common


def _persona(identity: IdentityConfig) -> str:
    """Return the configured identity as text: `creature: lobster; vibe: sharp, precise`."""
    fields = {
        "creature": identity.creature,
        "vibe": identity.vibe,
        "theme": identity.theme,
        "emoji": identity.emoji,
    }
    texts = {key: one_line(value or "", 200).strip() for key, value in fields.items()}
    return "; ".join(f"{key}: {text}" for key, text in texts.items() if text)


def _envelope(settings: AgentSettings) -> Envelope:
    own = load_zone(settings.timezone) if settings.timezone else None
    return Envelope(
        zone=resolve_envelope_zone(settings.envelope_zone, own),
        own_zone=own,
        timestamp=settings.envelope_timestamp,
        elapsed=settings.envelope_elapsed,
        uses_12_hours=settings.uses_12_hours,
    )
