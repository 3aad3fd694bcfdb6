"""Add, remove and list bindings: the config rules that route messages to agents.

The edits are pure: they take the tree of a config file and return a new one. sessions/routing.py
applies the bindings to a message.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, get_args

from pydantic import ValidationError

from homarus.config.schema import BindingMatchConfig
from homarus.core.channel_traits import FindTraits, no_traits
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import ChatKind, Json
from homarus.core.session_keys import (
    DEFAULT_ACCOUNT,
    normalize_account_id,
    normalize_agent_id,
    peer_id,
)
from homarus.core.text import one_line

WILDCARD: Final = "*"  # any account, any chat
Match: TypeAlias = dict[str, Json]  # the `match` of a binding, as the config has it
_KINDS: Final = (*get_args(ChatKind), "dm")


@dataclass(frozen=True, slots=True)
class ConfiguredBinding:
    """A binding of the config: its index in the list, its agent and its match."""

    index: int
    agent: str
    match: BindingMatchConfig


def parse_match(
    text: str, *, peer: str = "", guild: str = "", team: str = "", roles: Sequence[str] = ()
) -> Match:
    """Make a match from `CHANNEL[:ACCOUNT]` and a chat as `KIND:ID`. Raises UserError."""
    channel, _, account = (part.strip() for part in text.partition(":"))
    if not channel:
        raise UserError(f"{text!r} names no channel", fix="write CHANNEL or CHANNEL:ACCOUNT")
    match: Match = {"channel": channel.lower()}
    if account:
        match["accountId"] = account if account == WILDCARD else normalize_account_id(account)
    if peer:
        kind, id_ = parse_peer(peer)
        match["peer"] = {"kind": kind, "id": id_ or WILDCARD}
    if guild.strip():
        match["guildId"] = guild.strip()
    if team.strip():
        match["teamId"] = team.strip()
    if roles:
        match["roles"] = list(roles)
    return match


def parse_peer(text: str) -> tuple[ChatKind, str]:
    """Parse `KIND:ID`: `group:-100`, `direct:@ann:example.org`. The id may be empty.

    Raises UserError for an unknown kind.
    """
    kind, _, id_ = text.strip().partition(":")
    for known in get_args(ChatKind):
        if {"dm": "direct"}.get(kind, kind) == known:
            return known, id_.strip()
    raise UserError(
        f"{one_line(text)!r} names no chat", fix=f"write KIND:ID; kinds are {', '.join(_KINDS)}"
    )


def list_bindings(tree: Mapping[str, Json]) -> Iterator[ConfiguredBinding]:
    """Yield the bindings of a config tree, skipping entries that are invalid."""
    entries = tree.get("bindings")
    for index, binding in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(binding, dict) or not isinstance(binding.get("agentId"), str):
            continue
        try:
            match = BindingMatchConfig.model_validate(binding.get("match"))
        except ValidationError:
            continue
        yield ConfiguredBinding(index, normalize_agent_id(binding["agentId"]), match)


def add_bindings(
    tree: Mapping[str, Json],
    agent: str,
    matches: Sequence[Match],
    find_traits: FindTraits = no_traits,
) -> dict[str, Json]:
    """Return the tree with bindings appended. Raises UserError for one that exists already."""
    owners = {_identity(each.match, find_traits): each.agent for each in list_bindings(tree)}
    for match in matches:
        parsed = BindingMatchConfig.model_validate(match)
        owner = owners.setdefault(_identity(parsed, find_traits), "")
        if owner:
            whose = "it" if owner == agent else f'agent "{owner}"'
            raise UserError(
                f"{describe_match(parsed)} is bound to {whose} already",
                fix=f"homarus agents unbind --agent {owner} takes it away"
                if owner != agent
                else "homarus agents bindings lists what is bound",
            )
        owners[_identity(parsed, find_traits)] = agent
    entries = tree.get("bindings")
    before = entries if isinstance(entries, list) else []
    return {**tree, "bindings": [*before, *({"agentId": agent, "match": m} for m in matches)]}


def remove_bindings(
    tree: Mapping[str, Json],
    agent: str,
    matches: Sequence[Match] | None,
    find_traits: FindTraits = no_traits,
) -> tuple[dict[str, Json], tuple[str, ...]]:
    """Return the tree without these bindings of an agent, and a description of each.

    None removes all of the agent's. Raises UserError for a match that is not bound to it.
    """
    own = [each for each in list_bindings(tree) if each.agent == agent]
    removed = own
    if matches is not None:
        parsed = map(BindingMatchConfig.model_validate, matches)
        wanted = {_identity(match, find_traits): match for match in parsed}
        removed = [each for each in own if _identity(each.match, find_traits) in wanted]
        missing = wanted.keys() - {_identity(each.match, find_traits) for each in removed}
        for match in (wanted[identity] for identity in missing):
            raise UserError(
                f'{describe_match(match)} is not bound to "{agent}"',
                fix="; ".join(describe_match(each.match) for each in own)
                or "homarus agents bindings lists what is bound",
            )
    indexes = {each.index for each in removed}
    entries = tree.get("bindings") or ()
    remaining = [entry for index, entry in enumerate(entries) if index not in indexes]
    changed = {**tree, "bindings": remaining} if indexes else dict(tree)
    return changed, tuple(describe_match(each.match) for each in removed)


def describe_matches(matches: Sequence[Match]) -> tuple[str, ...]:
    """Describe matches as text; see describe_match."""
    return tuple(describe_match(BindingMatchConfig.model_validate(match)) for match in matches)


def describe_match(match: BindingMatchConfig) -> str:
    """Describe a match as text: `telegram (work) group -100`."""
    account = f" ({_shorten(match.account_id)})" if match.account_id else ""
    parts = [f"{_shorten(match.channel)}{account}"]
    if match.peer:
        kind = "direct" if match.peer.kind == "dm" else match.peer.kind
        parts.append(f"{kind} {_shorten(match.peer.id)}")
    if match.guild_id:
        parts.append(f"guild {_shorten(match.guild_id)}")
    if match.team_id:
        parts.append(f"team {_shorten(match.team_id)}")
    if match.roles:
        parts.append(f"role {_shorten(' or '.join(match.roles))}")
    return ", ".join(parts)


def _shorten(text: str) -> str:
    return one_line(text, 60)


def _identity(match: BindingMatchConfig, find_traits: FindTraits) -> tuple[object, ...]:
    """Return what is equal for two bindings that match the same: the later has no effect."""
    channel, account = match.channel.strip().lower(), (match.account_id or DEFAULT_ACCOUNT).strip()
    peer, traits = match.peer, find_traits(channel)
    return (
        channel,
        WILDCARD if account == WILDCARD else normalize_account_id(account),
        peer and ("direct" if peer.kind == "dm" else peer.kind, peer_id(peer.id.strip(), traits)),
        (match.guild_id or "").strip(),
        (match.team_id or "").strip(),
        frozenset(role.strip() for role in match.roles),
    )
