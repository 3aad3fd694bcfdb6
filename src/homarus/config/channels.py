"""The `channels` section of `openclaw.json`: the settings that all channels have in common.

An account has the settings of its channel, overridden by its own. Settings of a single channel
are in its module (`channels/<name>`), as a subclass of `ChannelSettings`. This module is imported
only for configs with channels.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from homarus.config.heartbeat_schema import HeartbeatVisibilityConfig
from homarus.config.known_keys import KeyProblem
from homarus.config.schema import BlockCoalesceConfig, Config
from homarus.config.section import ConfigSection, Ids, NonNegativeInt, PositiveInt, StrTuple
from homarus.config.tools_schema import check_one_list
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import ChatKind
from homarus.core.session_keys import DEFAULT_ACCOUNT, normalize_account_id
from homarus.core.text import closest_names

DEFAULTS: Final = "defaults"  # the key for settings of all channels
EVERYONE: Final = "*"
_MAX_CACHED: Final = 256  # accounts
_LEGACY_KEYS: Final = {"allow": "enabled", "users": "allowFrom"}  # of a group
_MESSAGE_ACTIONS: Final = ("sendMessage", "editMessage", "deleteMessage")

S = TypeVar("S", bound="ChannelSettings")


def _check_proxy(address: str) -> str:
    if address and urlsplit(address).scheme not in {"http", "https"}:
        raise ValueError("only http:// and https:// proxies can be used")
    return address


# The HTTP proxy of an account; "" is none.
ProxyAddress: TypeAlias = Annotated[str, AfterValidator(_check_proxy)]


@dataclass(frozen=True, slots=True)
class SettingPrompt:
    """What a person is asked for a setting.

    It is in the annotation of a setting that an account needs; account_form.py reads it.
    `needed_if` is another setting and its value, without which this one is not asked for.
    """

    title: str
    help: str = ""
    is_optional: bool = False
    needed_if: tuple[str, str] | None = None


class GroupToolSettings(ConfigSection):
    """The tools that may be used in a group, or for one sender in it."""

    allow: StrTuple = ()
    also_allow: StrTuple = ()
    deny: StrTuple = ()

    @model_validator(mode="after")
    def _has_one_list(self) -> Self:
        return check_one_list(self)


class TopicSettings(ConfigSection):
    """One topic of a group; absent values come from the group.

    With `allow_from` or `roles`, a sender must be listed or have one of the roles.
    """

    require_mention: bool | None = None
    group_policy: Literal["open", "disabled", "allowlist"] | None = None
    enabled: bool = True
    allow_from: Ids | None = None
    roles: Ids | None = None
    system_prompt: str | None = None
    skills: StrTuple | None = None


class GroupSettings(TopicSettings):
    """One group, or `*` for groups that are not listed."""

    tools: GroupToolSettings = GroupToolSettings.model_construct()
    tools_by_sender: Mapping[str, GroupToolSettings] = {}
    topics: Mapping[str, TopicSettings] = {}
    allow_bots: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_older(cls, tree: Any) -> Any:
        """Convert OpenClaw's legacy keys `allow`, `users` and `autoReply`."""
        if not isinstance(tree, Mapping):
            return tree
        new = {
            _LEGACY_KEYS.get(key, key): value for key, value in tree.items() if key != "autoReply"
        }
        if isinstance(auto_reply := tree.get("autoReply"), bool):
            new.setdefault("requireMention", not auto_reply)
        if tree.get("allow") is False or tree.get("enabled") is False:
            new["enabled"] = False
        return new


class GuildChannelSettings(GroupSettings):
    """One channel of a guild; absent values come from the guild."""

    auto_thread: bool | None = None
    include_thread_starter: bool | None = None


class GuildSettings(GroupSettings):
    """One guild: a server with channels and roles, or `*` for guilds that are not listed.

    Without `channels`, all of its channels are admitted, else those that are listed.
    """

    slug: str | None = None
    reaction_notifications: Literal["off", "own", "all", "allowlist"] | None = None
    channels: Mapping[str, GuildChannelSettings] = {}


