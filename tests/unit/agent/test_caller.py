"""Who makes the tool calls of a run: senders, authority, and settings for commands."""

from typing import Any

import pytest

from homarus.agent.caller import resolve_command_caller
from homarus.agent.prompt.chat_context import ChatContext, make_caller
from homarus.channels.registry import find_traits
from homarus.config.schema import Config
from homarus.core.message import Address, Inbound, InboundMetadata, RunOptions
from homarus.policy.tool_call import CallerFacts

MAIN = "agent:main:main"
CONFIG = Config.model_validate(
    {
        "channels": {"telegram": {"botToken": "1:x"}},
        "tools": {"elevated": {"allowFrom": {"telegram": ["7"]}}, "exec": {"ask": "on-miss"}},
    }
)


def message(sender: str = "7", channel: str = "telegram", **fields: Any) -> Inbound:
    return Inbound("1", Address(channel, sender), sender, "hi", **fields)


@pytest.mark.parametrize(
    ("inbounds", "is_owner"),
    [
        ([message(authority="owner")], True),
        ([message(authority="authorised")], False),
        ([message(authority="stranger")], False),
        ([message()], False),  # a channel's message without authority
        ([message(authority="owner"), message("8", authority="authorised")], False),
        ([message(channel="cli")], True),
        ([message(channel="webchat", authority="authorised")], False),  # a client without admin
        ([message(channel="wake", metadata=InboundMetadata(forwarded="eve"))], False),
        ([message(channel="agent", metadata=InboundMetadata(is_limited=True))], False),
        ([message(channel="hook")], False),  # a webhook's text, also with a valid token
        ([message(authority="owner"), message(channel="hook")], False),
        ([], True),
    ],
)
def test_caller_is_owner_when_every_message_is(inbounds: list[Inbound], is_owner: bool) -> None:
    assert make_caller(CONFIG, MAIN, inbounds).is_owner == is_owner


def test_caller_of_several_senders_has_no_sender() -> None:
    one, two = message(authority="owner"), message("8", authority="owner")
    found = make_caller(CONFIG, "agent:work:subagent:1", [one, two])
    assert (found.agent_id, found.sender, found.channel, found.depth) == (
        "work", "", "telegram", 1,
    )  # fmt: skip
    assert make_caller(CONFIG, MAIN, [one, one]).sender == "7"


def test_caller_joined_by_other_sender_is_not_owner() -> None:
    owner = ChatContext(caller=make_caller(CONFIG, MAIN, [message(authority="owner")]))
    guest = ChatContext(caller=make_caller(CONFIG, MAIN, [message("8", authority="authorised")]))
    joined = owner.with_model("mock", "m").join(guest).caller
    assert not joined.is_owner and joined.sender == ""
    assert (joined.channel, joined.provider) == ("telegram", "mock")
    assert owner.join(owner).caller == owner.caller


def test_caller_of_command_has_settings_of_session_and_message() -> None:
    caller = make_caller(CONFIG, MAIN, [message(authority="owner")])
    entry = {"execSecurity": "full", "elevatedLevel": "on"}

    def resolve(caller: CallerFacts, *files: Any, **options: Any) -> CallerFacts:
        return resolve_command_caller(
            caller, CONFIG, files, entry, RunOptions(**options), find_traits
        )

    found = resolve(caller)
    assert (found.exec.security, found.elevated, found.is_elevated_allowed) == ("full", "on", True)
    assert resolve(caller, exec_ask="always").exec.ask == "always"
    assert resolve(caller, {"defaults": {"security": "deny"}}).exec.security == "deny"
    guest = make_caller(CONFIG, MAIN, [message("8", authority="authorised")])
    found = resolve(guest)
    assert (found.exec.security, found.elevated) == ("allowlist", "off")


def test_caller_of_command_has_sandbox_that_config_wants_meanwhile() -> None:
    caller = make_caller(CONFIG, MAIN, [message(authority="owner")])
    changed = Config.model_validate({"agents": {"defaults": {"sandbox": {"mode": "all"}}}})
    now = resolve_command_caller(caller, changed, (), {}, RunOptions(), find_traits)
    assert not caller.is_sandboxed and now.is_sandboxed
    later = resolve_command_caller(now, CONFIG, (), {}, RunOptions(), find_traits)
    assert later.is_sandboxed  # only a new run leaves the sandbox
