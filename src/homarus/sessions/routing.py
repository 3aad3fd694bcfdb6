"""Route a message to an agent and a session key. Pure.

The most specific binding wins, and of equal ones the first; without one, the default agent.

    resolve_route(config, Asked("telegram", peer_kind="group", peer="-100"))   # one chat
    routes_of(config, inbound)            # a message: one route, or several by `broadcast`
    explain(config, asked)                # why, in lines for people

A thread has a session of its own, in a direct chat too; a channel that sets no thread in its
addresses has one session per chat. Where a service gives a thread its own chat id, the message
names the chat above it (`Occasion.parent`), and the chat's key is the thread's.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.config.schema import BindingMatchConfig, Config, PeerConfig
from homarus.core.channel_traits import UNKNOWN_CHANNEL, ChannelTraits
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import ChatKind, Inbound, Json
from homarus.core.session_keys import (
    main_key,
    normalize_account_id,
    normalize_agent_id,
    peer_id,
    peer_key,
    thread_key,
)
from homarus.core.text import escape_invisible, one_line

# Returns the entry of a session by its key; None when there is no such session.
FindSessionEntry: TypeAlias = Callable[[str], Mapping[str, Json] | None]

ANY: Final = "*"
# What a binding can match by, from the most specific to the least, with a description.
TIERS: Final = {
    "binding.peer": "this very chat",
    "binding.peer.parent": "the chat it hangs under",
    "binding.peer.wildcard": "every chat of this kind",
    "binding.guild+roles": "its guild, and a role of the sender",
    "binding.guild": "its guild",
    "binding.team": "its team",
    "binding.account": "the account",
    "binding.channel": "the channel, by any account",
}
_RANKS: Final = {tier: rank for rank, tier in enumerate(TIERS)}


@dataclass(frozen=True, slots=True)
class RouteQuery:
    """The origin of a message; in a direct chat, `peer` is the person."""

    channel: str
    account: str = ""
    peer_kind: ChatKind | Literal[""] = ""
    peer: str = ""
    parent_kind: ChatKind | Literal[""] = ""
    parent: str = ""
    guild: str = ""
    team: str = ""
    roles: tuple[str, ...] = ()
    thread: str = ""
    traits: ChannelTraits = UNKNOWN_CHANNEL


@dataclass(frozen=True, slots=True)
class Route:
    """The agent and session key of a message; `older` is OpenClaw's key, if it differs."""

    agent: str
    channel: str
    account: str
    key: str
    main_key: str
    matched_by: str
    legacy_key: str = ""


@dataclass(frozen=True, slots=True)
class _ChatAlias:
    """An id that a binding can name a message's chat by: the chat, its thread or its parent."""

    tier: str
    kind: str
    id: str  # in the form of keys, so that equal texts are equal chats


@dataclass(frozen=True, slots=True)
class _BindingVerdict:
    """The tier that a binding matches by, else the reason why it does not."""

    tier: str = ""
    why: str = ""


def resolve_route(config: Config, asked: RouteQuery) -> Route:
    """Return the route by bindings alone; without a list of agents, to the one they name."""
    asked = _normal(asked)
    found = _best(config, asked)
    if found is None:
        return _route(config, asked, default_agent_id(config), "default")
    tier, named = found
    agent = normalize_agent_id(named)
    if config.agents.list and agent not in agent_ids(config):
        agent = normalize_agent_id(default_agent_id(config))
    return _route(config, asked, agent, tier)


def resolve_routes(
    config: Config,
    inbound: Inbound,
    traits: ChannelTraits,
    known: FindSessionEntry = lambda _key: None,
) -> tuple[Route, ...]:
    """Return the route of a message, or one for each agent that `broadcast` names for its chat.

    All agents exist. `known` finds sessions under `Route.key` and `Route.older`; see `_settled`.
    """
    return find_routes(config, route_query_for(inbound, traits), known)


def route_query_for(inbound: Inbound, traits: ChannelTraits) -> RouteQuery:
    """Return the routing query of a message."""
    address, occasion = inbound.address, inbound.metadata
    is_direct = occasion.kind == "direct"
    return RouteQuery(
        channel=address.channel,
        account=address.account,
        peer_kind=occasion.kind,
        peer=(inbound.sender or address.chat) if is_direct else address.chat,
        parent_kind=occasion.kind if occasion.parent else "",
        parent=occasion.parent,
        guild=occasion.guild,
        team=occasion.team,
        roles=occasion.roles,
        thread="" if occasion.parent else address.thread or "",
        traits=traits,
    )


def find_routes(
    config: Config, asked: RouteQuery, known: FindSessionEntry = lambda _key: None
) -> tuple[Route, ...]:
    """Return the routes of a query; see `resolve_routes`."""
    asked = _normal(asked)
    chosen = [agent for agent in _broadcast(config, asked) if agent in agent_ids(config)]
    routes = [_route(config, asked, agent, "broadcast") for agent in chosen]
    if not routes:
        one = resolve_route(config, asked)
        exists = one.agent in agent_ids(config)
        agent = one.agent if exists else default_agent_id(config)
        routes = [one if exists else _route(config, asked, agent, one.matched_by)]
    return tuple(_settled(route, asked, known) for route in routes)


