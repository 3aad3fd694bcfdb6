"""The settings of a Matrix account: OpenClaw's keys, and errors for invalid ones."""

from typing import Any

import pytest

from homarus.channels.base import ChannelContext
from homarus.channels.matrix import LABEL, create
from homarus.channels.matrix.settings import MatrixSettings
from homarus.channels.registry import available_channels, channel_label, load_channel
from homarus.config.channels import account_settings, common_settings
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import ConfigError

TOKEN = {"homeserver": "https://hs.test", "accessToken": "t"}


def config(section: dict[str, Any]) -> Config:
    return Config.model_validate({"channels": {"matrix": section}})


def settings(**section: Any) -> MatrixSettings:
    return account_settings(config({**TOKEN, **section}), "matrix", "default", MatrixSettings)


def test_matrix_module_is_a_channel() -> None:
    assert "matrix" in available_channels() and channel_label("matrix") == LABEL
    assert load_channel("matrix").Settings is MatrixSettings


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({**TOKEN, "userId": "bot"}, "@name:server"),
        ({**TOKEN, "encryptionTrust": "some"}, "channels.matrix.encryptionTrust"),
        ({**TOKEN, "homesrever": "x"}, "did you mean homeserver?"),
        ({**TOKEN, "threadReplies": "sometimes"}, "channels.matrix.threadReplies"),
        ({**TOKEN, "dm": {"policy": "open", "unheard": 1}}, "channels.matrix.dm"),
        ({**TOKEN, "rooms": 3}, "channels.matrix.rooms"),
    ],
)
def test_matrix_settings_invalid_value_is_named(section: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        account_settings(config(section), "matrix", "default", MatrixSettings)
    assert told in str(caught.value) and "Value error" not in str(caught.value)


def made(env: dict[str, str], account: str = "default", **section: Any) -> MatrixSettings:
    given = account_settings(config(section), "matrix", "default", MatrixSettings)
    place = ChannelContext("matrix", account, SystemClock(), env=env)
    return create(place, given)._settings


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({}, "channels.matrix.homeserver is missing"),
        ({"homeserver": "hs.test"}, "set accessToken, or userId and password"),
        ({"homeserver": "hs.test", "userId": "@a:b"}, "set accessToken, or userId and password"),
        ({"homeserver": "hs.test", "password": "p"}, "set accessToken, or userId and password"),
        ({"homeserver": "hs.test", "accessToken": ""}, "set accessToken, or userId and password"),
    ],
)
def test_matrix_create_without_login_raises_config_error(
    section: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        made({}, **section)
    assert told in str(caught.value)


def test_matrix_settings_are_completed_from_environment() -> None:
    env = {
        "MATRIX_HOMESERVER": "https://env.test/",
        "MATRIX_USER_ID": "@env:test",
        "MATRIX_ACCESS_TOKEN": "env-token",
        "MATRIX_PASSWORD": "env-password",
    }
    whole = made(env)
    assert whole.homeserver == "https://env.test" and whole.user_id == "@env:test"
    assert whole.access_token and whole.access_token.get_secret_value() == "env-token"
    own = made(env, homeserver="https://own.test", userId="@own:test", password="own")
    assert own.homeserver == "https://own.test" and own.access_token is None
    assert own.password and own.password.get_secret_value() == "own"
    with pytest.raises(ConfigError):
        made(env, account="work")  # for the default account only


def test_matrix_settings_hide_secrets() -> None:
    shown = repr(settings(password="hidden-one", accessToken="hidden-two"))
    assert "hidden" not in shown


def test_matrix_homeserver_without_scheme_is_accepted() -> None:
    assert settings(homeserver="hs.test/").homeserver == "https://hs.test"
    assert settings(homeserver="http://hs.test:8008").homeserver == "http://hs.test:8008"


def test_matrix_legacy_keys_have_same_meaning() -> None:
    section = {
        **TOKEN,
        "dm": {"policy": "allowlist", "allowFrom": ["@a:b"]},
        "rooms": {"!r": {"allow": True, "users": ["@c:d"], "autoReply": True}, "!q": {}},
        "groups": {"!q": {"requireMention": False}},
    }
    whole = config(section)
    for found in (
        account_settings(whole, "matrix", "default", MatrixSettings).common,
        common_settings(whole, "matrix", "default"),
    ):
        assert found.dm_policy == "allowlist" and found.allow_from == ("@a:b",)
        room = found.groups["!r"]
        assert room.enabled and room.allow_from == ("@c:d",) and room.require_mention is False
        assert found.groups["!q"].require_mention is False


def test_matrix_new_key_wins_over_legacy_and_off_is_off() -> None:
    both = settings(dmPolicy="pairing", dm={"policy": "open", "allowFrom": ["*"]}).common
    assert both.dm_policy == "pairing" and both.allow_from == ("*",)
    assert settings(dm={"enabled": False, "policy": "pairing"}).common.dm_policy == "disabled"


@pytest.mark.parametrize(
    ("section", "direct", "group"),
    [
        ({"allowlistOnly": True}, "allowlist", "allowlist"),
        ({"allowlistOnly": True, "dmPolicy": "disabled"}, "disabled", "allowlist"),
        ({"allowlistOnly": True, "groupPolicy": "open"}, "allowlist", "allowlist"),
        ({"allowlistOnly": False, "groupPolicy": "open"}, "pairing", "open"),
    ],
)
def test_matrix_allowlist_policy_admits_listed_senders_only(
    section: dict[str, Any], direct: str, group: str
) -> None:
    found = settings(**section).common
    assert (found.dm_policy, found.group_policy) == (direct, group)


def test_matrix_invites_follow_allowlist() -> None:
    listed = settings(autoJoin="allowlist", autoJoinAllowlist=["#kitchen:hs", "@boss:hs"])
    assert listed.joins("!r", "#kitchen:hs", "@eve:hs", is_direct=False)
    assert listed.joins("!r", "", "@boss:hs", is_direct=False)
    assert not listed.joins("!r", "", "@eve:hs", is_direct=True)
    assert not settings(autoJoin="allowlist").joins("!r", "", "", is_direct=True)
    assert settings(autoJoin="allowlist", autoJoinAllowlist=["*"]).joins(
        "!r", "", "", is_direct=False
    )
    usual = settings(groups={"!r": {}})
    assert usual.joins("!r", "", "@eve:hs", is_direct=False)
    assert not usual.joins("!q", "", "@eve:hs", is_direct=False)
    assert usual.joins("!q", "", "@eve:hs", is_direct=True)