class ReplyToModeSettings(ConfigSection):
    """Which messages of a reply quote the message that they answer, by the kind of chat."""

    direct: Literal["off", "first", "all"] | None = None
    group: Literal["off", "first", "all"] | None = None
    channel: Literal["off", "first", "all"] | None = None


class DmSettings(ConfigSection):
    """The direct chat with one person."""

    history_limit: NonNegativeInt | None = None


class MarkdownSettings(ConfigSection):
    """How to render markup that the service does not support."""

    tables: Literal["off", "bullets", "code"] | None = None


class RetrySettings(ConfigSection):
    """The retries of one request: how many, and with which backoff."""

    attempts: PositiveInt | None = None
    min_delay_ms: NonNegativeInt | None = None
    max_delay_ms: NonNegativeInt | None = None
    jitter: float | None = Field(None, ge=0, le=1)


class ChannelFeatures(ConfigSection):
    """Where buttons are shown; `allowlist` leaves it to who may press them."""

    inline_buttons: Literal["off", "dm", "group", "all", "allowlist"] = "allowlist"

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        has = any(isinstance(word, str) and word.lower() == "inlinebuttons" for word in value)
        return {"inlineButtons": "all" if has else "off"}

    def shows_buttons(self, *, group: bool) -> bool:
        """Return whether messages to a group, or to one person, have buttons."""
        return self.inline_buttons in {"all", "allowlist", "group" if group else "dm"}


class AccountSettings(ConfigSection):
    """One account of a channel: access control, and the format of replies."""

    model_config = ConfigDict(extra="allow")

    enabled: bool = True
    name: str | None = None
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = "pairing"
    allow_from: Ids = ()
    group_policy: Literal["open", "disabled", "allowlist"] | None = None
    group_allow_from: Ids = ()
    require_mention: bool | None = None
    groups: Mapping[str, GroupSettings] = {}
    guilds: Mapping[str, GuildSettings] = {}
    mention_patterns: StrTuple | None = None
    history_limit: NonNegativeInt | None = None
    dm_history_limit: NonNegativeInt | None = None
    dms: Mapping[str, DmSettings] = {}
    text_chunk_limit: PositiveInt | None = None
    chunk_mode: Literal["length", "newline"] = "length"
    markdown: MarkdownSettings = MarkdownSettings.model_construct()
    block_streaming: bool | None = None
    block_streaming_coalesce: BlockCoalesceConfig | None = None
    stream_mode: Literal["off", "partial", "block"] | None = None
    reply_to_mode: Literal["off", "first", "all"] = "off"
    reply_to_mode_by_chat_type: ReplyToModeSettings = ReplyToModeSettings.model_construct()
    allow_bots: bool = False
    media_max_mb: float | None = Field(None, gt=0)
    response_prefix: str | None = None
    ack_reaction: str | None = None
    retry: RetrySettings = RetrySettings.model_construct()
    config_writes: bool = True
    actions: Mapping[str, bool] = {}
    heartbeat: HeartbeatVisibilityConfig = HeartbeatVisibilityConfig.model_construct()

    @model_validator(mode="before")
    @classmethod
    def _from_older(cls, tree: Any) -> Any:
        """Convert OpenClaw's other names of keys, such as `dm`, `rooms` and `allowlistOnly`."""
        return _convert_legacy(tree) if isinstance(tree, Mapping) else tree

    def for_chat(self, kind: ChatKind) -> "AccountSettings":
        """Return the settings with the `replyToMode` of a kind of chat."""
        by_type = self.reply_to_mode_by_chat_type
        own = {"direct": by_type.direct, "group": by_type.group, "channel": by_type.channel}[kind]
        return self.model_copy(update={"reply_to_mode": own}) if own else self


