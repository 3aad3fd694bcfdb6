"""The skills of one run: its list for the prompt, and what its tools are given.

Everything beyond the list is found when a tool asks for it: most runs load no skill.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from homarus.agent.prompt.facts import SkillBlock
from homarus.agent.skills.snapshot import FIELD, make_snapshot, read_snapshot, skill_restrictions
from homarus.agent.skills.used_skills import find_read_paths, resolve_read_path
from homarus.config.agent_settings import agent_entry
from homarus.config.redaction import add_known_secret
from homarus.config.schema import Config
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Message
from homarus.providers.base import Provider
from homarus.tools.registry import ToolRegistry

if TYPE_CHECKING:  # imported by the first session that has skills
    from homarus.skills.catalog import AgentSkills
    from homarus.skills.skill import Skill

log = logging.getLogger(__name__)

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Variables that decide which program runs, or what is loaded into it: not even the owner's settings
# of a skill change them, because a skill names its own `primaryEnv`.
_LOADER_VARIABLES: Final = re.compile(
    r"(?:PATH|HOME|SHELL|ENV|BASH_ENV|IFS|PS4|TMPDIR|PERL5(?:LIB|OPT)|RUBY(?:LIB|OPT)|NODE_OPTIONS"
    r"|NODE_PATH|PYTHON(?:PATH|HOME|STARTUP)|GIT_\w+|LD_\w+|DYLD_\w+|JAVA_TOOL_OPTIONS)",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What of a conversation decides about its skills.

    `names` are those that the chat allows; None: all. `inside` are the paths of the agent's
    workspace in the conversation's sandbox, if it has one.
    """

    agent_id: str
    workspace: Path
    names: tuple[str, ...] | None = None
    is_owner: bool = True
    is_sandboxed: bool = False
    inside: tuple[str, ...] = ()


# The last snapshot by agent and restrictions, with the skills that it was taken of.
SnapshotCache: TypeAlias = "dict[tuple[str, str], tuple[AgentSkills, dict[str, Json]]]"


