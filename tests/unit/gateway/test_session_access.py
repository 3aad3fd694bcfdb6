"""Which sessions a caller, a hook or a node may name."""

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.core.session_keys import canonical_key, peer_key
from homarus.gateway import hook_requests
from homarus.gateway.nodes import COMMANDS, allowed_commands, device_kind
from homarus.gateway.session_access import SessionAccess


def is_let_in(bounds: SessionAccess, key: str) -> bool:
    try:
        bounds.check(canonical_key(key))
    except InvalidRequestError:
        return False
    return True


def test_unbound_caller_may_name_every_session() -> None:
    assert is_let_in(SessionAccess(), "agent:other:main")
    assert is_let_in(SessionAccess(), "global")


def test_bound_to_agent_refuses_other_agents() -> None:
    """Row 58: a key of another agent."""
    assert is_let_in(SessionAccess(agent="main"), "agent:main:main")
    assert is_let_in(SessionAccess(agent="main"), "global")
    assert not is_let_in(SessionAccess(agent="main"), "agent:other:main")


def test_bound_to_person_refuses_other_sessions() -> None:
    bob = SessionAccess(peer="bob")
    assert is_let_in(bob, "agent:main:dm:bob")
    assert is_let_in(bob, peer_key("main", "telegram", "direct", "bob", scope="per-channel-peer"))
    for key in ("agent:main:dm:alice", "agent:main:main", "agent:main:x:group:bob", "global"):
        assert not is_let_in(bob, key)
    assert not is_let_in(bob, "agent:main:dm:alice:direct:bobby")
    named = peer_key("main", "telegram", "direct", "Bob", scope="per-channel-peer")
    assert not is_let_in(bob, named), "another id than bob's"
    assert is_let_in(SessionAccess(peer="Bob"), named)


def test_hook_without_key_gets_own_session() -> None:
    first, second = (
        hook_requests.hook_session_key(hook_requests.HookKeyRules(), "request") for _ in range(2)
    )
    assert first.startswith("hook:") and first != second
    assert (
        hook_requests.hook_session_key(
            hook_requests.HookKeyRules(default="hook:all"), "request", " "
        )
        == "hook:all"
    )


@pytest.mark.parametrize("key", ["agent:main:main", "ｈook\u200b:x", "a\0b", "x" * 600])
def test_hook_with_forbidden_key_is_refused(key: str) -> None:
    rules = hook_requests.HookKeyRules(allow_request=True, prefixes=("hook:",))
    with pytest.raises(Exception, match=r"sessionKey|session key"):
        hook_requests.hook_session_key(rules, "request", key)


def test_hook_agent_must_be_allowed() -> None:
    assert hook_requests.is_agent_allowed(None, "any", ["any"], "main")
    assert hook_requests.is_agent_allowed(["*"], "any", ["any"], "main")
    assert not hook_requests.is_agent_allowed(["a"], "b", ["a", "b"], "main")


@pytest.mark.parametrize("payload", [{}, {"text": 1}, {"text": ["x"]}, {"text": "\n"}])
def test_wake_without_text_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="text required"):
        hook_requests.parse_wake(payload)
    assert hook_requests.parse_wake({"text": " x ", "mode": "soon"}) == hook_requests.WakeRequest(
        "x", "now"
    )


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
    assert device_kind(platform, family) == kind
