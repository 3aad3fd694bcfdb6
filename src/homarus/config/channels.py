"""The `channels` of `openclaw.json`: what every channel has in common, as typed values.

Each account of a channel has the channel's settings, with its own on top. What one channel has
alone is in its module (`channels/<name>`), as a class that extends `ChannelSettings`. Read when
there are channels: who has none pays nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from homarus.config.keys import Problem
from homarus.config.schema import BlockCoalesce, Config, Count, Ids, Section, Texts, Wait
from homarus.core.errors import ConfigError
from homarus.core.keys import DEFAULT_ACCOUNT, normalize_account_id
from homarus.core.text import nearest

DEFAULTS: Final = "defaults"  # beside the channels stands what goes for all of them
EVERYONE: Final = "*"
_MAX_KEPT: Final = 256  # accounts
_OLDER: Final = {"allow": "enabled", "users": "allowFrom"}  # of a group

S = TypeVar("S", bound="ChannelSettings")


class GroupTools(Section):
    """Which tools may be used for a group, or for one of its people."""

    allow: Texts = ()
    also_allow: Texts = ()
    deny: Texts = ()


class TopicSettings(Section):
    """One topic of a group; what is absent comes from the group."""

    require_mention: bool | None = None
    group_policy: Literal["open", "disabled", "allowlist"] | None = None
    enabled: bool = True
    allow_from: Ids | None = None
    system_prompt: str | None = None
    skills: Texts | None = None


class GroupSettings(TopicSettings):
    """One group, or `*` for those that are not listed."""

    tools: GroupTools = GroupTools.model_construct()
    tools_by_sender: Mapping[str, GroupTools] = {}
    topics: Mapping[str, TopicSettings] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_older(cls, tree: Any) -> Any:
        """Older words of the original for the same: `allow`, `users`, `autoReply`."""
        if not isinstance(tree, Mapping):
            return tree
        new = {_OLDER.get(key, key): value for key, value in tree.items() if key != "autoReply"}
        if isinstance(answers_all := tree.get("autoReply"), bool):
            new.setdefault("requireMention", not answers_all)
        return new


class DmSettings(Section):
    """One person."""

    history_limit: Wait | None = None


class Markdown(Section):
    """How markup is shown that the service has none for."""

    tables: Literal["off", "bullets", "code"] | None = None


class RetrySettings(Section):
    """How often one request is tried again, and how soon."""

    attempts: Count | None = None
    min_delay_ms: Wait | None = None
    max_delay_ms: Wait | None = None
    jitter: float | None = Field(None, ge=0, le=1)


class AccountSettings(Section):
    """One account of a channel: who is heard, and how answers look. Names are never ids."""

    model_config = ConfigDict(extra="allow")

    enabled: bool = True
    name: str | None = None
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = "pairing"
    allow_from: Ids = ()
    group_policy: Literal["open", "disabled", "allowlist"] | None = None
    group_allow_from: Ids = ()
    groups: Mapping[str, GroupSettings] = {}
    mention_patterns: Texts | None = None
    history_limit: Wait | None = None
    dm_history_limit: Wait | None = None
    dms: Mapping[str, DmSettings] = {}
    text_chunk_limit: Count | None = None
    chunk_mode: Literal["length", "newline"] = "length"
    markdown: Markdown = Markdown.model_construct()
    block_streaming: bool | None = None
    block_streaming_coalesce: BlockCoalesce | None = None
    stream_mode: Literal["off", "partial", "block"] | None = None
    reply_to_mode: Literal["off", "first", "all"] = "off"
    allow_bots: bool = False
    media_max_mb: float | None = Field(None, gt=0)
    response_prefix: str | None = None
    ack_reaction: str | None = None
    retry: RetrySettings = RetrySettings.model_construct()
    actions: Mapping[str, bool] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_older(cls, tree: Any) -> Any:
        """Older words of the original for the same: a section `dm`, `rooms`, `allowlistOnly`."""
        return _modern(tree) if isinstance(tree, Mapping) else tree


class ChannelSettings(Section):
    """What one channel has alone of an account's settings; what all have is `common`.

    Two models, because one is slow to build: that of what all have is built once for all.
    """

    _common: AccountSettings = PrivateAttr(default_factory=AccountSettings)

    @property
    def common(self) -> AccountSettings:
        return self._common

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> Self:
        """A section as one account has it; ValidationError when something in it is wrong."""
        common = AccountSettings.model_validate(tree)
        settings = cls.model_validate(common.model_extra)
        settings._common = common  # noqa: SLF001 - of this very class
        return settings

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """What the section may say, as the config writes it."""
        return (*keys_of(AccountSettings), *keys_of(cls))


def keys_of(section: type[BaseModel]) -> tuple[str, ...]:
    """The keys of a section, as the config writes them."""
    return tuple(field.alias or name for name, field in section.model_fields.items())


def _modern(tree: Mapping[str, Any]) -> dict[str, Any]:
    new = dict(tree)
    dm, rooms = new.pop("dm", None), new.pop("rooms", None)
    if isinstance(dm, Mapping):
        left = dict(dm)
        for old, key in (("policy", "dmPolicy"), ("allowFrom", "allowFrom")):
            if old in left:
                new.setdefault(key, left.pop(old))
        if left.pop("enabled", True) is False:
            new["dmPolicy"] = "disabled"
        dm = left or None  # what is not known is the channel's to refuse
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


def channel_names(config: Config) -> tuple[str, ...]:
    """The channels the config has a section for."""
    return tuple(name for name in config.channels if name != DEFAULTS)


def account_names(config: Config, channel: str) -> tuple[str, ...]:
    """The accounts of a channel: those it names, else the usual one."""
    return accounts_in(_section(config, channel))


def accounts_in(section: Mapping[str, Any]) -> tuple[str, ...]:
    """The accounts that a channel's section names, else the usual one."""
    accounts = section.get("accounts")
    if not isinstance(accounts, Mapping) or not accounts:
        return (DEFAULT_ACCOUNT,)
    return tuple(dict.fromkeys(normalize_account_id(name) for name in accounts))


