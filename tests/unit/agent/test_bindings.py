"""Bindings in the config: added once, taken away whole, the rest of the file stays."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent import bindings
from homarus.agent.bindings import in_words, read_bindings, read_match, read_peer
from homarus.channels.roster import find_traits
from homarus.config.schema import Config
from homarus.core.errors import UserError

bind = partial(bindings.bind, find_traits=find_traits)
unbind = partial(bindings.unbind, find_traits=find_traits)


def test_what_a_person_types_becomes_a_binding() -> None:
    match = read_match(
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
    assert read_match("irc:*") == {"channel": "irc", "accountId": "*"}
    assert read_match("irc", peer="group")["peer"] == {"kind": "group", "id": "*"}
    Config.model_validate({"bindings": [{"agentId": "a", "match": match}]})


@pytest.mark.parametrize("text", ["", " ", ":work"])
def test_a_binding_without_a_channel_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="names no channel"):
        read_match(text)


@pytest.mark.parametrize("text", ["-100", "room:1", ":1", "Group:1", "\x1b[0m"])
def test_a_chat_without_a_kind_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="names no chat") as caught:
        read_peer(text)
    assert "direct, group, channel, dm" in caught.value.fix
    assert str(caught.value).isprintable()


def test_what_is_bound_stands_at_the_end_and_nothing_else_changes() -> None:
    old = {"agentId": "home", "match": {"channel": "irc"}, "comment": "mine"}
    tree: dict[str, Any] = {"gateway": {"port": 1}, "bindings": [old]}
    new = bind(tree, "work", [read_match("slack"), read_match("irc:b")])
    assert new["gateway"] == {"port": 1} and new["bindings"][0] is old
    assert [bound.agent for bound in read_bindings(new)] == ["home", "work", "work"]
    assert tree["bindings"] == [old]
    assert bind({}, "work", [read_match("irc")])["bindings"] == [
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
def test_the_same_is_bound_once(one: str, two: str) -> None:
    first, second = (
        read_match(text, peer=peer) for text, _, peer in (t.partition("|") for t in (one, two))
    )
    tree = bind({}, "home", [first])
    with pytest.raises(UserError, match='bound to agent "home" already') as caught:
        bind(tree, "work", [second])
    assert "unbind --agent home" in caught.value.fix
    with pytest.raises(UserError, match="bound to it already"):
        bind(tree, "home", [second])
    with pytest.raises(UserError, match="bound to it already"):
        bind({}, "home", [first, second])


def test_what_differs_in_one_thing_is_another_binding() -> None:
    matches = [
        read_match("irc"),
        read_match("irc:*"),
        read_match("irc", peer="group:1"),
        read_match("irc", peer="channel:1"),
        read_match("irc", peer="group"),
        read_match("irc", guild="g"),
        read_match("irc", team="g"),
        read_match("irc", roles=("g",)),
        read_match("matrix", peer="group:!A:hs"),
        read_match("matrix", peer="group:!a:hs"),
    ]
    assert len(bind({}, "home", matches)["bindings"]) == len(matches)


def test_a_binding_is_taken_away_and_others_stay() -> None:
    tree: dict[str, Any] = {
        "bindings": [
            {"agentId": "home", "match": {"channel": "irc"}},
            {"agentId": "Work", "match": {"channel": "irc", "accountId": "b"}},
            "odd",
            {"agentId": "work", "match": {"channel": "slack"}},
        ]
    }
    left, gone = unbind(tree, "work", [read_match("irc:B")])
    assert gone == ("irc (b)",)
    assert left["bindings"] == [tree["bindings"][at] for at in (0, 2, 3)]
    left, gone = unbind(tree, "work", None)
    assert left["bindings"] == [tree["bindings"][0], "odd"] and len(gone) == 2
    assert unbind({"a": 1}, "work", None) == ({"a": 1}, ())


def test_what_is_not_bound_cannot_be_taken_away() -> None:
    tree = bind({}, "home", [read_match("irc"), read_match("slack")])
    with pytest.raises(UserError, match='matrix is not bound to "home"') as caught:
        unbind(tree, "home", [read_match("irc"), read_match("matrix")])
    assert caught.value.fix == "irc; slack"
    with pytest.raises(UserError, match='irc is not bound to "work"'):
        unbind(tree, "work", [read_match("irc")])


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
def test_whatever_stands_in_the_list_stays_there(odd: Any) -> None:
    tree = {"bindings": [odd]}
    made = bind(tree, "work", [read_match("irc:zz")])
    assert made["bindings"][0] == odd
    assert unbind(made, "work", [read_match("irc:zz")])[0] == tree


def test_bindings_are_told_in_words() -> None:
    assert in_words([read_match("irc:b", peer="group:#x")]) == ("irc (b), group #x",)
