"""Add, disable and delete channel accounts in the config.

The edits are pure: they take the tree of a config file and return a new one. A channel with one
account has that account's settings in its section. With several, each has a section of its own
under `accounts`, and the channel's section holds what they have in common.
"""

from collections.abc import Mapping
from typing import Any

from homarus.config.channels import DEFAULTS, accounts_in, merged_section
from homarus.config.json5_document import KeyPath, Value
from homarus.config.tree_edit import set_path, unset_path
from homarus.config.variables import references
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.session_keys import DEFAULT_ACCOUNT, normalize_account_id
from homarus.core.text import closest_names


def account_ids(tree: Mapping[str, Any], channel: str) -> tuple[str, ...]:
    """Return the normalized ids of a channel's accounts; none without a section."""
    section = _section(tree, channel)
    return () if section is None else accounts_in(section)


def add_account(
    tree: Mapping[str, Any], channel: str, account: str, values: Mapping[KeyPath, Value]
) -> Value:
    """Return the tree with an enabled account that has these settings besides its older ones."""
    new: Value = dict(tree)
    if _has_accounts(tree, channel):
        path = _own_path(tree, channel, account)
    elif account == DEFAULT_ACCOUNT:
        path = ("channels", channel)
    else:
        path = ("channels", channel, "accounts", account)
        if account_ids(tree, channel):  # the first account moves under `accounts` too
            new = set_path(new, ("channels", channel, "accounts", DEFAULT_ACCOUNT), {})
    if account not in account_ids(tree, channel):
        new = set_path(new, path, {} if "accounts" in path else {"enabled": True})
    if merged_section(_channels(new), channel, account).get("enabled") is False:
        new = set_path(new, (*path, "enabled"), True)  # noqa: FBT003 - the key says what it is
    for key, value in values.items():
        new = set_path(new, (*path, *key), value)
    return new


def disable_account(tree: Mapping[str, Any], channel: str, account: str | None) -> Value:
    """Return the tree with one account disabled, or with all of the channel for None."""
    path = _existing_path(tree, channel, account)
    new: Value = dict(tree)
    if account is None:  # an account's own `enabled` would override the channel's
        for name, part in ((_section(tree, channel) or {}).get("accounts") or {}).items():
            if isinstance(part, Mapping) and part.get("enabled") is True:
                new = unset_path(new, (*path, "accounts", name, "enabled"))
    return set_path(new, (*path, "enabled"), False)  # noqa: FBT003 - the key says it


def delete_account(tree: Mapping[str, Any], channel: str, account: str | None) -> Value:
    """Return the tree without one account.

    For None, or for the last account, the channel's section is removed.
    """
    path = _existing_path(tree, channel, account)
    if account and set(account_ids(tree, channel)) == {account}:
        path = ("channels", channel)
    return unset_path(dict(tree), path)


def account_path(tree: Mapping[str, Any], channel: str, account: str) -> KeyPath:
    """Return the path of an account's settings: its own section, else that of its channel.

    Raises UserError for a channel that the config does not have.
    """
    if account in account_ids(tree, channel) or not account_ids(tree, channel):
        return _existing_path(tree, channel, account)
    return "channels", channel


def has_unset_variables(value: Value) -> bool:
    """Return whether the value holds a `${NAME}` that was not substituted."""
    if isinstance(value, Mapping):
        return any(map(has_unset_variables, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_unset_variables, value))
    return isinstance(value, str) and bool(references(value))


def _existing_path(tree: Mapping[str, Any], channel: str, account: str | None) -> KeyPath:
    """Return the path of an existing account's settings. Raises UserError if there is none."""
    known = account_ids(tree, channel)
    if not known:
        channels = [name for name in _channels(tree) if name != DEFAULTS]
        fix = f"there is {', '.join(channels)}" if channels else "none is configured"
        raise UserError(f"the config has no channel {channel!r}", fix=fix)
    if account is None or not _has_accounts(tree, channel):
        if account not in {None, DEFAULT_ACCOUNT}:
            raise UnknownNameError("account", str(account), known)
        return "channels", channel
    if account not in known:
        raise UnknownNameError("account", account, closest_names(account, known) or known[:3])
    return _own_path(tree, channel, account)


def _own_path(tree: Mapping[str, Any], channel: str, account: str) -> KeyPath:
    """Return the path of an account's own section, under the name the config has for it."""
    section = _section(tree, channel) or {}
    written = section.get("accounts")
    names = written if isinstance(written, Mapping) else {}
    name = next((name for name in names if normalize_account_id(name) == account), account)
    return "channels", channel, "accounts", name


def _has_accounts(tree: Mapping[str, Any], channel: str) -> bool:
    section = _section(tree, channel) or {}
    return bool(isinstance(section.get("accounts"), Mapping) and section["accounts"])


def _channels(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    channels = tree.get("channels")
    return channels if isinstance(channels, Mapping) else {}


def _section(tree: Mapping[str, Any], channel: str) -> Mapping[str, Any] | None:
    section = _channels(tree).get(channel)
    return section if isinstance(section, Mapping) else None
