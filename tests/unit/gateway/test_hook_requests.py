"""The fields of hook requests, and which sessions they may name."""

import pytest

from homarus.core.errors import HomarusError, InvalidRequestError
from homarus.gateway.hook_requests import (
    AgentRequest,
    HookKeyRules,
    check_key_owner,
    has_prefix,
    hook_session_key,
    parse_agent_request,
)


def test_agent_request_has_openclaws_defaults() -> None:
    assert parse_agent_request({"message": " hi "}) == AgentRequest("hi")
    full = parse_agent_request(
        {
            "message": "m", "name": "a\nb", "agentId": "ops", "wakeMode": "next-heartbeat",
            "sessionKey": "hook:1", "deliver": False, "channel": "Telegram", "to": 42,
            "model": "x/y", "thinking": "low", "timeoutSeconds": 90,
        }
    )  # fmt: skip
    assert full == AgentRequest(
        "m", "a b", "ops", "hook:1", "next-heartbeat", delivers=False, channel="telegram", to="42",
        model="x/y", thinking="low", timeout_s=90.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "message required"),
        ({"message": "  "}, "message required"),
        ({"message": ["x"]}, "message required"),
        ({"message": "m", "name": {}}, "name must be text"),
        ({"message": "m", "to": True}, "to must be text"),
        ({"message": "m", "sessionKey": "x" * 501}, "sessionKey is longer"),
        ({"message": "m", "deliver": "no"}, "deliver must be"),
        ({"message": "m", "timeoutSeconds": 0}, "above 0"),
        ({"message": "m", "timeoutSeconds": -1}, "above 0"),
        ({"message": "m", "timeoutSeconds": float("inf")}, "above 0"),
        ({"message": "m", "timeoutSeconds": "9"}, "must be a number"),
        ({"message": "m", "timeoutSeconds": True}, "must be a number"),
    ],
)
def test_agent_request_with_a_wrong_field_is_refused(fields: dict[str, object], error: str) -> None:
    with pytest.raises(InvalidRequestError, match=error):
        parse_agent_request(fields)


@pytest.mark.parametrize(
    "key",
    [
        "agent:ops:main", "AGENT:ops:main", "ａgent:ops:main", "agent:other:hook:1", "agent:",
        "agent:main", "agent:main:subagent:1", "subagent:1", "agent:main:cron:daily", "cron:daily",
        "acp:1", "agent:main:acp:1",
    ],
)  # fmt: skip
def test_key_of_another_agent_or_worker_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_key_owner(key, "main")


@pytest.mark.parametrize("key", ["hook:1", "agent:main:hook:1", "main", "agent:main:main"])
def test_key_of_the_own_agent_is_allowed(key: str) -> None:
    check_key_owner(key, "main")


@pytest.mark.parametrize("key", ["hook:\u202eabc", "hook:\n1", "hook:" + "x" * 600])
def test_misleading_key_is_refused(key: str) -> None:
    with pytest.raises(HomarusError):
        hook_session_key(HookKeyRules(), "mapping", key)


def test_prefix_is_compared_in_plain_letters() -> None:
    assert has_prefix("ＨＯＯＫ:x", ["hook:"]) and not has_prefix("agent:main:main", ["hook:"])
