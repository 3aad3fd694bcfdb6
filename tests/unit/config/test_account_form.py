"""The questions that make a new account of a channel."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from homarus.channels import discord, irc, matrix, slack, telegram
from homarus.config.account_form import account_fields
from homarus.config.channels import ChannelSettings


class NeededSettings(ChannelSettings):
    """An account with settings that have no default."""

    app_token: SecretStr
    port: int = Field(description="The port of the server.")
    colour: str = "red"


class SecretSettings(ChannelSettings):
    """An account whose secrets may come from the environment."""

    bot_token: Annotated[SecretStr, AfterValidator(lambda secret: secret)] | None = None
    app_token: SecretStr | None = None
    colour: str = "red"


def test_account_fields_are_settings_without_default() -> None:
    token, port = account_fields(NeededSettings)
    assert (token.key, token.title, token.is_secret) == ("appToken", "App token", True)
    assert (port.key, port.help, port.is_text) == ("port", "The port of the server.", False)
    assert not token.is_optional and not port.is_optional and token.is_text


def test_account_fields_without_needed_settings_are_secrets() -> None:
    fields = account_fields(SecretSettings)
    assert [one.key for one in fields] == ["botToken", "appToken"]
    assert all(one.is_secret and one.is_optional for one in fields)


def test_account_fields_of_our_channels_are_settings_of_theirs() -> None:
    keys = {
        module.LABEL: [one.key for one in account_fields(module.Settings)]
        for module in (telegram, discord, slack, matrix, irc)
    }
    assert keys == {
        "Telegram": ["botToken"],
        "Discord": ["token"],
        "Slack": ["botToken", "appToken", "signingSecret"],
        "Matrix": ["homeserver", "userId", "password"],
        "IRC": ["host", "nick", "password"],
    }


def test_account_fields_are_needed_by_the_value_of_another_setting() -> None:
    bot, app, secret = account_fields(slack.Settings)
    assert bot.is_secret and bot.is_needed({}) and bot.is_needed({"mode": "http"})
    assert app.is_needed({}) and not app.is_needed({"mode": "http"})
    assert secret.is_needed({"mode": "http"}) and not secret.is_needed({})


def test_account_field_answer_is_read_as_in_the_config() -> None:
    token, port = account_fields(NeededSettings)
    assert (token.parse_answer(" 12 "), port.parse_answer("12")) == ("12", 12)
    assert port.parse_answer("{") == "{"  # refused with the config
