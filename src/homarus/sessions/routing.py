"""Route a message to an agent and a session key. Pure.

The most specific binding wins, and of equal ones the first; without one, the default agent.

    resolve_route(config, RouteQuery("telegram", peer_kind="group", peer="-100"))   # one chat
    resolve_routes(config, inbound, traits)   # a message: one route, or several by `broadcast`
    explain_route(config, query)              # the reason, in lines for people

A thread has a session of its own, in a direct chat too; a channel that sets no thread in its
addresses has one session per chat. Where a service gives a thread its own chat id, the message
names the chat above it (`InboundMetadata.parent`), and the chat's key is the thread's.
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
    global_key,
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
    """The agent and session key of a message; `legacy_key` is OpenClaw's key, if it differs."""

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
    reason: str = ""


def resolve_route(config: Config, query: RouteQuery) -> Route:
    """Return the route by bindings alone; without a list of agents, to the one they name."""
    query = _normalize(query)
    found = _best(config, query)
    if found is None:
        return _route(config, query, default_agent_id(config), "default")
    tier, agent_name = found
    agent = normalize_agent_id(agent_name)
    if config.agents.list and agent not in agent_ids(config):
        agent = normalize_agent_id(default_agent_id(config))
    return _route(config, query, agent, tier)


def resolve_routes(
    config: Config,
    inbound: Inbound,
    traits: ChannelTraits,
    find_entry: FindSessionEntry = lambda _key: None,
) -> tuple[Route, ...]:
    """Return the route of a message, or one for each agent that `broadcast` names for its chat.

    All agents exist. `find_entry` finds sessions under `Route.key` and `Route.legacy_key`; see
    `_with_legacy_key`.
    """
    return find_routes(config, route_query_for(inbound, traits), find_entry)


def route_query_for(inbound: Inbound, traits: ChannelTraits) -> RouteQuery:
    """Return the routing query of a message."""
    address, metadata = inbound.address, inbound.metadata
    is_direct = metadata.kind == "direct"
    return RouteQuery(
        channel=address.channel,
        account=address.account,
        peer_kind=metadata.kind,
        peer=(inbound.sender or address.chat) if is_direct else address.chat,
        parent_kind=metadata.kind if metadata.parent else "",
        parent=metadata.parent,
        guild=metadata.guild,
        team=metadata.team,
        roles=metadata.roles,
        thread="" if metadata.parent else address.thread or "",
        traits=traits,
    )


def find_routes(
    config: Config, query: RouteQuery, find_entry: FindSessionEntry = lambda _key: None
) -> tuple[Route, ...]:
    """Return the routes of a query; see `resolve_routes`."""
    query = _normalize(query)
    chosen = [agent for agent in _broadcast(config, query) if agent in agent_ids(config)]
    routes = [_route(config, query, agent, "broadcast") for agent in chosen]
    if not routes:
        one = resolve_route(config, query)
        exists = one.agent in agent_ids(config)
        agent = one.agent if exists else default_agent_id(config)
        routes = [one if exists else _route(config, query, agent, one.matched_by)]
    return tuple(_with_legacy_key(route, query, find_entry) for route in routes)


def _with_legacy_key(route: Route, query: RouteQuery, find_entry: FindSessionEntry) -> Route:
    """Return the route, with OpenClaw's key when the session under it belongs to this chat.

    OpenClaw's keys do not distinguish `!AbC` from `!abc`, so that a session may be of another
    chat. It is continued only when its record names exactly this chat as the last one: two chats
    never share a session.
    """
    if not route.legacy_key or find_entry(route.key) is not None:
        return route
    entry = find_entry(route.legacy_key)
    if entry is None or not _is_entry_of(entry, query):
        return route
    return replace(route, key=route.legacy_key, legacy_key="")


def _is_entry_of(entry: Mapping[str, Json], query: RouteQuery) -> bool:
    sources = [entry, entry.get("origin"), entry.get("deliveryContext")]
    result = {name: value for p in sources if isinstance(p, Mapping) for name, value in p.items()}
    chats = [result[name] for name in ("lastTo", "groupId", "to", "from") if name in result]
    threads = [result[name] for name in ("lastThreadId", "threadId") if name in result]
    is_chat = any(isinstance(c, str) and f":{c}".endswith(f":{query.peer}") for c in chats)
    return is_chat and (not query.thread or query.thread in threads)


