"""Which sessions a caller, a hook or a node may name."""

import pytest

from homarus.core.errors import InvalidRequest
from homarus.core.keys import peer_key, store_key
from homarus.gateway import hooks
from homarus.gateway.bounds import Bounds
from homarus.gateway.nodes import COMMANDS, allowed_commands, kind_of


def is_let_in(bounds: Bounds, key: str) -> bool:
    try:
        bounds.check(store_key(key))
    except InvalidRequest:
        return False
    return True


def test_unbound_caller_may_name_every_session() -> None:
    assert is_let_in(Bounds(), "agent:other:main")
    assert is_let_in(Bounds(), "global")


def test_bound_to_agent_refuses_other_agents() -> None:
    """Row 58: a key of another agent."""
    assert is_let_in(Bounds(agent="main"), "agent:main:main")
    assert is_let_in(Bounds(agent="main"), "global")
    assert not is_let_in(Bounds(agent="main"), "agent:other:main")


def test_bound_to_person_refuses_other_sessions() -> None:
    bob = Bounds(peer="bob")
    assert is_let_in(bob, "agent:main:dm:bob")
    assert is_let_in(bob, peer_key("main", "telegram", "direct", "bob", scope="per-channel-peer"))
    for key in ("agent:main:dm:alice", "agent:main:main", "agent:main:x:group:bob", "global"):
        assert not is_let_in(bob, key)
    assert not is_let_in(bob, "agent:main:dm:alice:direct:bobby")
    named = peer_key("main", "telegram", "direct", "Bob", scope="per-channel-peer")
    assert not is_let_in(bob, named), "another id than bob's"
    assert is_let_in(Bounds(peer="Bob"), named)


def test_hook_without_key_gets_own_session() -> None:
    first, second = (hooks.session_key(hooks.KeyRules(), "request") for _ in range(2))
    assert first.startswith("hook:") and first != second
    assert hooks.session_key(hooks.KeyRules(default="hook:all"), "request", " ") == "hook:all"


@pytest.mark.parametrize("key", ["agent:main:main", "ｈook\u200b:x", "a\0b", "x" * 600])
def test_hook_with_forbidden_key_is_refused(key: str) -> None:
    rules = hooks.KeyRules(allow_request=True, prefixes=("hook:",))
    with pytest.raises(Exception, match=r"sessionKey|session key"):
        hooks.session_key(rules, "request", key)


def test_hook_agent_must_be_allowed() -> None:
    assert hooks.is_agent_allowed(None, "any", ["any"], "main")
    assert hooks.is_agent_allowed(["*"], "any", ["any"], "main")
    assert not hooks.is_agent_allowed(["a"], "b", ["a", "b"], "main")


@pytest.mark.parametrize("payload", [{}, {"text": 1}, {"text": ["x"]}, {"text": "\n"}])
def test_wake_without_text_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="text required"):
        hooks.read_wake(payload)
    assert hooks.read_wake({"text": " x ", "mode": "soon"}) == hooks.Wake("x", "now")


def test_node_sensitive_commands_need_explicit_allow() -> None:
    for kind in COMMANDS:
        allowed = allowed_commands(kind)
        assert not allowed & {"camera.snap", "screen.record", "sms.send", "contacts.add"}
    named = allowed_commands("ios", allow=["camera.snap", " "], deny=["camera.list"])
    assert "camera.snap" in named and "camera.list" not in named and "" not in named


@pytest.mark.parametrize(
    ("platform", "family", "kind"),
    [
        ("iOS 17", "", "ios"),
        ("", "iPhone", "ios"),
        ("Darwin", "", "macos"),
        ("win32", "", "windows"),
        ("Linux 6", "", "linux"),
        ("", "", "unknown"),
        ("plan9", "Mac", "macos"),
    ],
)
def test_device_kind_is_derived_from_platform(platform: str, family: str, kind: str) -> None:
    assert kind_of(platform, family) == kind
