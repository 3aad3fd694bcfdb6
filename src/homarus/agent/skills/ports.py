"""What runs, commands, channels and the gateway use of skills; nothing is imported before its use.

The files are looked at when a session starts, when a command names a skill and when a tool needs
one, and again after `skills.load.watchDebounceMs` at the earliest: there is no watcher that runs
while nothing happens. With `skills.load.watch` off they are looked at once.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from homarus.agent.agent import Agent
from homarus.agent.prompt.chat_context import ChatContext, key_chat_context
from homarus.agent.skills.run_skills import Conversation, RunSkills, SnapshotCache
from homarus.config.agent_settings import agent_ids
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.message import Address, Inbound, RunOptions
from homarus.core.native_command import CommandOption, NativeCommand
from homarus.core.session_keys import agent_id_of
from homarus.sessions.session import Session

if TYPE_CHECKING:  # imported by the first session that has skills
    from homarus.skills.catalog import AgentSkills, SkillCatalog
    from homarus.skills.commands import SkillCommand

NativeSetting: TypeAlias = bool | Literal["auto"]
_NO_OPTIONS: Final = RunOptions()
_SKILL_OPTIONS: Final = (CommandOption("input", "What the skill is to do."),)


class SkillPorts:
    """The skills of all agents, as other parts use them; without a catalog there are none."""

    def __init__(
        self,
        get_catalog: "Callable[[], SkillCatalog] | None" = None,
        get_config: Callable[[], Config] = Config,
        get_agent: Callable[[str], Agent] | None = None,
        find_traits: FindTraits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get_catalog, self._get_config, self._get_agent = get_catalog, get_config, get_agent
        self._find_traits, self._monotonic = find_traits, monotonic
        self._loaded: dict[str, tuple[float, AgentSkills]] = {}
        self._snapshots: SnapshotCache = {}
        self._lock = threading.Lock()  # runs look at files in threads

    def load(self, agent_id: str) -> "AgentSkills":
        """Return the skills of an agent; reload them from disk after the debounce time."""
        assert self._get_catalog is not None  # noqa: S101 - its callers have checked that
        with self._lock:
            if (recent := self.get_recent(agent_id)) is not None:
                return recent
            now_s = self._monotonic()
            skills = self._get_catalog().load(agent_id)
            self._loaded[agent_id] = now_s, skills
            return skills

    def get_recent(self, agent_id: str) -> "AgentSkills | None":
        """Return the skills of an agent if there is no need to look at files again."""
        if (found := self._loaded.get(agent_id)) is None:
            return None
        (at_s, skills), settings = found, self._get_config().skills.load
        is_recent = self._monotonic() - at_s < settings.watch_debounce_ms / 1000
        return skills if is_recent or not settings.watch else None

    def clear(self) -> None:
        """Look at all files again: the config has changed."""
        self._loaded.clear()
        self._snapshots.clear()

    def open_run(
        self,
        agent: Agent,
        session: Session,
        get_chat: Callable[[], ChatContext],
        options: RunOptions = _NO_OPTIONS,
    ) -> RunSkills:
        """Return the skills of one run; `get_chat` returns the chat with all that joined it."""
        return RunSkills(
            partial(self.load, agent.id) if self._get_catalog else None,
            self._get_config,
            lambda: make_conversation(agent, get_chat()),
            snapshots=self._snapshots,
            get_entry=lambda: session.record.data,
            get_messages=lambda: session.messages,
            invoked=options.skill,
        )

    def commands(self, key: str, inbound: Inbound | None = None) -> "Sequence[SkillCommand]":
        """Return the commands of the skills that a conversation is offered. Reads files."""
        if self._get_catalog is None or self._get_agent is None or self._find_traits is None:
            return ()
        inbounds = [inbound] if inbound else []
        address = inbound.address if inbound else Address("", "")
        chat = key_chat_context(
            self._get_config(), key, address, inbounds, find_traits=self._find_traits
        )
        conversation = make_conversation(self._get_agent(agent_id_of(key)), chat)
        load = partial(self.load, conversation.agent_id)
        return make_commands(RunSkills(load, self._get_config, lambda: conversation))

    def native_commands(self, setting: NativeSetting) -> tuple[NativeCommand, ...]:
        """Return the commands of the skills of all agents, for services that list them.

        `setting` is that of the service; with `auto`, `commands.nativeSkills` decides.
        """
        common = self._get_config().commands
        is_common = common.native is not False and common.native_skills is not False
        if not (is_common if setting == "auto" else setting):
            return ()
        found: dict[str, NativeCommand] = {}
        for agent_id in agent_ids(self._get_config()):
            for command in self.commands(f"agent:{agent_id}:main"):
                if command.skill.invocation.allows_remote:
                    native = NativeCommand(command.name, command.description, _SKILL_OPTIONS)
                    found.setdefault(command.name, native)
        return tuple(found.values())


def make_commands(run: RunSkills) -> "Sequence[SkillCommand]":
    """Return the commands of the skills of a run; their names are not those of other commands."""
    from homarus.agent.commands.catalog import BY_NAME
    from homarus.skills.commands import make_skill_commands

    return make_skill_commands(run.offered(), BY_NAME)


def make_conversation(agent: Agent, chat: ChatContext) -> Conversation:
    """Return what of an agent and a chat decides about the skills."""
    box = chat.sandbox
    inside = {"rw": (box.workdir,), "ro": (box.agent_dir,), "none": ()}[box.access] if box else ()
    return Conversation(
        agent.id,
        agent.workspace,
        chat.skills,
        is_owner=chat.access.is_owner and chat.caller.is_owner,
        is_sandboxed=box is not None,
        inside=inside,
    )
