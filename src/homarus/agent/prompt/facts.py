"""The facts a system prompt is made of: values, gathered by `composer`, told by `sections`."""

from typing import Literal, TypeAlias

from homarus.agent.prompt.injection import Injected
from homarus.core.value import dataclass
from homarus.providers.base import ToolSpec

Mode: TypeAlias = Literal["full", "minimal", "none"]
Citations: TypeAlias = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class SkillBlock:
    """A skill as the list shows it: the text between its tags."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where commands run when they do not run on this machine itself."""

    workdir: str
    access: Literal["none", "ro", "rw"] = "rw"
    elevated: bool = False
    browser: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """The group a conversation belongs to. `always`: it hears every message, not only its name."""

    channel: str
    always: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a prompt is made of. Nothing here may change from turn to turn by itself."""

    name: str
    agent: str
    workspace: str
    mode: Mode = "full"
    tools: tuple[ToolSpec, ...] = ()
    files: tuple[Injected, ...] = ()
    skills: tuple[SkillBlock, ...] = ()
    citations: Citations = "auto"
    aliases: tuple[tuple[str, str], ...] = ()  # short name, model
    notes: tuple[str, ...] = ()  # about the workspace
    docs: str = ""
    sandbox: Sandbox | None = None
    owners: tuple[str, ...] = ()
    timezone: str = ""
    reply_tags: bool = False
    voice: str = ""
    group: Group | None = None
    extra: str = ""  # what a caller adds for this conversation
    heartbeat: bool = False
    reactions: Literal["", "minimal", "extensive"] = ""
    reasoning_tags: bool = False
    model: str = ""
    host: str = ""
    system: str = ""

    def has(self, *names: str) -> bool:
        """Whether one of these tools is there."""
        return any(spec.name in names for spec in self.tools)
