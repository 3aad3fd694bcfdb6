"""The config of a Slack account."""

import sys
from collections.abc import Mapping

import pytest

from homarus.channels import slack as module
from homarus.channels.access_control import AccessControl, AccessGranted, MessageIgnored
from homarus.channels.base import ChannelContext
from homarus.channels.slack.settings import SlackSettings, find_tokens
from homarus.config.channels import AccountSettings, account_settings
from homarus.config.check import check_config
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import ConfigError, MissingExtraError
from homarus.core.message import Address, Inbound, InboundMetadata, Json
from homarus.sessions.routing import resolve_routes
from homarus.testing.clock import FakeClock
from tests.unit.channels.slack_stage import SECRET

TOKENS: dict[str, Json] = {"botToken": "xoxb-1", "appToken": "xapp-1"}
ENV = {"SLACK_BOT_TOKEN": "xoxb-e", "SLACK_APP_TOKEN": "xapp-e", "SLACK_USER_TOKEN": "xoxp-e"}


def read(**said: Json) -> SlackSettings:
    return SlackSettings.read(said)


def create(account: str = "default", env: Mapping[str, str] | None = None, **said: Json) -> object:
    return module.create(
        ChannelContext("slack", account, SystemClock(), env=env or {}), read(**said)
    )


def test_slack_tokens_of_config_win_over_environment() -> None:
    tokens = find_tokens(read(**TOKENS), "default", ENV)
    assert (tokens.bot, tokens.app, tokens.user) == ("xoxb-1", "xapp-1", "xoxp-e")


@pytest.mark.parametrize(
    ("said", "account", "env", "key"),
    [
        ({}, "default", {}, "botToken"),
        ({}, "work", ENV, "botToken"),  # the environment is for the default account
        ({"botToken": "xoxb-1"}, "default", {}, "appToken"),
        ({**TOKENS, "botToken": "xapp-1"}, "default", {}, "botToken"),
        ({**TOKENS, "appToken": "xoxb-1"}, "default", {}, "appToken"),
        ({**TOKENS, "userToken": "xoxb-1"}, "default", {}, "userToken"),
        ({"botToken": "xoxb-1\r\nX: y"}, "default", {}, "botToken"),
        ({"botToken": "xoxb-1", "mode": "http"}, "default", {}, "signingSecret"),
    ],
    ids=str,
)
def test_slack_account_that_cannot_start_names_its_setting(
    said: dict[str, Json], account: str, env: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        module.create(ChannelContext("slack", account, SystemClock(), env=env), read(**said))
    assert caught.value.fix and key in str(caught.value.key)
    assert not any(token in str(caught.value) for token in ("xoxb-1", "xapp-1", "xoxp-e"))


def test_slack_http_mode_needs_no_app_token() -> None:
    assert create(botToken="xoxb-1", mode="http", signingSecret=SECRET)
    assert create(botToken="xoxe.xoxb-1-rotating", appToken="xapp-1")


def test_slack_without_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="slack"):
        create(**TOKENS)


def test_slack_library_is_not_imported_before_it_connects() -> None:
    import subprocess

    code = (
        "import sys; from homarus.channels.slack import Settings, create;"
        "from homarus.channels.base import ChannelContext;"
        "from homarus.core.clock import SystemClock;"
        "create(ChannelContext('slack', 'default', SystemClock()),"
        f"Settings.read({TOKENS!r}));"
        "assert not {'slack_sdk', 'aiohttp'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("webhook_path", "path"), [(None, "/slack/events"), ("/my/path", "/my/path"), ("x", "/x")]
)
def test_slack_webhook_path_is_for_http_mode(webhook_path: str | None, path: str) -> None:
    own = {"webhookPath": webhook_path} if webhook_path else {}
    assert read(mode="http", **own).path == path
    assert read(mode="socket", **own).path == ""


def test_slack_text_limit_is_at_most_that_of_an_edit() -> None:
    assert read().text_limit == read(textChunkLimit=9_000).text_limit == 4_000
    assert read(textChunkLimit=100).text_limit == 100


def test_slack_every_account_has_its_own_settings() -> None:
    section = {"botToken": "xoxb-1", "accounts": {"a": {}, "b": {"botToken": "xoxb-2"}}}
    config = Config.model_validate({"channels": {"slack": section}})
    found = [account_settings(config, "slack", name, SlackSettings) for name in ("a", "b")]
    tokens = [one.bot_token.get_secret_value() for one in found if one.bot_token]
    assert tokens == ["xoxb-1", "xoxb-2"]


def test_slack_unknown_key_is_refused_with_the_closest() -> None:
    config = Config.model_validate({"channels": {"slack": {"botTokn": "x"}}})
    with pytest.raises(ConfigError, match="botTokn") as caught:
        account_settings(config, "slack", "default", SlackSettings)
    assert "botToken" in caught.value.fix


# What OpenClaw calls differently


def test_slack_channels_are_groups_with_older_names() -> None:
    rules = {"allow": True, "users": ["U1"], "requireMention": False, "allowBots": True}
    (group,) = read(channels={"C1": rules}).common.groups.values()
    assert (group.enabled, group.allow_from, group.require_mention) == (True, ("U1",), False)
    assert group.allow_bots is True
    for either in ({"allow": False, "enabled": True}, {"enabled": False, "allow": True}):
        (group,) = read(channels={"C1": either}).common.groups.values()
        assert not group.enabled


