"""Bindings in the config: added once, taken away whole, the rest of the file stays."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.registry import find_traits
from homarus.config import binding_edits
from homarus.config.binding_edits import (
    describe_match,
    describe_matches,
    list_bindings,
    parse_match,
    parse_peer,
)
from homarus.config.schema import Config
from homarus.core.errors import UserError

add_bindings = partial(binding_edits.add_bindings, find_traits=find_traits)
remove_bindings = partial(binding_edits.remove_bindings, find_traits=find_traits)


def test_parse_match_makes_a_valid_binding() -> None:
    match = parse_match(
        " Telegram : Work ", peer="dm:@Ann:hs", guild=" g1 ", team="T1", roles=("r1", "r2")
    )
    assert match == {
        "channel": "telegram",
        "accountId": "work",
        "peer": {"kind": "direct", "id": "@Ann:hs"},
        "guildId": "g1",
        "teamId": "T1",
        "roles": ["r1", "r2"],
    }
    assert parse_match("irc:*") == {"channel": "irc", "accountId": "*"}
    assert parse_match("irc", peer="group")["peer"] == {"kind": "group", "id": "*"}
    Config.model_validate({"bindings": [{"agentId": "a", "match": match}]})


@pytest.mark.parametrize("text", ["", " ", ":work"])
def test_parse_match_without_channel_raises_user_error(text: str) -> None:
    with pytest.raises(UserError, match="names no channel"):
        parse_match(text)


@pytest.mark.parametrize("text", ["-100", "room:1", ":1", "Group:1", "\x1b[0m"])
def test_parse_peer_without_kind_raises_user_error(text: str) -> None:
    with pytest.raises(UserError, match="names no chat") as caught:
        parse_peer(text)
    assert "direct, group, channel, dm" in caught.value.fix
    assert str(caught.value).isprintable()


def test_add_bindings_appends_and_keeps_the_rest() -> None:
    old = {"agentId": "home", "match": {"channel": "irc"}, "comment": "mine"}
    tree: dict[str, Any] = {"gateway": {"port": 1}, "bindings": [old]}
    new = add_bindings(tree, "work", [parse_match("slack"), parse_match("irc:b")])
    assert new["gateway"] == {"port": 1} and new["bindings"][0] is old
    assert [bound.agent for bound in list_bindings(new)] == ["home", "work", "work"]
    assert tree["bindings"] == [old]
    assert add_bindings({}, "work", [parse_match("irc")])["bindings"] == [
        {"agentId": "work", "match": {"channel": "irc"}}
    ]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("irc", "IRC:Default"),
        ("irc", "irc:default"),
        ("irc:*", "irc: *"),
        ("whatsapp|direct:+1 555 123", "whatsapp|dm:+1555123"),
        ("irc|group:#Ops", "irc|group:#ops"),
    ],
)
def test_add_bindings_equal_match_raises_user_error(one: str, two: str) -> None:
    first, second = (
        parse_match(text, peer=peer) for text, _, peer in (t.partition("|") for t in (one, two))
    )
    tree = add_bindings({}, "home", [first])
    with pytest.raises(UserError, match='bound to agent "home" already') as caught:
        add_bindings(tree, "work", [second])
    assert "unbind --agent home" in caught.value.fix
    with pytest.raises(UserError, match="bound to it already"):
        add_bindings(tree, "home", [second])
    with pytest.raises(UserError, match="bound to it already"):
        add_bindings({}, "home", [first, second])


def test_add_bindings_different_matches_are_all_added() -> None:
    matches = [
        parse_match("irc"),
        parse_match("irc:*"),
        parse_match("irc", peer="group:1"),
        parse_match("irc", peer="channel:1"),
        parse_match("irc", peer="group"),
        parse_match("irc", guild="g"),
        parse_match("irc", team="g"),
        parse_match("irc", roles=("g",)),
        parse_match("matrix", peer="group:!A:hs"),
        parse_match("matrix", peer="group:!a:hs"),
    ]
    assert len(add_bindings({}, "home", matches)["bindings"]) == len(matches)


def test_remove_bindings_keeps_other_entries() -> None:
    tree: dict[str, Any] = {
        "bindings": [
            {"agentId": "home", "match": {"channel": "irc"}},
            {"agentId": "Work", "match": {"channel": "irc", "accountId": "b"}},
            "odd",
            {"agentId": "work", "match": {"channel": "slack"}},
        ]
    }
    left, gone = remove_bindings(tree, "work", [parse_match("irc:B")])
    assert gone == ("irc (b)",)
    assert left["bindings"] == [tree["bindings"][at] for at in (0, 2, 3)]
    left, gone = remove_bindings(tree, "work", None)
    assert left["bindings"] == [tree["bindings"][0], "odd"] and len(gone) == 2
    assert remove_bindings({"a": 1}, "work", None) == ({"a": 1}, ())


def test_remove_bindings_unbound_match_raises_user_error() -> None:
    tree = add_bindings({}, "home", [parse_match("irc"), parse_match("slack")])
    with pytest.raises(UserError, match='matrix is not bound to "home"') as caught:
        remove_bindings(tree, "home", [parse_match("irc"), parse_match("matrix")])
    assert caught.value.fix == "irc; slack"
    with pytest.raises(UserError, match='irc is not bound to "work"'):
        remove_bindings(tree, "work", [parse_match("irc")])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["agentId", "match", "channel", "peer"]), inner, max_size=3
        )
    ),
)


@given(JSON)
def test_binding_edits_keep_any_invalid_entry(odd: Any) -> None:
    tree = {"bindings": [odd]}
    made = add_bindings(tree, "work", [parse_match("irc:zz")])
    assert made["bindings"][0] == odd
    assert remove_bindings(made, "work", [parse_match("irc:zz")])[0] == tree


@pytest.mark.parametrize(
    ("match", "text"),
    [
        ({"channel": "telegram"}, "telegram"),
        ({"channel": "slack", "accountId": "*", "teamId": "T1"}, "slack (*), team T1"),
        ({"channel": "x\x1b[0m"}, "x\\u{1b}[0m"),
        (
            {"channel": "a", "accountId": "b", "peer": {"kind": "dm", "id": "1"}, "roles": ["r"]},
            "a (b), direct 1, role r",
        ),
        ({"channel": "a", "guildId": "g"}, "a, guild g"),
    ],
)
def test_describe_match_names_every_part(match: Any, text: str) -> None:
    binding = Config.model_validate({"bindings": [{"agentId": "a", "match": match}]}).bindings[0]
    assert describe_match(binding.match) == text


def test_describe_matches_describes_each_match() -> None:
    assert describe_matches([parse_match("irc:b", peer="group:#x")]) == ("irc (b), group #x",)
