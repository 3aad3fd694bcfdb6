"""Bindings in the config: which messages are an agent's. Added, taken away, listed.

The edits are pure, as those of the roster: a config's own tree in, a new one out. What they mean
for a message is in sessions/routing.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, get_args

from pydantic import ValidationError

from homarus.config.schema import BindingMatch
from homarus.core.channel_traits import FindTraits, no_traits
from homarus.core.errors import UserError
from homarus.core.keys import DEFAULT_ACCOUNT, normalize_account_id, normalize_agent_id, peer_id
from homarus.core.message import ChatKind, Json
from homarus.core.text import one_line
from homarus.core.value import dataclass
from homarus.sessions.routing import ANY, describe

Match: TypeAlias = dict[str, Json]  # as the config has it
_KINDS: Final = (*get_args(ChatKind), "dm")


@dataclass(frozen=True, slots=True)
class Bound:
    """One binding: where it stands in the list, whose it is, and what it is for."""

    at: int
    agent: str
    match: BindingMatch


def read_match(
    text: str, *, peer: str = "", guild: str = "", team: str = "", roles: Sequence[str] = ()
) -> Match:
    """What a binding is for, from `CHANNEL[:ACCOUNT]` and the chat as `KIND:ID`."""
    channel, _, account = (part.strip() for part in text.partition(":"))
    if not channel:
        raise UserError(f"{text!r} names no channel", fix="write CHANNEL or CHANNEL:ACCOUNT")
    match: Match = {"channel": channel.lower()}
    if account:
        match["accountId"] = account if account == ANY else normalize_account_id(account)
    if peer:
        kind, id_ = read_peer(peer)
        match["peer"] = {"kind": kind, "id": id_ or ANY}
    if guild.strip():
        match["guildId"] = guild.strip()
    if team.strip():
        match["teamId"] = team.strip()
    if roles:
        match["roles"] = list(roles)
    return match


def read_peer(text: str) -> tuple[ChatKind, str]:
    """A chat from `KIND:ID`: `group:-100`, `direct:@ann:example.org`. Without an id, none."""
    kind, _, id_ = text.strip().partition(":")
    for known in get_args(ChatKind):
        if {"dm": "direct"}.get(kind, kind) == known:
            return known, id_.strip()
    raise UserError(
        f"{one_line(text)!r} names no chat", fix=f"write KIND:ID; kinds are {', '.join(_KINDS)}"
    )


def read_bindings(tree: Mapping[str, Json]) -> Iterator[Bound]:
    """The bindings of a config's tree; what is none is passed over."""
    listed = tree.get("bindings")
    for at, binding in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(binding, dict) or not isinstance(binding.get("agentId"), str):
            continue
        try:
            match = BindingMatch.model_validate(binding.get("match"))
        except ValidationError:
            continue
        yield Bound(at, normalize_agent_id(binding["agentId"]), match)


def bind(
    tree: Mapping[str, Json],
    agent: str,
    matches: Sequence[Match],
    find_traits: FindTraits = no_traits,
) -> dict[str, Json]:
    """The config with more for an agent to answer; UserError for what is bound already."""
    taken = {_identity(bound.match, find_traits): bound.agent for bound in read_bindings(tree)}
    for match in matches:
        found = BindingMatch.model_validate(match)
        owner = taken.setdefault(_identity(found, find_traits), "")
        if owner:
            whose = "it" if owner == agent else f'agent "{owner}"'
            raise UserError(
                f"{describe(found)} is bound to {whose} already",
                fix=f"homarus agents unbind --agent {owner} takes it away"
                if owner != agent
                else "homarus agents bindings lists what is bound",
            )
        taken[_identity(found, find_traits)] = agent
    listed = tree.get("bindings")
    before = listed if isinstance(listed, list) else []
    return {**tree, "bindings": [*before, *({"agentId": agent, "match": m} for m in matches)]}


def unbind(
    tree: Mapping[str, Json],
    agent: str,
    matches: Sequence[Match] | None,
    find_traits: FindTraits = no_traits,
) -> tuple[dict[str, Json], tuple[str, ...]]:
    """The config with less for an agent to answer, all with None; and what was taken, in words."""
    own = [bound for bound in read_bindings(tree) if bound.agent == agent]
    gone = own
    if matches is not None:
        parsed = map(BindingMatch.model_validate, matches)
        wanted = {_identity(found, find_traits): found for found in parsed}
        gone = [bound for bound in own if _identity(bound.match, find_traits) in wanted]
        missing = wanted.keys() - {_identity(bound.match, find_traits) for bound in gone}
        for found in (wanted[each] for each in missing):
            raise UserError(
                f'{describe(found)} is not bound to "{agent}"',
                fix="; ".join(describe(bound.match) for bound in own)
                or "homarus agents bindings lists what is bound",
            )
    places = {bound.at for bound in gone}
    kept = [one for at, one in enumerate(tree.get("bindings") or ()) if at not in places]
    changed = {**tree, "bindings": kept} if places else dict(tree)
    return changed, tuple(describe(bound.match) for bound in gone)


def in_words(matches: Sequence[Match]) -> tuple[str, ...]:
    """What bindings are for, as people say it."""
    return tuple(describe(BindingMatch.model_validate(match)) for match in matches)


def _identity(match: BindingMatch, find_traits: FindTraits) -> tuple[object, ...]:
    """What makes two bindings be for the same: then the later one never has a say."""
    channel, account = match.channel.strip().lower(), (match.account_id or DEFAULT_ACCOUNT).strip()
    peer, traits = match.peer, find_traits(channel)
    return (
        channel,
        ANY if account == ANY else normalize_account_id(account),
        peer and ("direct" if peer.kind == "dm" else peer.kind, peer_id(peer.id.strip(), traits)),
        (match.guild_id or "").strip(),
        (match.team_id or "").strip(),
        frozenset(role.strip() for role in match.roles),
    )
