"""The facts that a system prompt is made of: `composer` collects, `sections` formats them."""

from typing import Literal, TypeAlias

from homarus.agent.prompt.injection import InjectedFile
from homarus.core.fast_dataclass import dataclass
from homarus.providers.base import ToolSpec

PromptMode: TypeAlias = Literal["full", "minimal", "none"]
Citations: TypeAlias = Literal["auto", "on", "off"]
Buttons: TypeAlias = Literal["", "on", "off"]  # "": the service has none


@dataclass(frozen=True, slots=True)
class SkillBlock:
    """A skill in the prompt's list: its entry. The folder of bundled skills has no name."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """The sandbox of the session.

    `access` is what is there of the agent's workspace: with `rw` it is the folder itself, with
    `ro` it is at `agent_dir`. `elevated`: commands may leave the sandbox for some senders. `hosts`
    are those that commands can connect to.
    """

    workdir: str
    access: Literal["none", "ro", "rw"] = "rw"
    elevated: bool = False
    browser: bool = False
    hosts: tuple[str, ...] = ()
    agent_dir: str = "/agent"
    has_network: bool = False  # one of the container engine, without our proxy


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """The group of a session. `always`: every message starts a run, not only mentions."""

    channel: str
    always: bool = False


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """Everything a prompt is made of. No value may change from turn to turn by itself."""

    name: str
    agent: str
    workspace: str
    persona: str = ""  # creature, vibe, theme and emoji of the config
    mode: PromptMode = "full"
    tools: tuple[ToolSpec, ...] = ()
    files: tuple[InjectedFile, ...] = ()
    skills: tuple[SkillBlock, ...] = ()
    citations: Citations = "auto"
    aliases: tuple[tuple[str, str], ...] = ()  # short name, model
    notes: tuple[str, ...] = ()  # about the workspace
    docs: str = ""
    sandbox: SandboxInfo | None = None
    owners: tuple[str, ...] = ()
    timezone: str = ""
    reply_tags: bool = False
    voice: str = ""
    group: GroupInfo | None = None
    extra: str = ""  # the caller's text for this session
    heartbeat: bool = False
    reactions: Literal["", "minimal", "extensive"] = ""
    reasoning_tags: bool = False
    buttons: Buttons = ""
    hints: tuple[str, ...] = ()  # about messages on the chat's service
    model: str = ""
    default_model: str = ""
    thinking: str = ""  # the session's level; that of one message would change the prompt
    reasoning: str = ""  # whether the session shows reasoning: off, on or stream
    channel: str = ""
    capabilities: tuple[str, ...] = ()
    host: str = ""
    system: str = ""
    python: str = ""
    version: str = ""  # of this program
    shell: str = ""
    repo: str = ""

    def has(self, *names: str) -> bool:
        """Return whether one of these tools is available."""
        return any(spec.name in names for spec in self.tools)