class ChannelSettings(ConfigSection):
    """The settings of an account that only one channel has; `common` are the others.

    They are separate pydantic models, so that the slow one for the common settings is built once.
    """

    _common: AccountSettings = PrivateAttr(default_factory=AccountSettings)

    @property
    def common(self) -> AccountSettings:
        return self._common

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> Self:
        """Validate the merged section of one account. Raises ValidationError."""
        common = AccountSettings.model_validate(tree)
        settings = cls.model_validate(common.model_extra)
        settings._common = common  # noqa: SLF001 - of the same class
        return settings

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the keys that the section may have, as in the config."""
        return (*keys_of(AccountSettings), *keys_of(cls))


def keys_of(section: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys of a section, as in the config."""
    return tuple(field.alias or name for name, field in section.model_fields.items())


def _convert_legacy(tree: Mapping[str, Any]) -> dict[str, Any]:
    new = dict(tree)
    dm, rooms = new.pop("dm", None), new.pop("rooms", None)
    if rooms is None and isinstance(new.get("channels"), Mapping):
        rooms = new.pop("channels")  # Slack's name of them
    if isinstance(new.get("actions"), Mapping) and new["actions"].get("messages") is False:
        new["actions"] = {**dict.fromkeys(_MESSAGE_ACTIONS, False), **new["actions"]}
    if isinstance(dm, Mapping):
        dm = _convert_dm(dm, new)
    groups = new.get("groups", {})
    if isinstance(rooms, Mapping) and isinstance(groups, Mapping):
        new["groups"], rooms = {**rooms, **groups}, None
    if new.get("allowlistOnly") is True:
        for key in ("dmPolicy", "groupPolicy"):
            if new.get(key) != "disabled":
                new[key] = "allowlist"
    if isinstance(new.get("allowlistOnly"), bool):
        del new["allowlistOnly"]
    return new | {key: value for key, value in (("dm", dm), ("rooms", rooms)) if value is not None}