def account_settings(config: Config, channel: str, account: str, kind: type[S]) -> S:
    """The settings of one account; ConfigError names the key that is wrong."""
    return read_account(config.channels, channel, account, kind)


def read_account(channels: Mapping[str, Any], channel: str, account: str, kind: type[S]) -> S:
    """The settings of one account of these sections, which need not be in a config yet."""
    try:
        return kind.read(merged(channels, channel, account))
    except ValidationError as exc:
        raise _refused(exc, channel, kind.keys()) from None  # it would show what was given


class _Reading:
    """Reads the accounts of a config, each once: they are asked for at every message."""

    _last: tuple[Config | None, Callable[[str, str], AccountSettings] | None] = (None, None)

    def __call__(self, config: Config, channel: str, account: str) -> AccountSettings:
        """What is set for an account that every channel has; the defaults for one nobody named."""
        of, read = self._last
        if read is None or of is not config:
            read = lru_cache(_MAX_KEPT)(partial(_read, config))
            self._last = (config, read)
        return read(channel, account)


def _read(config: Config, channel: str, account: str) -> AccountSettings:
    try:
        return AccountSettings.model_validate(merged(config.channels, channel, account))
    except ValidationError as exc:
        raise _refused(exc, channel, ()) from None


common: Final = _Reading()


def _refused(exc: ValidationError, channel: str, keys: Iterable[str]) -> ConfigError:
    error = exc.errors(include_url=False)[0]
    where = ".".join(["channels", channel, *(str(step) for step in error["loc"])])
    if error["type"] == "extra_forbidden":
        close = nearest(str(error["loc"][-1]), keys)
        hint = f"did you mean {' or '.join(close)}?" if close else ""
        return ConfigError(f"{where}: there is no such setting", fix=hint)
    return ConfigError(f"{where}: {error['msg'].removeprefix('Value error, ')}")


def merged(channels: Mapping[str, Any], channel: str, account: str) -> dict[str, Any]:
    """A channel's section as one account has it, as written."""
    section = channels.get(channel)
    tree = dict(section) if isinstance(section, Mapping) else {}
    accounts = tree.pop("accounts", None)
    if isinstance(accounts, Mapping):
        for name, own in accounts.items():
            if normalize_account_id(name) == account and isinstance(own, Mapping):
                tree |= own
    defaults = channels.get(DEFAULTS)
    if isinstance(defaults, Mapping) and "groupPolicy" in defaults:
        tree.setdefault("groupPolicy", defaults["groupPolicy"])
    return tree


def check_channels(channels: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with sections, whatever their channel is."""
    for name, section in channels.items():
        if name == DEFAULTS or not isinstance(section, Mapping):
            continue
        accounts = section.get("accounts")
        if isinstance(accounts, Mapping) and accounts:
            for account in accounts:
                tree = merged(channels, name, normalize_account_id(account))
                yield from _check(tree, ("channels", name, "accounts", account))
        else:
            yield from _check(merged(channels, name, DEFAULT_ACCOUNT), ("channels", name))


def _check(tree: Mapping[str, Any], path: tuple[str | int, ...]) -> Iterator[Problem]:
    try:
        settings = AccountSettings.model_validate(tree)
    except ValidationError as exc:
        for error in exc.errors(include_url=False):
            yield Problem((*path, *error["loc"]), error["msg"])
        return
    if settings.dm_policy == "open" and EVERYONE not in settings.allow_from:
        yield Problem(
            (*path, "dmPolicy"),
            'it is "open", and allowFrom does not say for whom',
            'add "*" to allowFrom to let everybody in, or use "pairing"',
        )


def _section(config: Config, channel: str) -> Mapping[str, Any]:
    section = config.channels.get(channel)
    return section if isinstance(section, Mapping) else {}
