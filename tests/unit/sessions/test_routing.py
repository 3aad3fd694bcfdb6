"""Route messages by bindings, threads and broadcast."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.registry import find_traits
from homarus.config.schema import Config
from homarus.core.message import Address, Inbound, InboundMetadata
from homarus.core.session_keys import check_key
from homarus.core.text import escape_invisible
from homarus.sessions import routing
from homarus.sessions.routing import FindSessionEntry, Route, RouteQuery


def routes_of(
    config: Config, message: Inbound, known: FindSessionEntry = lambda _key: None
) -> tuple[Route, ...]:
    traits = find_traits(message.address.channel)
    return routing.resolve_routes(config, message, traits, known)


def of_service(query: RouteQuery) -> RouteQuery:
    return replace(query, traits=find_traits(query.channel))


def resolve_route(config: Config, query: RouteQuery) -> Route:
    return routing.resolve_route(config, of_service(query))


def find_routes(config: Config, query: RouteQuery) -> tuple[Route, ...]:
    return routing.find_routes(config, of_service(query))


def explain(config: Config, query: RouteQuery) -> tuple[str, ...]:
    return routing.explain_route(config, of_service(query))


AGENTS = {"list": [{"id": "main", "default": True}, {"id": "home"}, {"id": "work"}, {"id": "ops"}]}
# One message that every kind of binding could be for.
EVERYTHING = RouteQuery(
    "discord",
    "biz",
    "channel",
    "t1",
    parent_kind="channel",
    parent="c1",
    guild="g1",
    team="T1",
    roles=("r0", "r1"),
)
BY_TIER: dict[str, dict[str, Any]] = {
    "binding.peer": {"accountId": "biz", "peer": {"kind": "channel", "id": "t1"}},
    "binding.peer.parent": {"accountId": "biz", "peer": {"kind": "channel", "id": "c1"}},
    "binding.peer.wildcard": {"accountId": "biz", "peer": {"kind": "channel"}},
    "binding.guild+roles": {"accountId": "biz", "guildId": "g1", "roles": ["x", "r1"]},
    "binding.guild": {"accountId": "*", "guildId": "g1"},
    "binding.team": {"accountId": "*", "teamId": "T1"},
    "binding.account": {"accountId": "Biz"},
    "binding.channel": {"accountId": "*"},
}


def binding(agent: str, **match: Any) -> dict[str, Any]:
    return {"agentId": agent, "match": {"channel": "discord", **match}}


def config(*bindings: dict[str, Any], **sections: Any) -> Config:
    tree = {"agents": AGENTS, "bindings": list(bindings), **sections}
    return Config.model_validate(tree)


def inbound(
    channel: str = "telegram",
    chat: str = "-100",
    *,
    thread: str | None = None,
    sender: str = "9",
    **occasion: Any,
) -> Inbound:
    occasion.setdefault("kind", "group")
    address = Address(channel, chat, thread=thread)
    return Inbound("m1", address, sender, "hi", metadata=InboundMetadata(**occasion))


def one(routes: Sequence[Route]) -> Route:
    assert len(routes) == 1
    return routes[0]


@given(st.permutations(list(BY_TIER)), st.integers(1, len(BY_TIER)))
def test_binding_most_specific_wins_in_any_order(order: list[str], count: int) -> None:
    there = order[:count]
    routing_config = config(*(binding("home", **BY_TIER[tier]) for tier in there))
    found = resolve_route(routing_config, EVERYTHING)
    assert found.matched_by == next(tier for tier in routing.TIERS if tier in there)
    assert found.agent == "home"


@pytest.mark.parametrize("tier", BY_TIER)
def test_binding_first_of_equally_specific_wins(tier: str) -> None:
    routing_config = config(binding("work", **BY_TIER[tier]), binding("home", **BY_TIER[tier]))
    assert resolve_route(routing_config, EVERYTHING).agent == "work"


@pytest.mark.parametrize(
    "extra",
    [
        {"guildId": "g2"},
        {"teamId": "T2"},
        {"teamId": "t1"},
        {"roles": ["r9"]},
        {"accountId": "default"},
        {"accountId": None},
        {"channel": "slack"},
        {"guildId": " "},
    ],
)
@pytest.mark.parametrize("tier", BY_TIER)
def test_binding_matches_only_if_all_fields_match(tier: str, extra: dict[str, Any]) -> None:
    routing_config = config(binding("home", **{**BY_TIER[tier], **extra}))
    assert resolve_route(routing_config, EVERYTHING).matched_by == "default"


def test_binding_with_roles_needs_one_of_them() -> None:
    routing_config = config(binding("home", accountId="*", roles=["r1"]))
    assert resolve_route(routing_config, EVERYTHING).agent == "home"
    assert resolve_route(routing_config, replace(EVERYTHING, roles=())).agent == "main"


def test_binding_without_peer_id_matches_all_direct_chats() -> None:
    routing_config = config(binding("home", peer={"kind": "dm"}))
    assert resolve_route(routing_config, RouteQuery("discord", "", "direct", "7")).agent == "home"
    assert resolve_route(routing_config, RouteQuery("discord", "", "group", "7")).agent == "main"
    assert resolve_route(routing_config, RouteQuery("discord")).agent == "main"


@pytest.mark.parametrize(
    ("channel", "bound", "peer", "same"),
    [
        ("telegram", " -100 ", "-100", True),
        ("telegram", "-100", "-1001", False),
        ("matrix", "!AbC:hs", "!AbC:hs", True),
        ("matrix", "!abc:hs", "!AbC:hs", False),
        ("irc", "Bob", "bob", True),
        ("signal", "+1 (555) 123-45", "+155512345", True),
        ("slack", "C1", "C1", True),
    ],
)
def test_binding_compares_ids_as_the_service_does(
    channel: str, bound: str, peer: str, same: bool
) -> None:
    bindings = [
        {
            "agentId": "home",
            "match": {"channel": channel, "peer": {"kind": "group", "id": bound}},
        }
    ]
    found = resolve_route(config(*bindings), RouteQuery(channel, "", "group", peer))
    assert (found.agent == "home") is same


@pytest.mark.parametrize("kind", ["direct", "channel"])
def test_binding_of_other_chat_kind_does_not_match(kind: Any) -> None:
    routing_config = config(binding("home", peer={"kind": "group", "id": "1"}))
    assert resolve_route(routing_config, RouteQuery("discord", "", kind, "1")).agent == "main"


def test_route_of_unknown_agent_uses_default_agent() -> None:
    unlisted = Config.model_validate({"bindings": [binding("ghost")]})
    query = RouteQuery("discord", "", "channel", "c1")
    assert resolve_route(unlisted, query).agent == "ghost"  # as OpenClaw answers
    found = one(find_routes(unlisted, query))
    assert (found.agent, found.key) == ("main", "agent:main:discord:channel:c1")
    assert found.main_key == "agent:main:main"
    assert one(find_routes(config(binding("ghost")), query)).agent == "main"
    assert one(find_routes(config(binding(" Work ")), query)).agent == "work"


# Conversations


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (inbound(), "agent:main:telegram:group:-100"),
        (inbound(thread="7"), "agent:main:telegram:group:-100:topic:7"),
        (
            inbound("slack", "C1", thread="17.1", kind="channel"),
            "agent:main:slack:channel:c1:thread:17.1",
        ),
        (inbound("irc", "#Ops"), "agent:main:irc:group:#ops"),
        (inbound(kind="direct", chat="9"), "agent:main:telegram:direct:9"),
        (inbound(kind="direct", chat="9", thread="7"), "agent:main:telegram:direct:9:thread:7"),
        (inbound("xmpp", "room-of-two", kind="direct", sender="a@b"), "agent:main:xmpp:direct:a@b"),
        (inbound("xmpp", "chat-9", kind="direct", sender=""), "agent:main:xmpp:direct:chat-9"),
        (
            inbound("discord", "t1", thread="t1", kind="channel", parent="c1"),
            "agent:main:discord:channel:t1",
        ),
    ],
)
def test_route_gives_every_chat_and_thread_a_key(message: Inbound, key: str) -> None:
    found = one(routes_of(config(session={"dmScope": "per-channel-peer"}), message))
    assert (found.key, found.legacy_key) == (key, "")


def test_route_default_direct_chats_share_main_session() -> None:
    found = one(routes_of(config(), inbound(kind="direct", chat="9")))
    assert found.key == found.main_key == "agent:main:main"
    threaded = one(routes_of(config(), inbound(kind="direct", chat="9", thread="7")))
    assert threaded.key == "agent:main:main:thread:7"


def test_route_identity_links_share_one_session() -> None:
    session = {"dmScope": "per-peer", "identityLinks": {"Ann": ["telegram:9", "matrix:@ann:hs"]}}
    routing_config = config(session=session)
    for message in (
        inbound(kind="direct"),
        inbound("matrix", "!r:hs", sender="@ann:hs", kind="direct"),
    ):
        assert one(routes_of(routing_config, message)).key == "agent:main:direct:ann"


def test_route_topic_binding_overrides_its_group() -> None:
    def bind(agent: str, id_: str) -> dict[str, Any]:
        return {
            "agentId": agent,
            "match": {"channel": "telegram", "peer": {"kind": "group", "id": id_}},
        }

    routing_config = config(bind("home", "-100"), bind("ops", "-100:topic:7"))
    topic = one(routes_of(routing_config, inbound(thread="7")))
    assert (topic.agent, topic.matched_by) == ("ops", "binding.peer")
    assert topic.key == "agent:ops:telegram:group:-100:topic:7"
    other = one(routes_of(routing_config, inbound(thread="8")))
    assert (other.agent, other.matched_by) == ("home", "binding.peer.parent")


ODD = st.text(max_size=300) | st.text(
    st.sampled_from("aA:~ \0\u202e\ud800é#threadtopic"), max_size=20
)


@given(st.sampled_from(["telegram", "irc", "matrix", "signal", "slack"]), ODD, ODD, ODD, ODD)
def test_route_of_any_sender_id_does_not_raise(
    channel: str, chat: str, thread: str, sender: str, guild: str
) -> None:
    routing_config = config(
        binding("home", guildId="g1"), session={"dmScope": "per-account-channel-peer"}
    )
    for kind in ("direct", "group", "channel"):
        message = inbound(channel, chat, thread=thread, sender=sender, kind=kind, guild=guild)
        found = one(routes_of(routing_config, message))
        assert found.key.startswith("agent:main:") and check_key(found.key)
        assert all(
            line == escape_invisible(line)
            for line in explain(
                routing_config,
                routing.route_query_for(message, find_traits(message.address.channel)),
            )
        )


@given(ODD.filter(str.strip), ODD.filter(str.strip))
def test_route_keys_of_two_chats_differ(a: str, b: str) -> None:
    routing_config = config()
    keys = {one(routes_of(routing_config, inbound("matrix", chat))).key for chat in (a, b)}
    threads = {
        one(routes_of(routing_config, inbound("matrix", "!r", thread=t))).key for t in (a, b)
    }
    assert len(keys) == len(threads) == len({a, b})


# Conversations of an existing installation

ROOM = "!AbC:hs"
OLDER = "agent:main:matrix:group:!abc:hs"


def test_route_continues_openclaw_session() -> None:
    message = inbound("matrix", ROOM)
    new = one(routes_of(config(), message))
    assert new.key.startswith(f"{OLDER}~") and new.legacy_key == OLDER
    for entry in (
        {"lastTo": f"room:{ROOM}"},
        {"groupId": ROOM},
        {"deliveryContext": {"channel": "matrix", "to": ROOM}},
        {"origin": {"from": f"matrix:channel:{ROOM}"}},
    ):
        found = one(routes_of(config(), message, {OLDER: entry}.get))
        assert (found.key, found.legacy_key) == (OLDER, "")


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"lastTo": "room:!abc:hs"},  # a chat of that very name
        {"lastTo": "room:!ABC:hs"},
        {"lastTo": None, "origin": "x", "deliveryContext": {"to": 5}},
        {"lastTo": f"{ROOM}:more"},
        {"lastTo": f"x{ROOM}"},
    ],
)
def test_route_ignores_ambiguous_openclaw_session(entry: dict[str, Any]) -> None:
    found = one(routes_of(config(), inbound("matrix", ROOM), {OLDER: entry}.get))
    assert found.key != OLDER


def test_route_ignores_record_without_matching_fields() -> None:
    message = inbound("matrix", "None")
    found = one(
        routes_of(config(), message, {"agent:main:matrix:group:none": {"lastTo": None}}.get)
    )
    assert found.key != "agent:main:matrix:group:none"


def test_route_prefers_our_own_session() -> None:
    message = inbound("matrix", ROOM)
    new = one(routes_of(config(), message)).key
    known = {new: {"lastTo": ROOM}, OLDER: {"lastTo": ROOM}}
    assert one(routes_of(config(), message, known.get)).key == new


def test_route_finds_openclaw_thread_by_its_key() -> None:
    message = inbound("matrix", ROOM, thread="$EvT")
    older = f"{OLDER}:thread:$evt"
    assert one(routes_of(config(), message)).legacy_key == older
    mine = {"lastTo": f"room:{ROOM}", "lastThreadId": "$EvT"}
    assert one(routes_of(config(), message, {older: mine}.get)).key == older
    other = {**mine, "lastThreadId": "$eVt"}
    assert one(routes_of(config(), message, {older: other}.get)).key != older


# Several agents


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("-100", inbound()),
        ("telegram:-100", inbound()),
        ("-100", inbound(thread="7")),
        ("-100:topic:7", inbound(thread="7")),
        ("9", inbound(kind="direct", chat="9")),
        ("c1", inbound("discord", "t1", kind="channel", parent="c1")),
        ("+1 555 1", inbound("whatsapp", "+15551", kind="direct", sender="+15551")),
    ],
)
def test_broadcast_chat_routes_to_all_agents_in_order(name: str, message: Inbound) -> None:
    bound = {"agentId": "main", "match": {"channel": message.address.channel}}
    routing_config = config(bound, broadcast={name: ["work", "ghost", "Home", "work"]})
    found = routes_of(routing_config, message)
    assert [route.agent for route in found] == ["work", "home"]
    assert {route.matched_by for route in found} == {"broadcast"}
    assert len({route.key for route in found}) == 2


def test_route_with_global_scope_is_one_session_for_every_chat() -> None:
    routing_config = config(binding("work", guildId="g1"), session={"scope": "global"})
    queries = [
        RouteQuery("telegram", "", "direct", "7"),
        RouteQuery("telegram", "b", "group", "-7", thread="3"),
        RouteQuery("irc", "", "channel", "#x"),
    ]
    found = [resolve_route(routing_config, query) for query in queries]
    assert {(route.key, route.main_key, route.legacy_key) for route in found} == {
        ("global", "global", "")
    }
    work = RouteQuery("discord", "", "channel", "c1", guild="g1")
    assert resolve_route(routing_config, work).key == "agent:work:global"
    keys = {resolve_route(config(session={"scope": "per-sender"}), query).key for query in queries}
    assert len(keys) == 3


@pytest.mark.parametrize(
    "broadcast",
    [{"-100": []}, {"-100": ["ghost"]}, {"-1001": ["work"]}, {"discord:-100": ["work"]}, {}],
)
def test_broadcast_without_agents_uses_bindings(broadcast: Any) -> None:
    bound = {"agentId": "home", "match": {"channel": "telegram"}}
    found = one(routes_of(config(bound, broadcast=broadcast), inbound()))
    assert (found.agent, found.matched_by) == ("home", "binding.account")


# In words


def test_explain_route_lists_every_tier_and_binding() -> None:
    bindings = [binding("home", **match) for match in BY_TIER.values()]
    lines = explain(config(*bindings), EVERYTHING)
    text = "\n".join(lines)
    assert lines[0] == (
        "discord (biz), channel t1, under channel c1, guild g1, team T1, role r0, role r1"
    )
    assert [line.split()[0] for line in lines[1:10]] == [*routing.TIERS, "default"]
    assert text.count(": taken") == 1 and text.count("another comes first") == 7
    assert lines[-1] == "→ home answers (binding.peer), in agent:home:discord:channel:t1"


def test_explain_route_gives_reason_of_mismatch() -> None:
    routing_config = config(
        binding("home", peer={"kind": "group", "id": "t1"}, accountId="*"),
        binding("home", peer={"kind": "group", "id": "t9"}, accountId="*"),
        binding("home", peer={"kind": "direct"}, accountId="*"),
        binding("home"),
        binding("home", accountId="*", guildId="g2"),
        binding("home", accountId="*", teamId="T2"),
        binding("home", accountId="*", roles=["r8", "r9"]),
        {"agentId": "home", "match": {"channel": "slack"}},
        binding("ghost", accountId="*"),
    )
    text = "\n".join(explain(routing_config, EVERYTHING))
    for why in (
        "it calls the chat group, which is channel",
        "it is for the group chat t9",
        "it is for direct chats",
        "it is for the account default, as it names none",
        "it is for the guild g2",
        "it is for the team T2",
        "the sender has no role r8 or r9",
        "it is for another channel",
        "taken; there is no such agent, so the default one answers",
        "→ main answers (binding.channel), in agent:main:discord:channel:t1",
    ):
        assert why in text


def test_explain_route_mentions_broadcast_and_legacy_keys() -> None:
    routing_config = config(broadcast={ROOM: ["work", "ghost"]})
    lines = explain(routing_config, RouteQuery("matrix", "", "group", ROOM, thread="7"))
    assert "broadcast gives this chat to work; bindings are not asked" in lines
    assert "broadcast names ghost, and there is no such agent" in lines
    assert lines[-1].startswith("  or in agent:work:matrix:group:!abc:hs:thread:7, ")


def test_explain_route_without_config_is_default_agent() -> None:
    lines = explain(Config(), RouteQuery("telegram"))
    assert lines[0] == "telegram (default), no chat"
    assert f"{'default':<22} main: taken" in lines
    assert lines[-1] == "→ main answers (default), in agent:main:main"