def _convert_dm(dm: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """Move the keys of `dm` that others stand for; return the rest, for the channel's own model."""
    rest = dict(dm)
    for old, key in (("policy", "dmPolicy"), ("allowFrom", "allowFrom")):
        if old in rest:
            new.setdefault(key, rest.pop(old))
    if rest.pop("enabled", True) is False:
        new["dmPolicy"] = "disabled"
    modes = new.get("replyToModeByChatType", {})
    if "replyToMode" in rest and isinstance(modes, Mapping):
        new["replyToModeByChatType"] = {"direct": rest.pop("replyToMode"), **modes}
    return rest or None


def channel_names(config: Config) -> tuple[str, ...]:
    """Return the channels that the config has a section for."""
    return tuple(name for name in config.channels if name != DEFAULTS)


def account_names(config: Config, channel: str) -> tuple[str, ...]:
    """Return the account ids of a channel: those in the config, else the default one."""
    return accounts_in(_section(config, channel))


def accounts_in(section: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the account ids in a channel's section, else the default one."""
    accounts = section.get("accounts")
    if not isinstance(accounts, Mapping) or not accounts:
        return (DEFAULT_ACCOUNT,)
    return tuple(dict.fromkeys(normalize_account_id(name) for name in accounts))


def account_settings(config: Config, channel: str, account: str, kind: type[S]) -> S:
    """Return the settings of one account. Raises ConfigError with the key that is wrong."""
    return read_account(_limited_channels(config, channel), channel, account, kind)


def read_account(channels: Mapping[str, Any], channel: str, account: str, kind: type[S]) -> S:
    """Return the settings of one account in a `channels` tree. Raises ConfigError."""
    try:
        return kind.read(merged_section(channels, channel, account))
    except ValidationError as exc:
        raise _to_config_error(exc, channel, kind.keys()) from None  # it could show a secret


class _AccountSettingsCache:
    """Caches the common settings of each account, which every message needs."""

    _last: tuple[Config | None, Callable[[str, str], AccountSettings] | None] = (None, None)

    def __call__(self, config: Config, channel: str, account: str) -> AccountSettings:
        """Return the common settings of an account; the defaults for an unknown one."""
        cached_config, read = self._last
        if read is None or cached_config is not config:
            read = lru_cache(_MAX_CACHED)(partial(_read, config))
            self._last = (config, read)
        return read(channel, account)


def _read(config: Config, channel: str, account: str) -> AccountSettings:
    try:
        channels = _limited_channels(config, channel)
        return AccountSettings.model_validate(merged_section(channels, channel, account))
    except ValidationError as exc:
        raise _to_config_error(exc, channel, ()) from None


def _limited_channels(config: Config, channel: str) -> Mapping[str, Any]:
    """Return the channels with `agents.defaults.mediaMaxMb` where a channel has no limit."""
    limit_mb, section = config.agents.defaults.media_max_mb, config.channels.get(channel)
    if limit_mb is None or not isinstance(section, Mapping):
        return config.channels
    return {**config.channels, channel: {"mediaMaxMb": limit_mb, **section}}


common_settings: Final = _AccountSettingsCache()


def _to_config_error(exc: ValidationError, channel: str, keys: Iterable[str]) -> ConfigError:
    error = exc.errors(include_url=False)[0]
    key = ".".join(["channels", channel, *(str(step) for step in error["loc"])])
    if error["type"] == "extra_forbidden":
        close = closest_names(str(error["loc"][-1]), keys)
        hint = f"did you mean {' or '.join(close)}?" if close else ""
        return ConfigError(f"{key}: there is no such setting", fix=hint)
    return ConfigError(f"{key}: {error['msg'].removeprefix('Value error, ')}")


def merged_section(channels: Mapping[str, Any], channel: str, account: str) -> dict[str, Any]:
    """Return a channel's section merged with that of one account, not validated."""
    section = channels.get(channel)
    tree = dict(section) if isinstance(section, Mapping) else {}
    accounts, defaults = tree.pop("accounts", None), channels.get(DEFAULTS)
    heartbeats = [tree.get("heartbeat")]
    if isinstance(accounts, Mapping):
        for name, own in accounts.items():
            if normalize_account_id(name) == account and isinstance(own, Mapping):
                tree |= own
                heartbeats.append(own.get("heartbeat"))
    if isinstance(defaults, Mapping):
        if "groupPolicy" in defaults:
            tree.setdefault("groupPolicy", defaults["groupPolicy"])
        heartbeats.insert(0, defaults.get("heartbeat"))
    layers = [each for each in heartbeats if isinstance(each, Mapping)]
    if len(layers) > 1 or (layers and "heartbeat" not in tree):
        tree["heartbeat"] = {key: value for each in layers for key, value in each.items()}
    return tree


def check_channels(channels: Mapping[str, Any]) -> Iterator[KeyProblem]:
    """Yield the problems in the common settings of all channels."""
    for name, section in channels.items():
        if name == DEFAULTS or not isinstance(section, Mapping):
            continue
        accounts = section.get("accounts")
        if isinstance(accounts, Mapping) and accounts:
            for account in accounts:
                tree = merged_section(channels, name, normalize_account_id(account))
                yield from _check(tree, ("channels", name, "accounts", account))
        else:
            yield from _check(merged_section(channels, name, DEFAULT_ACCOUNT), ("channels", name))


def _check(tree: Mapping[str, Any], path: tuple[str | int, ...]) -> Iterator[KeyProblem]:
    try:
        settings = AccountSettings.model_validate(tree)
    except ValidationError as exc:
        for error in exc.errors(include_url=False):
            yield KeyProblem((*path, *error["loc"]), error["msg"])
        return
    if settings.dm_policy == "open" and EVERYONE not in settings.allow_from:
        yield KeyProblem(
            (*path, "dmPolicy"),
            'it is "open", and allowFrom does not say for whom',
            'add "*" to allowFrom to let everybody in, or use "pairing"',
        )


def _section(config: Config, channel: str) -> Mapping[str, Any]:
    section = config.channels.get(channel)
    return section if isinstance(section, Mapping) else {}
