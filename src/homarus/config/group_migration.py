"""Change the config when a chat service gives a group another id, if `configWrites` allows it.

A name of a group, where a service has names, is replaced by its id in the same way.

This is the only change of the config that a chat service causes; its owner can cause others by
`/config` and `/allowlist`. Everything that writes the config on behalf of a chat must call
`check_config_writes` first.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from homarus.config.channels import common_settings, merged_section
from homarus.config.json5_document import Value
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.config.tree_edit import set_path
from homarus.config.write import write_config
from homarus.core.clock import Clock
from homarus.core.errors import UserError
from homarus.core.session_keys import normalize_account_id
from homarus.core.tasks import run_contained

log = logging.getLogger(__name__)

_WRITES: Final = "configWrites"
_GROUP_KEYS: Final = ("groups", "channels")  # Slack's groups are channels


def check_config_writes(config: Config, channel: str, account: str) -> None:
    """Raise UserError if chats of this account may not change the config."""
    if not common_settings(config, channel, account).config_writes:
        raise UserError(
            f"channels.{channel}.{_WRITES} is false for the account {account}:"
            " its chats may not change the config",
            fix="change it on this machine: homarus config set",
        )


async def run_move(
    paths: Paths,
    loaded: LoadedConfig,
    account: tuple[str, str],
    ids: tuple[str, str],
    clock: Clock,
) -> None:
    """Call `move_group_settings` in a thread; its errors are logged."""

    async def move() -> None:
        await asyncio.to_thread(move_group_settings, paths, loaded, account, ids, clock.now_ms())

    name = f"moving the settings of the group {ids[0]} to {ids[1]}"
    await run_contained(name, move, lambda _exc: None)


def move_group_settings(
    paths: Paths, loaded: LoadedConfig, account: tuple[str, str], ids: tuple[str, str], at_ms: int
) -> None:
    """Write the settings of a group to its new id, if the config names the old one.

    `account` is a channel and an account of it, `ids` the old id and the new one. Raises UserError
    where the config may not be changed, and the errors of `write_config`.
    """
    section = merged_section(loaded.config.channels, *account)
    if not any(ids[0] in _object(section.get(key)) for key in _GROUP_KEYS):
        return
    check_config_writes(loaded.config, *account)
    written = write_config(
        paths, loaded.env, lambda tree: move_group(tree, account, ids), at_ms=at_ms
    )
    if written.changed:
        log.warning("the config was changed: the group %s is %s now", *ids)


def move_group(tree: Mapping[str, Any], account: tuple[str, str], ids: tuple[str, str]) -> Value:
    """Return a config tree in which the groups of an account have the new id.

    A group that is listed under its new id already stays as it is, and so does every group of an
    account whose file says meanwhile that it may not be changed.
    """
    new: Value = dict(tree)
    channels, (channel, name) = tree.get("channels"), account
    if (
        not isinstance(channels, Mapping)
        or merged_section(channels, *account).get(_WRITES) is False
    ):
        return new
    section = _object(channels.get(channel))
    sections = {("channels", channel): section} | {
        ("channels", channel, "accounts", each): _object(own)
        for each, own in _object(section.get("accounts")).items()
        if normalize_account_id(each) == name
    }
    for path, one in sections.items():
        for name in _GROUP_KEYS:
            groups = _object(one.get(name))
            if ids[0] in groups and ids[1] not in groups:
                moved = {ids[1] if key == ids[0] else key: value for key, value in groups.items()}
                new = set_path(new, (*path, name), moved)
    return new


def _object(value: Value) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
