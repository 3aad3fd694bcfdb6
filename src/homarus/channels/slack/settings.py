"""The config of one Slack account, with OpenClaw's keys, and where its tokens are found."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from homarus.channels.base import SendRetryPolicy
from homarus.channels.slack.traits import TRAITS
from homarus.config.channels import EVERYONE, ChannelSettings, SettingPrompt
from homarus.config.section import ConfigSection, Ids, NonEmptyStr, NonNegativeInt, StrTuple
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass

API_ROOT: Final = "https://slack.com/api"
WEBHOOK_PATH: Final = "/slack/events"
MAX_TEXT_UNITS: Final = 4_000  # the limit of an edit
DEFAULT_MEDIA_MB: Final = 20.0
SLASH_COMMAND: Final = "openclaw"
INITIAL_HISTORY: Final = 20
_TOKEN: Final = re.compile(r"[A-Za-z0-9._%-]{4,500}")
_COMMAND: Final = re.compile(r"[a-z0-9_-]{1,32}")
# Setting, variable of the default account, what it starts with, and where Slack shows it.
_TOKENS: Final = {
    "botToken": ("SLACK_BOT_TOKEN", "xoxb-", "OAuth & Permissions, Bot User OAuth Token"),
    "appToken": ("SLACK_APP_TOKEN", "xapp-", "Basic Information, App-Level Tokens"),
    "userToken": ("SLACK_USER_TOKEN", "xoxp-", "OAuth & Permissions, User OAuth Token"),
}


_BOT_TOKEN: Final = SettingPrompt(
    "The bot token, xoxb-…",
    "api.slack.com/apps, your app: OAuth & Permissions, Bot User OAuth Token.",
)
_APP_TOKEN: Final = SettingPrompt(
    "The app token, xapp-…",
    "Basic Information, App-Level Tokens: generate one with connections:write.",
    needed_if=("mode", "socket"),
)
_SIGNING_SECRET: Final = SettingPrompt(
    "The signing secret",
    "Basic Information, Signing Secret.",
    needed_if=("mode", "http"),
)


def _api_root(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("an address is expected, such as https://slack.com/api")
    return url.rstrip("/")


def _path(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _command(name: str) -> str:
    name = name.strip().lstrip("/").lower()
    if not _COMMAND.fullmatch(name):
        raise ValueError("a command has 1 to 32 letters, digits, _ and -")
    return name


class NativeCommands(ConfigSection):
    """Whether slash commands besides the main one are answered, such as `/status`."""

    native: bool | Literal["auto"] = "auto"
    native_skills: bool | Literal["auto"] = "auto"


class ThreadSettings(ConfigSection):
    """What a thread knows of its conversation.

    `initial_history_limit` is how many earlier messages of a thread the agent gets when it is first
    addressed there.
    """

    history_scope: Literal["thread", "channel"] = "thread"
    inherit_parent: bool = False
    initial_history_limit: NonNegativeInt = INITIAL_HISTORY


class SlackSlashCommandSettings(ConfigSection):
    """The main slash command. With `ephemeral`, its answer comes as a direct message."""

    enabled: bool = True
    name: Annotated[str, AfterValidator(_command)] = SLASH_COMMAND
    session_prefix: str | None = None
    ephemeral: bool = True


class SlackGroupDmSettings(ConfigSection):
    """Whether the bot takes part in group chats; with `group_channels`, in these alone."""

    group_enabled: bool = False
    group_channels: Ids = ()


class SlackSettings(ChannelSettings):
    """One bot in one workspace."""

    mode: Literal["socket", "http"] = "socket"
    bot_token: Annotated[SecretStr | None, _BOT_TOKEN] = None
    app_token: Annotated[SecretStr | None, _APP_TOKEN] = None
    user_token: SecretStr | None = None
    user_token_read_only: bool = True
    signing_secret: Annotated[SecretStr | None, _SIGNING_SECRET] = None
    webhook_path: Annotated[NonEmptyStr, AfterValidator(_path)] = WEBHOOK_PATH
    api_root: Annotated[str, AfterValidator(_api_root)] = API_ROOT
    commands: NativeCommands = NativeCommands.model_construct()
    thread: ThreadSettings = ThreadSettings.model_construct()
    slash_command: SlackSlashCommandSettings = SlackSlashCommandSettings.model_construct()
    dm: SlackGroupDmSettings = SlackGroupDmSettings.model_construct()
    reaction_notifications: Literal["off", "own", "all", "allowlist"] = "own"
    reaction_allowlist: Ids = ()
    # Keys of OpenClaw that are accepted and not used.
    capabilities: StrTuple = ()
    streaming: bool | None = None

    @property
    def text_limit(self) -> int:
        return min(self.common.text_chunk_limit or MAX_TEXT_UNITS, MAX_TEXT_UNITS)

    @property
    def media_max_bytes(self) -> int:
        return int((self.common.media_max_mb or DEFAULT_MEDIA_MB) * 1024 * 1024)

    @property
    def retries(self) -> SendRetryPolicy:
        return SendRetryPolicy.from_settings(self.common.retry)

    @property
    def path(self) -> str:
        """The webhook path; "" in socket mode."""
        return self.webhook_path if self.mode == "http" else ""

    def allows_group_chat(self, chat: str) -> bool:
        """Return whether the bot takes part in a group chat of several people."""
        listed = self.dm.group_channels
        return self.dm.group_enabled and (not listed or EVERYONE in listed or chat in listed)


@dataclass(frozen=True, slots=True)
class SlackTokens:
    """The secrets of an account; "" for one that it does not have."""

    bot: str
    app: str = ""
    user: str = ""
    signing: str = ""


def find_tokens(settings: SlackSettings, account: str, env: Mapping[str, str]) -> SlackTokens:
    """Return the secrets of the config, else of the environment.

    The environment is for the default account only. Raises ConfigError without those that its
    mode needs.
    """
    given = {
        "botToken": settings.bot_token,
        "appToken": settings.app_token,
        "userToken": settings.user_token,
    }
    found = {
        key: _find_token(key, secret, env if account == "default" else {})
        for key, secret in given.items()
    }
    signing = settings.signing_secret.get_secret_value().strip() if settings.signing_secret else ""
    needed = ("botToken", "appToken") if settings.mode == "socket" else ("botToken",)
    for key in needed:
        if not found[key]:
            raise ConfigError(
                f"there is no {key} for the Slack account {account!r}",
                key=f"channels.slack.{key}",
                fix=f"copy it from api.slack.com/apps: {_TOKENS[key][2]}",
            )
    if settings.mode == "http" and not signing:
        raise ConfigError(
            f"mode http needs the signing secret of the Slack account {account!r}",
            key="channels.slack.signingSecret",
            fix="copy it from api.slack.com/apps: Basic Information, Signing Secret",
        )
    return SlackTokens(found["botToken"], found["appToken"], found["userToken"], signing)


def _find_token(key: str, secret: SecretStr | None, env: Mapping[str, str]) -> str:
    variable, start, place = _TOKENS[key]
    token = (secret.get_secret_value() if secret else env.get(variable, "")).strip()
    is_token = token.startswith((start, "xoxe.")) and _TOKEN.fullmatch(token)  # xoxe: it rotates
    if token and not is_token:
        raise ConfigError(
            f"that is not a {key} of Slack: it starts with {start}",
            key=f"channels.slack.{key}",
            fix=f"copy it from api.slack.com/apps: {place}",
        )
    return token


def named_groups(settings: SlackSettings) -> tuple[str, ...]:
    """Return the channels that the config names by their names, not by their ids."""
    names = (name for name in settings.common.groups if name != EVERYONE)
    return tuple(
        name for name in names if not TRAITS.normalize_id(name.strip().removeprefix("slack:"))
    )
