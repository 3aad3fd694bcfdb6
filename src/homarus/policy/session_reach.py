"""Decide which other sessions the tools of a session reach. Pure.

A session reaches itself and, unless `tools.sessions.visibility` is `self`, the sessions that it
started, and those that they started. The settings `agent` and `all` add others, for a run whose
messages are all the owner's: those that the readers of the conversation may see anyway
(`policy.audience`). So a group never reaches the owner's private sessions. Sessions of other agents
need `tools.agentToAgent` in addition. A session in a sandbox stays with those it started, unless
`sandbox.sessionToolsVisibility` is `all`; so does a sub-agent.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from homarus.config.schema import Config
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import agent_id_of
from homarus.policy.audience import audience_of, visible_audiences
from homarus.policy.sandbox_settings import resolve_sandbox
from homarus.policy.tool_call import CallerFacts

Visibility: TypeAlias = Literal["self", "tree", "agent", "all"]

_VISIBILITY = "tools.sessions.visibility"
_SANDBOX = "agents.defaults.sandbox.sessionToolsVisibility"


@dataclass(frozen=True, slots=True)
class SessionReach:
    """What decides which sessions one session reaches."""

    session_key: str
    agent: str
    visibility: Visibility = "tree"
    is_owner: bool = True
    is_sandboxed: bool = False
    sees_spawned_only: bool = True
    depth: int = 0
    allows_other_agents: bool = False
    allowed_agents: tuple[str, ...] = ()

    def refusal(self, key: str, ancestors: Sequence[str] = ()) -> str:
        """Return why a session is not reached; "" if it is.

        `ancestors` are the session that started it, the one that started that, and so on.
        """
        if key == self.session_key:
            return ""
        if self.visibility == "self":
            return f"{_VISIBILITY} is self: a session reaches itself alone"
        if self.session_key in ancestors:
            return ""
        return self._setting_refusal(key) or self._audience_refusal(key)

    def can_write_to(self, agent: str) -> bool:
        """Return whether sessions of an agent are reached at all, as far as settings decide."""
        return not self._setting_refusal(f"agent:{agent}:main")

    def _setting_refusal(self, key: str) -> str:
        if self.is_sandboxed and self.sees_spawned_only:
            reason = f"the session has a sandbox, and {_SANDBOX} is spawned"
            return f"{reason}: it reaches only sessions that it started"
        if self.depth:
            return "the session of a sub-agent reaches only sessions that it started"
        other = agent_id_of(key)
        if self.visibility in ("self", "tree"):
            return f"{_VISIBILITY} is {self.visibility}: set it to agent or all for this session"
        if other == self.agent:
            return ""
        if self.visibility == "agent":
            return f"{_VISIBILITY} is agent: set it to all for the sessions of other agents"
        if not self.allows_other_agents:
            return "it belongs to another agent, and tools.agentToAgent.enabled is false"
        if not all(_is_listed(each, self.allowed_agents) for each in (self.agent, other)):
            return f"tools.agentToAgent.allow does not name both {self.agent} and {other}"
        return ""

    def _audience_refusal(self, key: str) -> str:
        if not self.is_owner:
            return "other sessions are for the owner alone, and not all of these messages are"
        seen = visible_audiences(self.session_key)
        if seen is not None and audience_of(key) not in seen:
            return "other people read this conversation, and may not see that session"
        return ""


def resolve_reach(config: Config, caller: CallerFacts) -> SessionReach:
    """Return what a caller's session reaches."""
    agents = config.tools.agent_to_agent
    return SessionReach(
        caller.session_key,
        caller.agent_id,
        visibility=config.tools.sessions.visibility,
        is_owner=caller.is_owner,
        is_sandboxed=caller.is_sandboxed,
        sees_spawned_only=resolve_sandbox(config, caller.agent_id).sees_spawned_only,
        depth=caller.depth,
        allows_other_agents=agents.enabled,
        allowed_agents=agents.allow,
    )


def _is_listed(agent: str, patterns: Sequence[str]) -> bool:
    named = [each.strip().lower() for each in patterns]
    return not named or any(fnmatchcase(agent, each) for each in named)
