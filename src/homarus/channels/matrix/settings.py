"""The config of one Matrix account, with OpenClaw's keys."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, SecretStr
from pydantic.alias_generators import to_camel

from homarus.config.channels import EVERYONE, ChannelSettings, ProxyAddress, SettingPrompt
from homarus.config.section import Ids, NonEmptyStr, PositiveInt, StrTuple
from homarus.core.errors import ConfigError

TEXT_LIMIT: Final = 4_000
MEDIA_MAX_MB: Final = 20.0
TIMELINE: Final = 30  # events of a room in one response; more are fetched

# Environment variables of the default account.
VARIABLES: Final = {
    "MATRIX_HOMESERVER": "homeserver",
    "MATRIX_USER_ID": "user_id",
    "MATRIX_ACCESS_TOKEN": "access_token",
    "MATRIX_PASSWORD": "password",
}

ThreadReplies: TypeAlias = Literal["off", "inbound", "always"]
ReactionNotifications: TypeAlias = Literal["off", "own", "all"]
EncryptionTrust: TypeAlias = Literal["all", "verified"]

_USER_ID: Final = re.compile(r"@[^:\s]+:\S+")


def _homeserver(url: str) -> str:
    url = url.strip().rstrip("/")
    return url if "://" in url else f"https://{url}"


def _user_id(name: str) -> str:
    if not _USER_ID.fullmatch(name):
        raise ValueError('it must be written as "@name:server"')
    return name


_Homeserver: TypeAlias = Annotated[NonEmptyStr, AfterValidator(_homeserver)]
_UserId: TypeAlias = Annotated[NonEmptyStr, AfterValidator(_user_id)]
_HOMESERVER: Final = SettingPrompt("The homeserver of the bot's account", "https://matrix.org")
_USER: Final = SettingPrompt("The bot's id", "It looks like @name:server.")
_PASSWORD: Final = SettingPrompt("The bot's password")


class MatrixSettings(ChannelSettings):
    """One account: a homeserver, and a token or a user name and password."""

    homeserver: Annotated[_Homeserver | None, _HOMESERVER] = None
    user_id: Annotated[_UserId | None, _USER] = None
    access_token: SecretStr | None = None
    password: Annotated[SecretStr | None, _PASSWORD] = None
    device_id: NonEmptyStr | None = None
    device_name: NonEmptyStr = "Homarus"
    initial_sync_limit: PositiveInt = Field(TIMELINE, le=1_000)
    encryption: bool = False
    encryption_trust: EncryptionTrust = "all"
    thread_replies: ThreadReplies = "inbound"
    reaction_notifications: ReactionNotifications = "off"
    auto_join: Literal["always", "allowlist", "off"] | None = None
    auto_join_allowlist: Ids = ()
    proxy: ProxyAddress | None = Field(None, repr=False)  # it may contain a password
    # Keys of OpenClaw that are accepted and not used.
    capabilities: StrTuple = ()

    def completed(self, channel: str, env: Mapping[str, str]) -> "MatrixSettings":
        """Return the settings completed from the environment.

        The config wins, and a password of the environment is not used with a token. Raises
        ConfigError when the account cannot log in.
        """
        overrides = {
            key: env[name]
            for name, key in VARIABLES.items()
            if env.get(name) and getattr(self, key) is None
        }
        if self.access_token is not None:
            overrides.pop("password", None)
        elif self.password is not None:
            overrides.pop("access_token", None)
        parsed = MatrixSettings.model_validate(
            {to_camel(key): value for key, value in overrides.items()}
        )
        merged = self.model_copy(update={key: getattr(parsed, key) for key in overrides})
        if not merged.homeserver:
            raise ConfigError(
                f"channels.{channel}.homeserver is missing",
                fix='set it to the address of a homeserver, such as "https://matrix.org"',
            )
        if not merged.access_token and not (merged.user_id and merged.password):
            raise ConfigError(
                f"channels.{channel} does not say how to sign in",
                fix="set accessToken, or userId and password",
            )
        return merged

    def joins(self, room: str, alias: str, inviter: str, *, is_direct: bool) -> bool:
        """Return whether an invite is accepted.

        By default: invites to direct rooms, and to rooms that the config lists.
        """
        match self.auto_join:
            case "always":
                return True
            case "off":
                return False
            case "allowlist":
                listed = self.auto_join_allowlist
                return any(one in listed for one in (room, alias or room, inviter, EVERYONE))
        return is_direct or room in self.common.groups or EVERYONE in self.common.groups
