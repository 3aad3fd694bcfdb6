"""Every accepted key has an effect, or is in the table of those without one."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from pydantic import BaseModel

import homarus
from homarus.channels.discord.settings import DiscordSettings
from homarus.channels.irc.settings import IrcSettings
from homarus.channels.matrix.settings import MatrixSettings
from homarus.channels.registry import available_channels
from homarus.channels.slack.settings import SlackSettings
from homarus.channels.telegram.settings import TelegramSettings
from homarus.config.channels import AccountSettings
from homarus.config.check import check_config
from homarus.config.ignored_settings import (
    OBEYED_VALUES,
    UNREAD_KEYS,
    find_unread_keys,
    reason_without_effect,
)
from homarus.config.known_keys import KnownKey, lookup
from homarus.config.memory import MemoryConfig, MemorySearchConfig
from homarus.config.schema import Config
from tests.unit.config.field_reads import SourceIndex

SOURCE = Path(homarus.__file__).parent
CHANNELS: Final[dict[str, type[BaseModel]]] = {
    "telegram": TelegramSettings,
    "irc": IrcSettings,
    "matrix": MatrixSettings,
    "discord": DiscordSettings,
    "slack": SlackSettings,
}
# The sections of the config, by where they stand.
ROOTS: Final[dict[str, type[BaseModel]]] = {
    "": Config,
    "memory": MemoryConfig,
    "agents.defaults.memorySearch": MemorySearchConfig,
    "agents.list[].memorySearch": MemorySearchConfig,
    "channels.<key>": AccountSettings,
    **{f"channels.{name}": settings for name, settings in CHANNELS.items()},
}
# Fields that code reads by the name of the key, in this module.
READ_BY_NAME: Final = {
    "AccountSettings.block_streaming": "agent/reply/settings.py",
    "AccountSettings.block_streaming_coalesce": "agent/reply/block_settings.py",
    "AccountSettings.dm_history_limit": "agent/context/render.py",
    "AccountSettings.dms": "agent/context/render.py",
    "AccountSettings.enabled": "channels/controller.py",
    "AccountSettings.name": "channels/controller.py",
    "AccountSettings.response_prefix": "agent/reply/settings.py",
    "CompatConfig": "providers/compat.py",
    "DmSettings.history_limit": "agent/context/render.py",
    "EnvConfig.vars": "config/variables.py",
    "IdentityConfig.avatar": "agent/prompt/identity_file.py",
    "MetaConfig.last_touched_at": "config/write.py",
    "MetaConfig.last_touched_version": "config/legacy_keys.py",
    "OAuthClientConfig.authorize_url": "cli/models_auth.py",
    "OAuthClientConfig.device_url": "cli/models_auth.py",
    "OAuthClientConfig.redirect_url": "cli/models_auth.py",
    "ShellEnvConfig.timeout_ms": "config/shell_env.py",
}
# Fields that are no settings, that a validator decides on, or that are read all at once.
NOT_READ_ALONE: Final = {
    "ContainerConfig.cap_drop": "every sandbox drops all capabilities, and a container these too",
    "Config.schema_": "for editors",
    "Config.meta": "a record of the last write; its fields are read by name",
    "Config.wizard": "a record of OpenClaw's setup",
    "DiscordSettings.dm": "its own keys are listed, the others are those of the account",
    "GroupToolSettings.also_allow": "it restricts nothing; next to `allow` it is an error",
    "IndexStoreConfig.driver": "it has one value",
    "QueueByChannelConfig": "sessions/queue_policy.py reads it as a mapping by channel",
}


# Older keys that become others (config/channels.py).
CONVERTED: Final = (".dm.enabled", ".dm.policy", ".dm.allowFrom", ".users", ".allow")


@pytest.fixture(scope="module")
def index() -> Iterator[SourceIndex]:
    gc.disable()  # syntax trees have no cycles, and collecting them takes most of the time
    try:
        files = sorted(SOURCE.rglob("*.py"))
        yield SourceIndex(file for file in files if "testing" not in file.parts)
    finally:
        gc.enable()


def fields(section: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel], str]]:
    """Yield path, section and name of every field of a section and of those below it."""
    for name, info in section.model_fields.items():
        key = f"{path}.{info.alias or name}".removeprefix(".")
        yield key, section, name
        for below, suffix in sections_in(info.annotation, ""):
            yield from fields(below, key + suffix)


def sections_in(annotation: Any, suffix: str) -> Iterator[tuple[type[BaseModel], str]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, suffix
    origin = getattr(annotation, "__origin__", None)
    below = "[]" if origin is tuple else ".<key>" if "Mapping" in str(origin) else ""
    for each in get_args(annotation):
        yield from sections_in(each, suffix + below)


def all_fields() -> list[tuple[str, type[BaseModel], str]]:
    return [found for path, section in ROOTS.items() for found in fields(section, path)]


def is_listed(path: str) -> bool:
    steps = [path[:at] for at, char in enumerate(path) if char in ".["]
    return any(each in UNREAD_KEYS for each in (*steps, path))


def is_named(index: SourceIndex, section: type[BaseModel], name: str) -> bool:
    """Whether a module reads the field by its name or its key."""
    owner = index.owner(section.__name__, name)
    file = READ_BY_NAME.get(f"{owner}.{name}") or READ_BY_NAME.get(owner)
    key = section.model_fields[name].alias or name
    text = (SOURCE / file).read_text() if file else ""
    return f'"{key}"' in text or f'"{name}"' in text


def test_every_field_of_the_config_is_read_or_listed(index: SourceIndex) -> None:
    assert set(CHANNELS) == set(available_channels())
    unread = {
        f"{index.owner(section.__name__, name)}.{name} ({path})"
        for path, section, name in all_fields()
        if (index.owner(section.__name__, name), name) not in index.reads
        and not is_listed(path)
        and not is_named(index, section, name)
        and not NOT_READ_ALONE.keys()
        & {
            section.__name__,
            f"{index.owner(section.__name__, name)}.{name}",
        }
    }
    assert unread == set()


def test_listed_fields_exist_and_are_read_nowhere(index: SourceIndex) -> None:
    known = {path: (section, name) for path, section, name in all_fields()}
    free = {path for path in UNREAD_KEYS if path not in known}
    assert all(".actions." in path for path in free)  # entries of a mapping
    read = [
        path
        for path in UNREAD_KEYS.keys() - free
        for section, name in [known[path]]
        if (index.owner(section.__name__, name), name) in index.reads
        or is_named(index, section, name)
    ]
    assert read == []


def test_field_reads_finds_what_is_known_to_be_read(index: SourceIndex) -> None:
    for read in (
        ("LoggingConfig", "console_level"),
        ("MessagesConfig", "suppress_tool_errors"),
        ("NetworkSettings", "auto_select_family"),
        ("AccountSettings", "config_writes"),
        ("GatewayConfig", "bind"),
    ):
        assert read in index.reads
    assert ("DraftChunk", "max_chars") not in index.reads


def leaves(known: KnownKey) -> Iterator[str]:
    if not known.children:
        yield known.path
    for each in known.children.values():
        yield from leaves(each)


@pytest.mark.parametrize("channel", ["telegram", "irc", "discord", "slack"])
def test_every_key_of_openclaw_in_a_channel_has_a_field(channel: str) -> None:
    known = lookup(("channels", channel))
    assert known
    prefix = f"channels.{channel}"
    own = {path for path, _, _ in fields(CHANNELS[channel], prefix)}
    own |= {path for path, _, _ in fields(AccountSettings, prefix)}
    mappings = (f"{prefix}.actions.", f"{prefix}.heartbeat.")  # read by name, or listed
    paths = [converted(each) for each in leaves(known) if ".accounts." not in each]
    paths = [each for each in paths if not each.endswith(CONVERTED)]
    assert [each for each in paths if each not in own and not each.startswith(mappings)] == []


def converted(path: str) -> str:
    """Return the path of the field that a setting with another name becomes."""
    for old, new in {
        "slack.channels.<key>.allow": "slack.groups.<key>.enabled",
        "slack.channels.<key>.users": "slack.groups.<key>.allowFrom",
        "slack.channels.<key>.": "slack.groups.<key>.",
        "slack.dm.enabled": "slack.dmPolicy",
        "slack.dm.policy": "slack.dmPolicy",
        "slack.dm.allowFrom": "slack.allowFrom",
        "slack.dm.replyToMode": "slack.replyToModeByChatType.direct",
    }.items():
        is_part = old.endswith(".") and f".{old}" in path
        if is_part or (path.endswith(f".{old}") and not path.endswith(".tools.allow")):
            return path.replace(old, new)
    return path


@pytest.mark.parametrize("channel", ["telegram", "discord", "slack"])
def test_actions_of_channel_are_read_by_name_or_listed(index: SourceIndex, channel: str) -> None:
    known = lookup(("channels", channel, "actions"))
    assert known
    unread = {name for name in known.children if name not in index.strings}
    assert {f"channels.{channel}.actions.{name}" for name in unread} <= UNREAD_KEYS.keys()


@pytest.mark.parametrize("path", UNREAD_KEYS)
def test_unread_key_is_named_when_it_is_set_and_only_then(path: str) -> None:
    assert list(find_unread_keys({})) == []
    tree = tree_with(path.replace("channels.<key>", "channels.telegram"))
    (named,) = find_unread_keys(tree)
    assert named == path.replace("channels.<key>", "channels.telegram")
    assert reason_without_effect(named) == UNREAD_KEYS[path]


def tree_with(path: str) -> dict[str, Any]:
    """Return a config that has a value at a path."""
    value: Any = "x"
    for step in reversed(path.replace("[]", ".[]").split(".")):
        value = [value] if step == "[]" else {step.replace("<key>", "name"): value}
    found: dict[str, Any] = value
    return found


@pytest.mark.parametrize("path", OBEYED_VALUES)
def test_unread_key_with_the_value_that_holds_anyway_is_not_named(path: str) -> None:
    tree: Any = OBEYED_VALUES[path]
    for step in reversed(path.replace("[]", ".[]").split(".")):
        tree = [tree] if step == "[]" else {step: tree}
    assert list(find_unread_keys(tree)) == []


def test_unread_keys_of_accounts_are_named_by_their_channel() -> None:
    account = {"draftChunk": {}, "actions": {"sticker": True}}
    tree = {"channels": {"telegram": {"accounts": {"a": account}}, "zalo": {"x": {}}}}
    assert check_config(tree).unbuilt == (
        "channels.telegram.actions.sticker",
        "channels.telegram.draftChunk",
        "channels.zalo",
    )


@pytest.mark.parametrize("name", ["http", "inbound", "media", "base"])
def test_module_that_is_no_channel_is_none_in_the_config(name: str) -> None:
    checked = check_config({"channels": {name: {"enabled": True}}})
    assert checked.problems == () and checked.unbuilt == (f"channels.{name}",)