def test_slack_dm_section_is_converted() -> None:
    said = {"policy": "allowlist", "allowFrom": ["U1"], "replyToMode": "all", "groupEnabled": True}
    settings = read(dm=said)
    assert (settings.common.dm_policy, settings.common.allow_from) == ("allowlist", ("U1",))
    assert settings.dm.group_enabled and settings.common.for_chat("direct").reply_to_mode == "all"
    assert read(dm={"enabled": False}).common.dm_policy == "disabled"


def test_slack_reply_mode_is_that_of_the_kind_of_chat() -> None:
    modes = {"direct": "off", "channel": "first"}
    common = read(replyToMode="all", replyToModeByChatType=modes).common
    found = [common.for_chat(kind).reply_to_mode for kind in ("direct", "group", "channel")]
    assert found == ["off", "all", "first"]


def test_actions_messages_off_forbids_each_of_its_actions() -> None:
    off = AccountSettings.model_validate({"actions": {"messages": False}}).actions
    names = ("messages", "sendMessage", "editMessage", "deleteMessage")
    assert [off.get(name) for name in names] == [False] * 4
    own = {"actions": {"messages": False, "sendMessage": True}}
    assert AccountSettings.model_validate(own).actions["sendMessage"] is True
    assert AccountSettings.model_validate({"actions": {"messages": True}}).actions == {
        "messages": True
    }


def test_slack_keys_without_effect_are_named_when_set() -> None:
    section = {
        **TOKENS,
        "streaming": True,
        "thread": {"historyScope": "thread"},
        "capabilities": [],
    }
    checked = check_config({"channels": {"slack": section}})
    assert checked.problems == ()
    assert checked.unbuilt == ("channels.slack.capabilities", "channels.slack.streaming")


# Access


def decide(tmp_path: object, section: Mapping[str, Json], **metadata: Json) -> object:
    """Return the decision about a message of U1 in the channel C1."""
    from pathlib import Path

    config = Config.model_validate({"channels": {"slack": section}})
    access = AccessControl(
        lambda: config,
        Path(str(tmp_path)),
        FakeClock(),
        find_entry=lambda _key: {},
        is_command=lambda _text: False,
    )
    about = InboundMetadata(**{"kind": "channel", "team": "T1", **metadata})
    inbound = Inbound("C1:1.5", Address("slack", "C1"), "U1", "hello", metadata=about)
    (route,) = resolve_routes(config, inbound, module.TRAITS)
    return access.check(inbound, route)


@pytest.mark.parametrize(
    ("section", "metadata", "is_granted"),
    [
        ({"channels": {"C1": {}}}, {"mentioned": True}, True),
        ({"channels": {"C1": {}}}, {}, False),
        ({"channels": {"C1": {}}, "requireMention": False}, {}, True),
        ({"channels": {"C1": {"requireMention": True}}, "requireMention": False}, {}, False),
        ({"channels": {"C1": {"allow": False}}}, {"mentioned": True}, False),
        ({"channels": {"C2": {}}}, {"mentioned": True}, False),
        ({"channels": {"C1": {"users": ["U2"]}}}, {"mentioned": True}, False),
        ({"channels": {"C1": {"users": ["U1"]}}}, {"mentioned": True}, True),
        ({"channels": {"C1": {}}}, {"mentioned": True, "is_bot": True}, False),
        ({"channels": {"C1": {"allowBots": True}}}, {"mentioned": True, "is_bot": True}, True),
        (
            {"channels": {"C1": {"allowBots": False}}, "allowBots": True},
            {"mentioned": True, "is_bot": True},
            False,
        ),
        (
            {"channels": {"C1": {}, "*": {"allowBots": True}}},
            {"mentioned": True, "is_bot": True},
            True,
        ),
        ({"channels": {"C1": {}}, "groupPolicy": "disabled"}, {"mentioned": True}, False),
    ],
    ids=str,
)
def test_slack_channel_rules_decide_who_is_answered(
    tmp_path: object, section: dict[str, Json], metadata: dict[str, Json], is_granted: bool
) -> None:
    decision = decide(tmp_path, section, **metadata)
    assert isinstance(decision, AccessGranted if is_granted else MessageIgnored)


def test_slack_bindings_match_the_workspace() -> None:
    binding = {"agentId": "sea", "match": {"channel": "slack", "teamId": "T1"}}
    config = Config.model_validate(
        {
            "agents": {"list": [{"id": "main", "default": True}, {"id": "sea"}]},
            "bindings": [binding],
        }
    )
    for team, agent in (("T1", "sea"), ("T2", "main")):
        about = InboundMetadata("channel", team=team)
        inbound = Inbound("C1:1.5", Address("slack", "C1", thread="1.2"), "U1", "x", metadata=about)
        (route,) = resolve_routes(config, inbound, module.TRAITS)
        assert (route.agent, route.key) == (agent, f"agent:{agent}:slack:channel:c1:thread:1.2")