def _normalize(query: RouteQuery) -> RouteQuery:
    channel = query.channel.strip().lower()
    return replace(query, channel=channel, account=normalize_account_id(query.account))


def _route(config: Config, query: RouteQuery, agent: str, matched_by: str) -> Route:
    channel, session = query.channel, config.session
    if session.scope == "global":
        only = global_key(agent)
        return Route(agent, channel, query.account, only, only, matched_by)
    main = main_key(agent)
    base, legacy = main, str(main)
    if query.peer_kind:
        base = peer_key(
            agent,
            channel,
            query.peer_kind,
            query.peer,
            account=query.account,
            scope=session.dm_scope,
            traits=query.traits,
            identity_links=session.identity_links,
        )
        legacy = _unmarked(base, query.peer, query.traits)
    thread, mark = peer_id(query.thread, query.traits), _mark(query)
    key = thread_key(base, thread, mark=mark)
    if thread:
        legacy = _unmarked(thread_key(legacy, thread, mark=mark), query.thread, query.traits)
    return Route(
        agent, channel, query.account, key, main, matched_by, legacy if legacy != key else ""
    )


def _unmarked(key: str, text: str, traits: ChannelTraits) -> str:
    """Return a key as it would be if ids that differ in case were equal."""
    marked, plain = peer_id(text, traits), text.strip().lower()
    if marked.startswith(f"{plain}~") and key.endswith(f":{marked}"):
        return key.removesuffix(marked) + plain
    return key


def _mark(query: RouteQuery) -> Literal["thread", "topic"]:
    return "topic" if query.traits.has_topics and query.peer_kind != "direct" else "thread"


def _broadcast(config: Config, query: RouteQuery) -> list[str]:
    """Return the agents that `broadcast` names for a chat, by `id` or `channel:id`."""
    extra = config.broadcast.model_extra or {}
    for chat in _chats(query) if extra else ():
        for name, listed in extra.items():
            text = name.strip()
            if chat.id in {
                peer_id(text, query.traits),
                peer_id(text.removeprefix(f"{query.channel}:"), query.traits),
            }:
                return list(dict.fromkeys(normalize_agent_id(agent) for agent in listed))
    return []


def _best(config: Config, query: RouteQuery) -> tuple[str, str] | None:
    """Return tier and agent of the winning binding, or None."""
    chats = tuple(_chats(query))
    fits = [
        (verdict.tier, binding.agent_id)
        for binding in config.bindings
        if (verdict := _match_binding(binding.match, query, chats)).tier
    ]
    return min(fits, key=lambda fit: _RANKS[fit[0]], default=None)


def _chats(query: RouteQuery) -> Iterator[_ChatAlias]:
    """Yield the ids of a chat, the most specific first."""
    kind, traits = query.peer_kind, query.traits
    tier = "binding.peer"
    if kind and query.peer and query.thread:
        yield _ChatAlias(tier, kind, peer_id(f"{query.peer}:{_mark(query)}:{query.thread}", traits))
        tier = "binding.peer.parent"
    if kind and query.peer:
        yield _ChatAlias(tier, kind, peer_id(query.peer, traits))
    if query.parent:
        yield _ChatAlias("binding.peer.parent", query.parent_kind, peer_id(query.parent, traits))


def _match_binding(
    match: BindingMatchConfig, query: RouteQuery, chats: tuple[_ChatAlias, ...]
) -> _BindingVerdict:
    """Return the tier of a binding whose fields all match, else the reason."""
    if reason := _mismatch_reason(match, query):
        return _BindingVerdict(reason=reason)
    if match.peer:
        return _match_peer(match.peer, query, chats)
    if match.guild_id:
        return _BindingVerdict("binding.guild+roles" if match.roles else "binding.guild")
    if match.team_id:
        return _BindingVerdict("binding.team")
    return _BindingVerdict("binding.channel" if _is_any(match.account_id) else "binding.account")


