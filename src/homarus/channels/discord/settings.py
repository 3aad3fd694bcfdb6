"""The config of one bot, with OpenClaw's keys, and where its token is found."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, SecretStr

from homarus.channels.base import SendRetryPolicy
from homarus.config.channels import ChannelSettings, ProxyAddress, SettingPrompt
from homarus.config.section import ConfigSection, Ids, NonEmptyStr, PositiveInt, StrTuple
from homarus.core.errors import ConfigError
from homarus.core.session_keys import DEFAULT_ACCOUNT

API_ROOT: Final = "https://discord.com/api/v10"
TOKEN_VARIABLE: Final = "DISCORD_BOT_TOKEN"  # noqa: S105 - a name
TEXT_LIMIT: Final = 2_000
MAX_LINES: Final = 17
MEDIA_MAX_MB: Final = 10.0  # of a file; servers with boosts take more
_TOKEN: Final = re.compile(r"[A-Za-z0-9._-]{20,200}")
_COLOR: Final = re.compile(r"#?[0-9a-fA-F]{6}")
_BOT_TOKEN: Final = SettingPrompt(
    "The bot's token",
    "discord.com/developers/applications → New Application → Bot → Reset Token.",
)
RETRIES: Final = SendRetryPolicy(
    attempts=3, min_delay_s=0.5, max_delay_s=30.0, jitter=0.1, only_rate_limits=True
)


def _color(text: str) -> str:
    if not _COLOR.fullmatch(text):
        raise ValueError('a color is written as "#5865F2"')
    return text


class DiscordSlashCommandSettings(ConfigSection):
    """Whether Discord lists our commands when a user types `/`."""

    native: bool | Literal["auto"] = "auto"
    native_skills: bool | Literal["auto"] = "auto"


class DiscordGroupDmSettings(ConfigSection):
    """Group chats without a server, to which Discord admits no bot."""

    group_enabled: bool = False
    group_channels: Ids = ()


class IntentSettings(ConfigSection):
    """The privileged intents to ask for; they must be enabled in the developer portal as well."""

    presence: bool = False
    guild_members: bool = False


class ExecApprovalSettings(ConfigSection):
    """Who may answer approvals in Discord: only `approvers`, if there are any."""

    enabled: bool = False
    approvers: Ids = ()
    agent_filter: StrTuple = ()
    session_filter: StrTuple = ()
    cleanup_after_resolve: bool = False
    target: Literal["dm", "channel", "both"] = "dm"


class PluralKitSettings(ConfigSection):
    """PluralKit, whose messages are those of a bot here."""

    enabled: bool = False
    token: SecretStr | None = None


class ComponentSettings(ConfigSection):
    """How components look."""

    accent_color: Annotated[str, AfterValidator(_color)] | None = None


class UiSettings(ConfigSection):
    """How messages look."""

    components: ComponentSettings = ComponentSettings.model_construct()


class DiscordSettings(ChannelSettings):
    """One bot."""

    token: Annotated[SecretStr | None, _BOT_TOKEN] = None
    api_root: NonEmptyStr = API_ROOT
    gateway_url: NonEmptyStr | None = None
    proxy: ProxyAddress | None = Field(None, repr=False)  # it may contain a password
    max_lines_per_message: PositiveInt = MAX_LINES
    commands: DiscordSlashCommandSettings = DiscordSlashCommandSettings.model_construct()
    intents: IntentSettings = IntentSettings.model_construct()
    dm: DiscordGroupDmSettings = DiscordGroupDmSettings.model_construct()
    exec_approvals: ExecApprovalSettings = ExecApprovalSettings.model_construct()
    status: Literal["online", "dnd", "idle", "invisible"] | None = None
    activity: NonEmptyStr | None = None
    activity_type: Literal[0, 1, 2, 3, 4, 5] | None = None
    activity_url: NonEmptyStr | None = None
    # Keys of OpenClaw that are accepted and not used.
    capabilities: StrTuple = ()
    pluralkit: PluralKitSettings = PluralKitSettings.model_construct()
    ui: UiSettings = UiSettings.model_construct()

    @property
    def text_limit(self) -> int:
        return min(self.common.text_chunk_limit or TEXT_LIMIT, TEXT_LIMIT)

    @property
    def media_max_bytes(self) -> int:
        return int((self.common.media_max_mb or MEDIA_MAX_MB) * 1024 * 1024)

    @property
    def retries(self) -> SendRetryPolicy:
        return RETRIES.with_settings(self.common.retry)


def find_token(settings: DiscordSettings, account: str, env: Mapping[str, str]) -> str:
    """Return the token of the config, else of the environment, for the default account only."""
    token = settings.token.get_secret_value() if settings.token else ""
    if not token and account == DEFAULT_ACCOUNT:
        token = env.get(TOKEN_VARIABLE, "")
    token = token.strip().removeprefix("Bot ").strip()
    if not token:
        raise ConfigError(
            f"there is no token for the Discord bot {account!r}",
            key="channels.discord.token",
            fix=(
                "create a bot at https://discord.com/developers/applications;"
                " then `homarus channels add discord --token TOKEN`"
            ),
        )
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            "that is not a token of a Discord bot: it has three parts with dots between them",
            key="channels.discord.token",
            fix="copy it from the page Bot of your application (Reset Token)",
        )
    return token