class RunSkills:
    """The skills of one run.

    `load` returns the agent's skills as they are now; None where there are none. `get_conversation`
    returns the conversation, which other senders may have joined, `get_messages` its transcript,
    `get_entry` the entry of the session. `invoked` is the skill whose command the message is.
    """

    def __init__(
        self,
        load: "Callable[[], AgentSkills] | None",
        get_config: Callable[[], Config],
        get_conversation: Callable[[], Conversation],
        *,
        snapshots: "SnapshotCache | None" = None,
        get_entry: Callable[[], Mapping[str, Json]] = dict,
        get_messages: Callable[[], Sequence[Message]] = tuple,
        invoked: str = "",
    ) -> None:
        self.changes: dict[str, Json] = {}  # of the session's entry, to be saved with the question
        self._refused: set[tuple[str, str]] = set()  # skill and variable, each logged once
        self._load, self._get_config = load, get_config
        self._get_conversation, self._get_entry = get_conversation, get_entry
        self._get_messages, self._invoked = get_messages, invoked
        self._snapshots = snapshots if snapshots is not None else {}

    # The prompt

    async def list_blocks(self) -> tuple[SkillBlock, ...]:
        """Return the list for the prompt, of the session's snapshot; a new session takes one."""
        if self._load is None:
            return ()
        conversation, is_owner = self._get_conversation(), self._get_conversation().is_owner
        restrictions = self._restrictions(conversation)
        blocks = read_snapshot(self._get_entry(), restrictions, is_owner=is_owner)
        if blocks is None:
            self.changes = await asyncio.to_thread(self._take_snapshot, conversation)
            blocks = read_snapshot(self.changes, restrictions, is_owner=is_owner)
        return blocks or ()

    def _take_snapshot(self, conversation: Conversation) -> dict[str, Json]:
        """Return a new snapshot as a field of the session's entry. Reads files."""
        skills = self._skills
        from homarus.skills.listing import list_skills

        # With the skills that others are not offered: the snapshot is for the whole session.
        names = self._allowed_names(conversation)
        restrictions = self._restrictions(conversation)
        kind = (conversation.agent_id, repr(restrictions))
        if (made := self._snapshots.get(kind)) and made[0] is skills:
            return {FIELD: made[1]}
        eligible = skills.eligible(names)
        home = Path("/dev/null") if conversation.is_sandboxed else skills.home
        listing = list_skills(eligible, skills.facts.settings.limits, home)
        if listing.omitted:
            log.warning(
                "the prompt of %s has no room for %d skills: %s (skills.limits)",
                conversation.agent_id,
                len(listing.omitted),
                ", ".join(listing.omitted),
            )
        made = skills, make_snapshot(listing, eligible, restrictions, skills.version)
        self._snapshots[kind] = made
        return {FIELD: made[1]}

    def _restrictions(self, conversation: Conversation) -> dict[str, Json]:
        names = self._allowed_names(conversation)
        return skill_restrictions(self._get_config(), names, is_sandboxed=conversation.is_sandboxed)

    def _allowed_names(self, conversation: Conversation) -> tuple[str, ...] | None:
        """Return the names that both the agent's list and the chat's have; None: all."""
        own = agent_entry(self._get_config(), conversation.agent_id).skills
        if own is None or conversation.names is None:
            return own if conversation.names is None else conversation.names
        return tuple(name for name in own if name in conversation.names)

    # Tools

    @cached_property
    def _skills(self) -> "AgentSkills":
        assert self._load is not None  # noqa: S101 - its callers have checked that
        return self._load()

    def offered(self) -> "tuple[Skill, ...]":
        """Return the skills that the conversation may use now."""
        if self._load is None:
            return ()
        conversation = self._get_conversation()
        found = self._skills.eligible(self._allowed_names(conversation))
        return tuple(
            skill for skill in found if conversation.is_owner or skill.invocation.allows_remote
        )

    def folders(self) -> tuple[Path, ...]:
        """Return the folders of the skills that the conversation is offered."""
        return tuple(skill.folder for skill in self.offered())

    def used(self) -> "tuple[Skill, ...]":
        """Return the skills that the run uses: invoked by the message, or read by the model."""
        paths = find_read_paths(self._get_entry(), self._get_messages())
        if not paths and not self._invoked:
            return ()
        conversation, home = self._get_conversation(), str(Path.home())
        workspace, inside = str(conversation.workspace), conversation.inside
        read = {
            resolve_read_path(path, workspace=workspace, home=home, inside=inside) for path in paths
        }
        return tuple(
            skill
            for skill in self.offered()
            if skill.name == self._invoked or {str(skill.file), os.path.realpath(skill.file)} & read
        )

    def environment(self) -> dict[str, str]:
        """Return the variables for commands: those of the skills that the run uses."""
        env: dict[str, str] = {}
        for skill in self.used():
            for name, value in self._variables(skill).items():
                if not _VARIABLE.fullmatch(name) or _LOADER_VARIABLES.fullmatch(name):
                    self._refuse(skill.name, name)
                elif "\0" not in value:
                    env.setdefault(name, value)
        return env

    def _refuse(self, skill: str, variable: str) -> None:
        if (skill, variable) not in self._refused:
            self._refused.add((skill, variable))
            log.warning("skill %s: the variable %r is not given to commands", skill, variable)

    def _variables(self, skill: "Skill") -> dict[str, str]:
        entry, primary = self._skills.facts.entry(skill), skill.metadata.primary_env
        given = {name: value for name, value in entry.env.items() if value}
        if entry.api_key and primary:
            given.setdefault(primary, entry.api_key)
        for value in given.values():
            if "://" not in value:
                add_known_secret(value)
        return given

    def programs(self) -> frozenset[str]:
        """Return the programs of bundled and managed skills, which an agent cannot write."""
        from homarus.skills.skill import SkillTier

        trusted = {SkillTier.BUNDLED, SkillTier.MANAGED}
        return frozenset(
            name
            for skill in self.offered()
            if skill.tier in trusted
            for name in (*skill.requires.bins, *skill.requires.any_bins)
        )

    def wrap_provider(
        self, provider: Provider, text: str | None, tools: ToolRegistry, *, run_id: str, ref: str
    ) -> Provider:
        """Return the provider; for a command that calls a tool, one that calls it with `text`."""
        if text is None:
            return provider
        from homarus.agent.skills.direct_call import DirectCallProvider, SkillCall

        for skill in self.offered():
            if skill.name == self._invoked and skill.dispatch:
                call = SkillCall(skill.name, skill.dispatch.tool, text)
                return DirectCallProvider(provider, call, tools, run_id=run_id, ref=ref)
        return provider