def _mismatch_reason(match: BindingMatchConfig, query: RouteQuery) -> str:
    """Return which field of a binding, apart from the chat, does not match."""
    if match.channel.strip().lower() != query.channel:
        return "it is for another channel"
    if not _is_any(match.account_id) and normalize_account_id(match.account_id) != query.account:
        wanted = normalize_account_id(match.account_id)
        note = "" if match.account_id else ", as it names none"
        return f"it is for the account {wanted}{note}"
    if match.guild_id is not None and not _equals(match.guild_id, query.guild):
        return f"it is for the guild {_short(match.guild_id)}"
    if match.team_id is not None and not _equals(match.team_id, query.team):
        return f"it is for the team {_short(match.team_id)}"
    if match.roles and not any(_equals(role, own) for role in match.roles for own in query.roles):
        return f"the sender has no role {_short(' or '.join(match.roles))}"
    return ""


def _match_peer(
    peer: PeerConfig, query: RouteQuery, chats: tuple[_ChatAlias, ...]
) -> _BindingVerdict:
    kind = "direct" if peer.kind == "dm" else peer.kind
    text = peer.id.strip()
    if text == ANY:
        if kind == query.peer_kind:
            return _BindingVerdict("binding.peer.wildcard")
        return _BindingVerdict(reason=f"it is for {kind} chats")
    wanted = peer_id(text, query.traits)
    same = [chat for chat in chats if chat.id == wanted]
    for chat in same:
        if chat.kind == kind:
            return _BindingVerdict(chat.tier)
    if same:
        return _BindingVerdict(reason=f"it calls the chat {kind}, which is {same[0].kind}")
    return _BindingVerdict(reason=f"it is for the {kind} chat {_short(text)}")


def _equals(wanted: str, actual: str) -> bool:
    return bool(actual) and wanted.strip() == actual


def _is_any(account: str | None) -> bool:
    return (account or "").strip() == ANY


def _short(text: str) -> str:
    return one_line(text, 60)


# For people


def explain_route(config: Config, query: RouteQuery) -> tuple[str, ...]:
    """Return lines that explain a route: each tier, what matches, and why the rest does not."""
    query = _normalize(query)
    routes = find_routes(config, query)
    lines = [_describe_chat(query)]
    if routes[0].matched_by == "broadcast":
        names = ", ".join(route.agent for route in routes)
        lines.append(f"broadcast gives this chat to {names}; bindings are not asked")
    else:
        lines += _tier_lines(config, query, routes[0].agent)
    for agent in _broadcast(config, query):
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


def _describe_chat(query: RouteQuery) -> str:
    chat = f"{query.peer_kind} {_short(query.peer)}" if query.peer_kind else "no chat"
    words = [f"{_short(query.channel)} ({query.account})", chat]
    words += [f"{_mark(query)} {_short(query.thread)}"] if query.thread else []
    words += [f"under {query.parent_kind} {_short(query.parent)}"] if query.parent else []
    words += [f"guild {_short(query.guild)}"] if query.guild else []
    words += [f"team {_short(query.team)}"] if query.team else []
    words += [f"role {_short(role)}" for role in query.roles]
    return ", ".join(words)


def _tier_lines(config: Config, query: RouteQuery, agent: str) -> Iterator[str]:
    from homarus.config.binding_edits import describe_match

    chats = tuple(_chats(query))
    verdicts = [
        (
            f"bindings[{at}], {describe_match(one.match)} → {_short(one.agent_id)}",
            one.agent_id,
            verdict,
        )
        for at, one in enumerate(config.bindings)
        for verdict in (_match_binding(one.match, query, chats),)
    ]
    is_taken = False
    for tier, words in TIERS.items():
        fits = [
            (line, agent_name) for line, agent_name, verdict in verdicts if verdict.tier == tier
        ]
        if not fits:
            yield f"{tier:<22} {words}: no binding"
        for line, agent_name in fits:
            result = "fits too; another comes first" if is_taken else "taken"
            if not is_taken and normalize_agent_id(agent_name) != agent:
                result = "taken; there is no such agent, so the default one answers"
            yield f"{tier:<22} {line}: {result}"
            is_taken = True
    yield f"{'default':<22} {default_agent_id(config)}{'' if is_taken else ': taken'}"
    yield from (
        f"{'not for this chat':<22} {line}: {v.reason}" for line, _, v in verdicts if v.reason
    )
