"""Decide whether a session may start a sub-agent, and with which agent, model and thinking. Pure.

A child never may do more than its parent: it has the sender, the authority and the rules of the
chat that its parent answers, the restrictions of its parent's session for commands, and a sandbox
where its parent has one.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from homarus.config.agent_settings import agent_entry, agent_ids
from homarus.config.schema import Config
from homarus.core.errors import SpawnRefusedError, UserError
from homarus.core.fast_dataclass import replace
from homarus.core.message import Inbound, InboundMetadata, Json, RunOptions
from homarus.core.session_keys import agent_id_of, normalize_agent_id
from homarus.core.text import one_line
from homarus.policy.sandbox_settings import is_sandboxed
from homarus.policy.tool_call import CallerFacts
from homarus.sessions.levels import think_level

ANY: Final = "*"
# Settings of a session that restrict its commands: a child has those of its parent.
_INHERITED: Final = ("execHost", "execSecurity", "execAsk", "execNode")
# What is kept of the message that the parent answers: who asks, and in which chat.
_KEPT_METADATA: Final = (
    "kind", "title", "parent", "guild", "guild_slug", "slugs", "team", "roles", "holder",
)  # fmt: skip


class ChildModel(NamedTuple):
    """The model of a child as `provider/model`, "" for its agent's own; and what is wrong.

    `is_applied`: it is the call's own choice, or that of the settings, which may have `fallbacks`.
    """

    ref: str = ""
    is_applied: bool = False
    warning: str = ""
    fallbacks: tuple[str, ...] = ()


def check_depth(config: Config, depth: int) -> None:
    """Raise SpawnRefusedError when a session of this depth may start no sub-agents."""
    limit = config.agents.defaults.subagents.max_spawn_depth
    if depth >= limit:
        raise SpawnRefusedError(
            f"sessions_spawn is not allowed at this depth (depth {depth}, at most {limit})",
            fix="do the work here, or raise agents.defaults.subagents.maxSpawnDepth",
        )


def check_children(config: Config, active: int) -> None:
    """Raise SpawnRefusedError when a session has as many sub-agents as it may have at once."""
    limit = config.agents.defaults.subagents.max_children_per_agent
    if active >= limit:
        raise SpawnRefusedError(
            f"this session has {active} active sub-agents, and {limit} are the most",
            fix="wait for one of them to end, or stop one",
        )


def find_target(config: Config, requester: str, wanted: str) -> str:
    """Return the agent that a child belongs to. Raises SpawnRefusedError, UserError."""
    target = normalize_agent_id(wanted) if wanted else requester
    if target == requester:
        return target
    allowed = agent_entry(config, requester).subagents.allow_agents
    names = {normalize_agent_id(name) for name in allowed if name.strip() != ANY}
    if ANY not in {name.strip() for name in allowed} and target not in names:
        shown = ", ".join(sorted(names)) or "none"
        raise SpawnRefusedError(
            f"agentId {one_line(wanted, 64)!r} is not allowed here (allowed: {shown})",
            fix=f"leave it out, or add it to agents.list[].subagents.allowAgents of {requester}",
        )
    if target not in agent_ids(config):
        raise UserError(
            f"there is no agent {one_line(wanted, 64)!r}", fix="use an id of agents.list"
        )
    return target


def check_sandbox(
    config: Config, requester_key: str, child_key: str, caller: CallerFacts, wanted: str
) -> bool:
    """Return whether a child must run in a sandbox, as it will. Raises SpawnRefusedError."""
    has_sandbox = is_sandboxed(config, agent_id_of(child_key), child_key)
    own = caller.is_sandboxed or is_sandboxed(config, agent_id_of(requester_key), requester_key)
    if own and not has_sandbox:
        raise SpawnRefusedError(
            "a session in a sandbox cannot start a sub-agent without one",
            fix=f"set a sandbox mode for agent {agent_id_of(child_key)}",
        )
    if wanted == "require" and not has_sandbox:
        raise SpawnRefusedError(
            "sandbox is require, and the sub-agent would have no sandbox",
            fix=f"set agents.list[].sandbox.mode of {agent_id_of(child_key)}, or leave sandbox out",
        )
    return own or wanted == "require"


def choose_model(
    config: Config,
    target: str,
    wanted: str,
    inherited: str,
    check: Callable[[str], str],
) -> ChildModel:
    """Return the model: the call's, the target's, the common one, else the parent's.

    `check` returns the full reference of a model, and raises UserError for one that cannot be used:
    then the next one is taken, with a warning.
    """
    own, common = agent_entry(config, target).subagents, config.agents.defaults.subagents
    warning, choices = "", [(one.model.primary, one.model.fallbacks) for one in (own, common)]
    for name, fallbacks in ((wanted, ()), *choices, (inherited, ())):
        if not name:
            continue
        is_applied = name != inherited and not warning
        try:
            return ChildModel(check(name), is_applied, warning, fallbacks)
        except UserError as exc:
            warning = warning or f"the model {one_line(name, 80)} is not used: {exc}"
    return ChildModel("", is_applied=False, warning=warning)


def choose_thinking(config: Config, target: str, wanted: str, inherited: str) -> str:
    """Return the thinking level, "" for the default. Raises UserError for one that is not known."""
    own, common = agent_entry(config, target).subagents, config.agents.defaults.subagents
    name = wanted or own.thinking or common.thinking or ""
    if not name:
        return inherited
    if (level := think_level(name)) is None:
        raise UserError(
            f"invalid thinking level {one_line(name, 40)!r}", fix="use off, minimal, low … high"
        )
    return level


def inherited_fields(entry: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a session that also restrict the session of its child."""
    fields = {name: entry[name] for name in _INHERITED if entry.get(name) is not None}
    if entry.get("elevatedLevel") == "off":
        fields["elevatedLevel"] = "off"
    if entry.get("sendPolicy") == "deny":
        fields["sendPolicy"] = "deny"
    return fields


def make_origin(inbound: Inbound, caller: CallerFacts) -> Inbound:
    """Return for whom a child works: the message its parent answers, without what it says.

    Senders who joined the parent's run may have narrowed what it may do; the child has no more.
    """
    metadata = {name: getattr(inbound.metadata, name) for name in _KEPT_METADATA}
    metadata["is_limited"] = inbound.metadata.is_limited or not caller.is_owner
    options, authority = inbound.options, inbound.authority
    if authority == "owner" and not caller.is_owner:
        authority = "authorised"
    return replace(
        Inbound("", inbound.address, caller.sender, ""),
        authority=authority,
        metadata=replace(InboundMetadata(), **metadata),
        options=RunOptions(
            deliver_to=options.deliver_to,
            exec_host=options.exec_host,
            exec_security=options.exec_security,
            exec_ask=options.exec_ask,
            elevated="off" if options.elevated == "off" else None,
        ),
    )