def _settled(route: Route, asked: RouteQuery, known: FindSessionEntry) -> Route:
    """Return the route, with OpenClaw's key when the session under it belongs to this chat.

    OpenClaw's keys do not distinguish `!AbC` from `!abc`, so that a session may be of another
    chat. It is continued only when its record names exactly this chat as the last one: two chats
    never share a session.
    """
    if not route.legacy_key or known(route.key) is not None:
        return route
    entry = known(route.legacy_key)
    if entry is None or not _is_of(entry, asked):
        return route
    return replace(route, key=route.legacy_key, legacy_key="")


def _is_of(entry: Mapping[str, Json], asked: RouteQuery) -> bool:
    places = [entry, entry.get("origin"), entry.get("deliveryContext")]
    told = {name: value for p in places if isinstance(p, Mapping) for name, value in p.items()}
    chats = [told[name] for name in ("lastTo", "groupId", "to", "from") if name in told]
    threads = [told[name] for name in ("lastThreadId", "threadId") if name in told]
    is_chat = any(isinstance(c, str) and f":{c}".endswith(f":{asked.peer}") for c in chats)
    return is_chat and (not asked.thread or asked.thread in threads)


def _normal(asked: RouteQuery) -> RouteQuery:
    channel = asked.channel.strip().lower()
    return replace(asked, channel=channel, account=normalize_account_id(asked.account))


def _route(config: Config, asked: RouteQuery, agent: str, matched_by: str) -> Route:
    channel, session = asked.channel, config.session
    main = main_key(agent)
    base, older = main, str(main)
    if asked.peer_kind:
        base = peer_key(
            agent,
            channel,
            asked.peer_kind,
            asked.peer,
            account=asked.account,
            scope=session.dm_scope,
            traits=asked.traits,
            identity_links=session.identity_links,
        )
        older = _unmarked(base, asked.peer, asked.traits)
    thread, mark = peer_id(asked.thread, asked.traits), _mark(asked)
    key = thread_key(base, thread, mark=mark)
    if thread:
        older = _unmarked(thread_key(older, thread, mark=mark), asked.thread, asked.traits)
    return Route(
        agent, channel, asked.account, key, main, matched_by, older if older != key else ""
    )


def _unmarked(key: str, text: str, traits: ChannelTraits) -> str:
    """Return a key as it would be if ids that differ in case were equal."""
    marked, plain = peer_id(text, traits), text.strip().lower()
    if marked.startswith(f"{plain}~") and key.endswith(f":{marked}"):
        return key.removesuffix(marked) + plain
    return key


def _mark(asked: RouteQuery) -> Literal["thread", "topic"]:
    return "topic" if asked.traits.has_topics and asked.peer_kind != "direct" else "thread"


def _broadcast(config: Config, asked: RouteQuery) -> list[str]:
    """Return the agents that `broadcast` names for a chat, by `id` or `channel:id`."""
    extra = config.broadcast.model_extra or {}
    for chat in _chats(asked) if extra else ():
        for name, listed in extra.items():
            text = name.strip()
            if chat.id in {
                peer_id(text, asked.traits),
                peer_id(text.removeprefix(f"{asked.channel}:"), asked.traits),
            }:
                return list(dict.fromkeys(normalize_agent_id(agent) for agent in listed))
    return []


def _best(config: Config, asked: RouteQuery) -> tuple[str, str] | None:
    """Return tier and agent of the winning binding, or None."""
    chats = tuple(_chats(asked))
    fits = [
        (verdict.tier, binding.agent_id)
        for binding in config.bindings
        if (verdict := _judge(binding.match, asked, chats)).tier
    ]
    return min(fits, key=lambda fit: _RANKS[fit[0]], default=None)


def _chats(asked: RouteQuery) -> Iterator[_ChatAlias]:
    """Yield the ids of a chat, the most specific first."""
    kind, traits = asked.peer_kind, asked.traits
    tier = "binding.peer"
    if kind and asked.peer and asked.thread:
        yield _ChatAlias(tier, kind, peer_id(f"{asked.peer}:{_mark(asked)}:{asked.thread}", traits))
        tier = "binding.peer.parent"
    if kind and asked.peer:
        yield _ChatAlias(tier, kind, peer_id(asked.peer, traits))
    if asked.parent:
        yield _ChatAlias("binding.peer.parent", asked.parent_kind, peer_id(asked.parent, traits))


def _judge(
    match: BindingMatchConfig, asked: RouteQuery, chats: tuple[_ChatAlias, ...]
) -> _BindingVerdict:
    """Return the tier of a binding whose fields all match, else the reason."""
    if why := _missed(match, asked):
        return _BindingVerdict(why=why)
    if match.peer:
        return _judge_peer(match.peer, asked, chats)
    if match.guild_id:
        return _BindingVerdict("binding.guild+roles" if match.roles else "binding.guild")
    if match.team_id:
        return _BindingVerdict("binding.team")
    return _BindingVerdict("binding.channel" if _is_any(match.account_id) else "binding.account")


