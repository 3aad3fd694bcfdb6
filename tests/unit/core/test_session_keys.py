"""Session keys: building, parsing and refusing them."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.registry import find_traits
from homarus.core import session_keys
from homarus.core.errors import UserError
from homarus.policy import access

IDS = st.from_regex(re.compile(r"[a-z0-9][a-z0-9_-]{0,20}", re.ASCII), fullmatch=True)
PEERS = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=40)
SCOPES: tuple[session_keys.DmScope, ...] = (
    "per-peer",
    "per-channel-peer",
    "per-account-channel-peer",
)


def peer_id(channel: str, text: str) -> str:
    return session_keys.peer_id(text, find_traits(channel))


@given(st.text(max_size=200))
def test_normalize_agent_id_is_idempotent(text: str) -> None:
    once = session_keys.normalize_agent_id(text)
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", once)
    assert session_keys.normalize_agent_id(once) == once


@given(IDS, IDS, st.sampled_from(["group", "channel"]), PEERS)
def test_peer_key_of_group_names_agent_and_is_canonical(
    agent: str, channel: str, kind: session_keys.PeerKind, peer: str
) -> None:
    key = session_keys.peer_key(agent, channel, kind, peer)
    parsed = session_keys.parse_agent_key(key)
    assert parsed and parsed.agent == agent
    assert parsed.rest.startswith(f"{channel}:{kind}:") or peer.startswith(":")
    assert session_keys.canonical_key(key) == key
    assert session_keys.canonical_key(key.upper()) == key


@given(IDS, IDS, st.sampled_from(SCOPES), PEERS)
def test_peer_key_of_direct_chat_survives_key_without_agent(
    agent: str, channel: str, scope: session_keys.DmScope, peer: str
) -> None:
    key = session_keys.peer_key(agent, channel, "direct", peer, scope=scope)
    assert session_keys.canonical_key(key) == key
    parsed = session_keys.parse_agent_key(key)
    if parsed and parsed.key == key:
        asked = session_keys.key_without_agent(key)
        assert session_keys.canonical_key(asked, agent) == key


@given(IDS, st.from_regex(r"[a-z0-9.]{1,20}", fullmatch=True))
def test_thread_parent_of_thread_key_is_base(channel: str, thread: str) -> None:
    base = session_keys.peer_key("main", channel, "channel", "c1")
    assert session_keys.thread_parent(session_keys.thread_key(base, thread)) == base
    assert session_keys.thread_key(base, thread, own_chat=True) == base
    assert session_keys.thread_key(base, "  ") == base
    assert session_keys.thread_parent(session_keys.thread_key(base, thread, mark="topic")) == base


def test_peer_key_linked_person_has_one_key_everywhere() -> None:
    links = {"Alice": ["telegram:111", "Discord:222"]}
    found = {
        session_keys.peer_key(
            "main", channel, "direct", peer, scope="per-peer", identity_links=links
        )
        for channel, peer in [("telegram", "111"), ("discord", "222")]
    }
    assert found == {"agent:main:direct:alice"}
    other = session_keys.peer_key(
        "main", "telegram", "direct", "222", scope="per-peer", identity_links=links
    )
    assert other == "agent:main:direct:222"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("agent:main:telegram:dm:42", "agent:main:telegram:direct:42"),
        ("telegram:dm:42", "agent:main:telegram:direct:42"),
        ("agent:main:telegram:work:dm:42", "agent:main:telegram:work:direct:42"),
        ("agent:main:slack:channel:dm:thread:1", "agent:main:slack:channel:dm:thread:1"),
        ("agent:main:dm", "agent:main:dm"),
        ("agent:main:subagent:dm:x", "agent:main:subagent:dm:x"),
        ("telegram:default:42", "agent:main:telegram:default:direct:42"),
        ("notes:default:42", "agent:main:notes:default:42"),
        ("telegram:group:-100", "agent:main:telegram:group:-100"),
        ("agent:main:main::research", "agent:research:subagent:main:main"),
        ("main::research", "agent:research:subagent:main:main"),
        ("main::research::ops", "agent:ops:subagent:research:subagent:main:main"),
        ("agent:main:irc:direct:fe80::1", "agent:main:irc:direct:fe80::1"),
        (" MAIN ", "agent:main:main"),
        (None, "agent:main:main"),
        ("Global", "global"),
    ],
)
def test_canonical_key_legacy_forms_are_converted(old: str | None, new: str) -> None:
    found = session_keys.canonical_key(old, channels=["telegram"], agents=["research", "ops"])
    assert found == new
    assert session_keys.canonical_key(new) == new


def test_canonical_key_legacy_subagent_keeps_depth() -> None:
    key = session_keys.canonical_key("main::research::ops", agents=["research", "ops"])
    assert session_keys.is_subagent(key)
    assert session_keys.subagent_depth(key) == 2


def test_subagent_depth_of_key_without_agent_is_counted() -> None:
    assert session_keys.is_subagent("subagent:1")
    assert session_keys.subagent_depth("subagent:1") == 1


@pytest.mark.parametrize(
    "key", ["agent:main", "agent::x", ":", "agent:main:", "agent:../../etc:main", "agent:a b:x"]
)
def test_canonical_key_without_agent_id_is_refused(key: str) -> None:
    with pytest.raises(UserError, match="names no conversation"):
        session_keys.canonical_key(key)


@pytest.mark.parametrize(
    "key",
    ["a\0b", "a\nb", "a\x1b[31m", "a\u202eb", "a\ud800b", "a\u2028b", "", "   ", "x" * 513],
)
def test_check_key_untrusted_text_is_refused(key: str) -> None:
    with pytest.raises(UserError) as caught:
        session_keys.check_key(key)
    assert caught.value.fix
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_check_key_ten_megabytes_are_refused_fast() -> None:
    started = time.process_time()
    for make in (
        session_keys.check_key,
        session_keys.canonical_key,
        lambda key: session_keys.thread_key("x", key),
    ):
        with pytest.raises(UserError, match="characters"):
            make("a" * 10_000_000)
    assert time.process_time() - started < 1


def test_peer_key_has_no_control_characters() -> None:
    found = {
        session_keys.peer_key("main", "irc", "group", odd)
        for odd in ("x\0y", "x\u202ey", "xy", "x")
    }
    assert len(found) == 4 and all(key.isprintable() for key in found)
    assert session_keys.peer_key("main", "irc", "group", "\0" * 999).isprintable()


@given(st.text(max_size=60))
def test_canonical_key_any_text_is_well_formed_or_refused(text: str) -> None:
    try:
        key = session_keys.canonical_key(text, channels=["telegram"], agents=["a"])
    except UserError:
        return
    assert key in session_keys.LITERAL_KEYS or session_keys.key_form(key) == "agent"
    assert session_keys.canonical_key(key) == key


@given(st.text(max_size=60))
def test_key_queries_any_text_raise_nothing(text: str) -> None:
    session_keys.thread_parent(text)
    session_keys.subagent_depth(text)
    session_keys.agent_of_model(text)
    assert session_keys.is_cron(text) or not session_keys.is_cron_run(text)
    assert (session_keys.key_form(text) == "agent") == (
        session_keys.parse_agent_key(text) is not None
    )
    assert not (session_keys.is_acp(text) and session_keys.is_subagent(text))


ODD_IDS = st.text(st.sampled_from("aA1:~ \u00e9\u0301threadtopic"), min_size=1, max_size=20)


@given(st.sampled_from(["telegram", "slack", "line", "matrix"]), ODD_IDS, ODD_IDS)
def test_peer_id_different_ids_have_different_keys(channel: str, a: str, b: str) -> None:
    if a.strip() and b.strip():
        assert (peer_id(channel, a) == peer_id(channel, b)) == (a == b)


@given(st.sampled_from(["telegram", "slack", "line", "irc"]), ODD_IDS)
def test_peer_id_is_lower_case_and_contains_no_thread(channel: str, text: str) -> None:
    found = peer_id(channel, text)
    assert found == found.lower()
    key = session_keys.peer_key("main", channel, "group", text, traits=find_traits(channel))
    assert session_keys.thread_parent(key) is None
    assert session_keys.canonical_key(key) == key or not text.strip()


@pytest.mark.parametrize(
    ("channel", "text", "stored"),
    [
        ("telegram", "42", "42"),
        ("telegram", "alice", "alice"),
        ("telegram", "Alice", "alice~3bc51062973c458d"),
        ("slack", "U0ABC", "u0abc"),
        ("line", "Uabc", "uabc"),
        ("irc", "Bob", "bob"),
        ("signal", "+15 55", "+1555"),
        ("signal", "+1 (555) 123-45", "+155512345"),
        ("whatsapp", "120363@G.US", "120363@g.us"),
        ("matrix", "!room:server", "!room:server"),
        ("discord", "1:thread:2", "1_thread_2~65143d8d241fc9bb"),
    ],
)
def test_peer_id_follows_case_rules_of_service(channel: str, text: str, stored: str) -> None:
    assert peer_id(channel, text) == stored


SPELLINGS = st.one_of(
    st.text("Aa1+-() ", min_size=1, max_size=12).map(str.strip),
    st.from_regex(r"[@!][a-cA-C]{1,3}:[a-cA-C]{1,3}", fullmatch=True),
)
SERVICES = ("telegram", "matrix", "irc", "slack", "signal", "whatsapp", "imessage", "bluebubbles")


@given(st.sampled_from((*SERVICES, "nostr", "sms", "line")), SPELLINGS, SPELLINGS)
def test_peer_id_and_allowlist_agree_which_ids_are_equal(channel: str, a: str, b: str) -> None:
    listed = [access.normalize_sender_id(channel, text, find_traits) for text in (a, b)]
    if all(listed):  # what is no id on a service, such as a name on Telegram, is on no list
        assert (listed[0] == listed[1]) == (peer_id(channel, a) == peer_id(channel, b))


@pytest.mark.parametrize(
    ("channel", "a", "b"),
    [
        ("whatsapp", "120363@G.US", "120363@g.us"),
        ("imessage", "+1 (555) 123-45", "+155512345"),
        ("bluebubbles", "+1 555 12345", "+155512345"),
        ("nostr", "NPUB1X", "npub1x"),
        ("signal", "155512345", "+155512345"),
        ("matrix", "@Ann:Example.ORG", "@Ann:example.org"),
    ],
)
def test_peer_id_spellings_of_one_id_share_key_and_allowlist_entry(
    channel: str, a: str, b: str
) -> None:
    assert peer_id(channel, a) == peer_id(channel, b)
    assert access.is_named(channel, a, [b], find_traits)


def test_cron_key_of_runs_are_distinct() -> None:
    assert session_keys.cron_key("main", "j1") == "agent:main:cron:j1"
    run = session_keys.cron_key("main", "j1", "r1")
    assert run == "agent:main:cron:j1:run:r1"
    assert session_keys.is_cron_run(run)
    assert session_keys.cron_key("main", "j1:run:r1") != run
    assert session_keys.cron_key("main", "J1") != session_keys.cron_key("main", "j1")


@pytest.mark.parametrize("key", ["hook:x", "HOOK:x", "agent:main:hook:x", "ＨＯＯＫ：ｘ"])
def test_is_hook_detects_every_spelling(key: str) -> None:
    assert session_keys.is_hook(key)
    assert not session_keys.is_hook("agent:main:main")


def test_agent_id_of_other_text_is_default_agent() -> None:
    assert session_keys.agent_id_of("agent:ops:main") == "ops"
    assert (
        session_keys.agent_id_of("global")
        == session_keys.agent_id_of(None)
        == session_keys.DEFAULT_AGENT
    )


def test_key_tells_channel_and_chat_type() -> None:
    assert session_keys.channel_of("agent:main:telegram:group:1") == "telegram"
    assert session_keys.channel_of("agent:main:telegram:work:direct:1") == "telegram"
    assert (
        session_keys.channel_of("agent:main:main")
        == session_keys.channel_of("agent:main:direct:1")
        == ""
    )
    assert session_keys.chat_type_of("AGENT:main:telegram:Group:1") == "group"
    assert session_keys.chat_type_of("agent:main:slack:channel:c1:thread:2") == "channel"
    assert (
        session_keys.chat_type_of("agent:main:main")
        == session_keys.chat_type_of("unknown")
        == "direct"
    )


def test_discord_peer_id_is_lower_case_without_a_suffix() -> None:
    assert peer_id("discord", "C1") == "c1"


def test_agent_of_model_without_a_model_is_none() -> None:
    assert session_keys.agent_of_model(None) is None
