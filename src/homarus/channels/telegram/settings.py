"""The config of one bot, and where its token is found."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from homarus.channels.base import SendRetryPolicy
from homarus.config.channels import ChannelFeatures, ChannelSettings, ProxyAddress, SettingPrompt
from homarus.config.section import ConfigSection, PositiveInt
from homarus.core.errors import ConfigError
from homarus.core.native_command import NativeCommand

log = logging.getLogger(__name__)

API_ROOT: Final = "https://api.telegram.org"
TOKEN_VARIABLE: Final = "TELEGRAM_BOT_TOKEN"  # noqa: S105 - a name
WEBHOOK_PATH: Final = "/telegram-webhook"
MAX_TEXT_UNITS: Final = 4_096
DEFAULT_TEXT_UNITS: Final = 4_000
DEFAULT_MEDIA_MB: Final = 50.0
WEBHOOK_HOST, WEBHOOK_PORT = "127.0.0.1", 8787  # of a listener of its own, as OpenClaw's
_HOST: Final = re.compile(r"[0-9A-Za-z.:_-]{1,253}(?:%[0-9A-Za-z.]{1,20})?")
_TOKEN: Final = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_MAX_COMMANDS: Final = 100
_COMMAND: Final = re.compile(r"[a-z0-9_]{1,32}")
_BOT_TOKEN: Final = SettingPrompt(
    "The bot's token", "Write /newbot to @BotFather in Telegram: it gives you one."
)


class CommandLists(ConfigSection):
    """Whether Telegram lists our commands when a user types `/`."""

    native: bool | Literal["auto"] = "auto"
    native_skills: bool | Literal["auto"] = "auto"


class CustomCommand(ConfigSection):
    """An additional line of that list; the agent interprets it."""

    command: str
    description: str


class DraftChunk(ConfigSection):
    """How much a draft must grow before it is updated."""

    min_chars: PositiveInt | None = None
    max_chars: PositiveInt | None = None
    break_preference: Literal["paragraph", "newline", "sentence"] | None = None


class NetworkSettings(ConfigSection):
    """How Telegram's server is reached.

    Unless `auto_select_family` is false, its IPv4 and IPv6 addresses are tried in parallel.
    """

    auto_select_family: bool | None = None


class TelegramSettings(ChannelSettings):
    """One bot."""

    bot_token: Annotated[SecretStr | None, _BOT_TOKEN] = None
    token_file: str | None = None
    api_root: str = API_ROOT
    webhook_url: str | None = None
    webhook_secret: SecretStr | None = None
    webhook_path: str | None = None
    webhook_host: str | None = None
    webhook_port: int | None = Field(None, ge=1, le=65_535)
    capabilities: ChannelFeatures = ChannelFeatures.model_construct()
    commands: CommandLists = CommandLists.model_construct()
    custom_commands: tuple[CustomCommand, ...] = Field((), strict=False)
    draft_chunk: DraftChunk | None = None
    link_preview: bool | None = None
    timeout_seconds: PositiveInt = 30
    network: NetworkSettings = NetworkSettings.model_construct()
    proxy: ProxyAddress | None = Field(None, repr=False)  # it may contain a password
    reaction_level: Literal["off", "ack", "minimal", "extensive"] | None = None
    reaction_notifications: Literal["off", "own", "all"] = "off"

    @field_validator("webhook_host")
    @classmethod
    def _is_host(cls, host: str | None) -> str | None:
        if host is not None and not _HOST.fullmatch(host):
            raise ValueError("an address of this machine is expected, such as 127.0.0.1")
        return host

    @property
    def webhook_address(self) -> tuple[str, int] | None:
        """The address of the webhook's own listener; None: the gateway's port serves it."""
        if not self.webhook_url or not (self.webhook_host or self.webhook_port):
            return None
        return self.webhook_host or WEBHOOK_HOST, self.webhook_port or WEBHOOK_PORT

    @property
    def text_limit(self) -> int:
        return min(self.common.text_chunk_limit or DEFAULT_TEXT_UNITS, MAX_TEXT_UNITS)

    @property
    def media_max_bytes(self) -> int:
        return int((self.common.media_max_mb or DEFAULT_MEDIA_MB) * 1024 * 1024)

    @property
    def retries(self) -> SendRetryPolicy:
        return SendRetryPolicy.from_settings(self.common.retry)

    @property
    def path(self) -> str:
        """The webhook path; "" with long polling."""
        if not self.webhook_url:
            return ""
        path = self.webhook_path or urlsplit(self.webhook_url).path.rstrip("/") or WEBHOOK_PATH
        return path if path.startswith("/") else f"/{path}"

    @property
    def public_url(self) -> str:
        """The webhook URL for Telegram; one without a path gets ours."""
        url = (self.webhook_url or "").rstrip("/")
        return url if urlsplit(url).path else f"{url}{self.path}"


def find_token(settings: TelegramSettings, account: str, env: Mapping[str, str]) -> str:
    """Return the token of the file, else of the config, else of the environment.

    The environment is for the default account only.
    """
    token = settings.bot_token.get_secret_value() if settings.bot_token else ""
    if settings.token_file:
        token = _read_token(Path(settings.token_file).expanduser())
    if not token and account == "default":
        token = env.get(TOKEN_VARIABLE, "")
    token = token.strip()
    if not token:
        raise ConfigError(
            f"there is no token for the Telegram bot {account!r}",
            key="channels.telegram.botToken",
            fix="@BotFather gives one; then `homarus channels add telegram --token TOKEN`",
        )
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            "that is not a token of a bot: it looks like 123456:ABC-DEF…",
            key="channels.telegram.botToken",
            fix="copy it from @BotFather as it is",
        )
    return token


def find_secret(settings: TelegramSettings) -> str:
    """Return the secret of the webhook; "" with long polling."""
    if not settings.webhook_url:
        return ""
    secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret else ""
    if not _SECRET.fullmatch(secret):
        raise ConfigError(
            "a webhook needs a secret of 1 to 256 letters, digits, _ and -",
            key="channels.telegram.webhookSecret",
            fix="set one that nobody can guess, `openssl rand -hex 32` makes one",
        )
    return secret


def listed_commands(
    settings: TelegramSettings,
    ours: tuple[NativeCommand, ...],
    skills: tuple[NativeCommand, ...] = (),
) -> list[dict[str, str]]:
    """Return the commands to list: ours first, then the config's, then those of skills.

    Each name is listed once, and only as many as Telegram allows.
    """
    own = ours if settings.commands.native is not False else ()
    custom = ((each.command, each.description) for each in settings.custom_commands)
    listed, skilled = (((each.name, each.description) for each in some) for some in (own, skills))
    found: dict[str, str] = {}
    for name, description in (*listed, *custom, *skilled):
        command = name.strip().lstrip("/").lower().replace("-", "_")
        shown = " ".join(description.split())[:256]
        if not (_COMMAND.fullmatch(command) and shown):
            log.warning("Telegram cannot list the command %r", name)
        elif command not in found:
            found[command] = shown
    if left_out := [*found][_MAX_COMMANDS:]:
        log.warning(
            "Telegram lists %d commands at most, not these: %s", _MAX_COMMANDS, ", ".join(left_out)
        )
    rows = [{"command": name, "description": shown} for name, shown in found.items()]
    return rows[:_MAX_COMMANDS]


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8")
        open_to_others = file.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            f"the token file {file} cannot be read: {exc}", key="channels.telegram.tokenFile"
        ) from exc
    if open_to_others:
        log.warning("others can read the token in %s: `chmod 600` it", file)
    return token