def _missed(match: BindingMatchConfig, asked: RouteQuery) -> str:
    """Return which field of a binding, apart from the chat, does not match."""
    if match.channel.strip().lower() != asked.channel:
        return "it is for another channel"
    if not _is_any(match.account_id) and normalize_account_id(match.account_id) != asked.account:
        wanted = normalize_account_id(match.account_id)
        usual = "" if match.account_id else ", as it names none"
        return f"it is for the account {wanted}{usual}"
    if match.guild_id is not None and not _is(match.guild_id, asked.guild):
        return f"it is for the guild {_shown(match.guild_id)}"
    if match.team_id is not None and not _is(match.team_id, asked.team):
        return f"it is for the team {_shown(match.team_id)}"
    if match.roles and not any(_is(role, own) for role in match.roles for own in asked.roles):
        return f"the sender has no role {_shown(' or '.join(match.roles))}"
    return ""


def _judge_peer(
    peer: PeerConfig, asked: RouteQuery, chats: tuple[_ChatAlias, ...]
) -> _BindingVerdict:
    kind = "direct" if peer.kind == "dm" else peer.kind
    text = peer.id.strip()
    if text == ANY:
        if kind == asked.peer_kind:
            return _BindingVerdict("binding.peer.wildcard")
        return _BindingVerdict(why=f"it is for {kind} chats")
    wanted = peer_id(text, asked.traits)
    same = [chat for chat in chats if chat.id == wanted]
    for chat in same:
        if chat.kind == kind:
            return _BindingVerdict(chat.tier)
    if same:
        return _BindingVerdict(why=f"it calls the chat {kind}, which is {same[0].kind}")
    return _BindingVerdict(why=f"it is for the {kind} chat {_shown(text)}")


def _is(wanted: str, actual: str) -> bool:
    return bool(actual) and wanted.strip() == actual


def _is_any(account: str | None) -> bool:
    return (account or "").strip() == ANY


def _shown(text: str) -> str:
    return one_line(text, 60)


# For people


def explain_route(config: Config, asked: RouteQuery) -> tuple[str, ...]:
    """Return lines that explain a route: each tier, what matches, and why the rest does not."""
    asked = _normal(asked)
    routes = find_routes(config, asked)
    lines = [_chat_words(asked)]
    if routes[0].matched_by == "broadcast":
        names = ", ".join(route.agent for route in routes)
        lines.append(f"broadcast gives this chat to {names}; bindings are not asked")
    else:
        lines += _tier_lines(config, asked, routes[0].agent)
    for agent in _broadcast(config, asked):
        if agent not in agent_ids(config):
            lines.append(f"broadcast names {agent}, and there is no such agent")
    for route in routes:
        lines.append(
            f"→ {route.agent} answers ({route.matched_by}), in {escape_invisible(route.key)}"
        )
        if route.legacy_key:
            lines.append(
                f"  or in {escape_invisible(route.legacy_key)}, where this chat was before"
            )
    return tuple(lines)


def _chat_words(asked: RouteQuery) -> str:
    chat = f"{asked.peer_kind} {_shown(asked.peer)}" if asked.peer_kind else "no chat"
    words = [f"{_shown(asked.channel)} ({asked.account})", chat]
    words += [f"{_mark(asked)} {_shown(asked.thread)}"] if asked.thread else []
    words += [f"under {asked.parent_kind} {_shown(asked.parent)}"] if asked.parent else []
    words += [f"guild {_shown(asked.guild)}"] if asked.guild else []
    words += [f"team {_shown(asked.team)}"] if asked.team else []
    words += [f"role {_shown(role)}" for role in asked.roles]
    return ", ".join(words)


def _tier_lines(config: Config, asked: RouteQuery, agent: str) -> Iterator[str]:
    from homarus.config.binding_edits import describe_match

    chats = tuple(_chats(asked))
    judged = [
        (
            f"bindings[{at}], {describe_match(one.match)} → {_shown(one.agent_id)}",
            one.agent_id,
            verdict,
        )
        for at, one in enumerate(config.bindings)
        for verdict in (_judge(one.match, asked, chats),)
    ]
    taken = False
    for tier, words in TIERS.items():
        fits = [(line, named) for line, named, verdict in judged if verdict.tier == tier]
        if not fits:
            yield f"{tier:<22} {words}: no binding"
        for line, named in fits:
            told = "fits too; another comes first" if taken else "taken"
            if not taken and normalize_agent_id(named) != agent:
                told = "taken; there is no such agent, so the default one answers"
            yield f"{tier:<22} {line}: {told}"
            taken = True
    yield f"{'default':<22} {default_agent_id(config)}{'' if taken else ': taken'}"
    yield from (f"{'not for this chat':<22} {line}: {v.why}" for line, _, v in judged if v.why)
