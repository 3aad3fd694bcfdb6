"""Accounts put into the config and taken out of it: edits of its tree. Pure.

A channel with one account has that account's settings in its section. With several, each has a
part of its own under `accounts`, and the section is what they have in common.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from homarus.config.channels import DEFAULTS, accounts_in, merged
from homarus.config.document import KeyPath, Value
from homarus.config.edit import set_path, unset_path
from homarus.core.errors import UnknownName, UserError
from homarus.core.keys import DEFAULT_ACCOUNT, normalize_account_id
from homarus.core.text import nearest

_OPEN_REFERENCE: Final = re.compile(r"(?<!\$)\$\{[A-Z_][A-Z0-9_]*\}")


def accounts_of(tree: Mapping[str, Any], channel: str) -> tuple[str, ...]:
    """The accounts that a config names, as they are called everywhere; none without a section."""
    section = _section(tree, channel)
    return () if section is None else accounts_in(section)


def add_account(
    tree: Mapping[str, Any], channel: str, account: str, values: Mapping[KeyPath, Value]
) -> Value:
    """The tree with an account that has these settings, switched on; what it had else stays."""
    new: Value = dict(tree)
    if _has_parts(tree, channel):
        where = _own(tree, channel, account)
    elif account == DEFAULT_ACCOUNT:
        where = ("channels", channel)
    else:
        where = ("channels", channel, "accounts", account)
        if accounts_of(tree, channel):  # the one that was there alone gets its name
            new = set_path(new, ("channels", channel, "accounts", DEFAULT_ACCOUNT), {})
    if account not in accounts_of(tree, channel):
        new = set_path(new, where, {} if "accounts" in where else {"enabled": True})
    if merged(_channels(new), channel, account).get("enabled") is False:
        new = set_path(new, (*where, "enabled"), True)  # noqa: FBT003 - the key says what it is
    for path, value in values.items():
        new = set_path(new, (*where, *path), value)
    return new


def switch_off(tree: Mapping[str, Any], channel: str, account: str | None) -> Value:
    """The tree with an account switched off, or with all of the channel."""
    where = _place(tree, channel, account)
    new: Value = dict(tree)
    if account is None:  # no part may say otherwise
        for name, part in ((_section(tree, channel) or {}).get("accounts") or {}).items():
            if isinstance(part, Mapping) and part.get("enabled") is True:
                new = unset_path(new, (*where, "accounts", name, "enabled"))
    return set_path(new, (*where, "enabled"), False)  # noqa: FBT003 - the key says it


def delete_account(tree: Mapping[str, Any], channel: str, account: str | None) -> Value:
    """The tree without an account; with its last one, or with none named, the section goes."""
    where = _place(tree, channel, account)
    if account and set(accounts_of(tree, channel)) == {account}:
        where = ("channels", channel)
    return unset_path(dict(tree), where)


def has_open_references(value: Value) -> bool:
    """Whether a `${NAME}` in it was not filled in: its variable is not set here."""
    if isinstance(value, Mapping):
        return any(map(has_open_references, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_open_references, value))
    return isinstance(value, str) and bool(_OPEN_REFERENCE.search(value))


def _place(tree: Mapping[str, Any], channel: str, account: str | None) -> KeyPath:
    """Where an account that is there has its settings."""
    known = accounts_of(tree, channel)
    if not known:
        channels = [name for name in _channels(tree) if name != DEFAULTS]
        fix = f"there is {', '.join(channels)}" if channels else "none is configured"
        raise UserError(f"the config has no channel {channel!r}", fix=fix)
    if account is None or not _has_parts(tree, channel):
        if account not in {None, DEFAULT_ACCOUNT}:
            raise UnknownName("account", str(account), known)
        return "channels", channel
    if account not in known:
        raise UnknownName("account", account, nearest(account, known) or known[:3])
    return _own(tree, channel, account)


def _own(tree: Mapping[str, Any], channel: str, account: str) -> KeyPath:
    """The path of an account's own part, under the name it is written by."""
    section = _section(tree, channel) or {}
    written = section.get("accounts")
    names = written if isinstance(written, Mapping) else {}
    name = next((name for name in names if normalize_account_id(name) == account), account)
    return "channels", channel, "accounts", name


def _has_parts(tree: Mapping[str, Any], channel: str) -> bool:
    section = _section(tree, channel) or {}
    return bool(isinstance(section.get("accounts"), Mapping) and section["accounts"])


def _channels(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    channels = tree.get("channels")
    return channels if isinstance(channels, Mapping) else {}


def _section(tree: Mapping[str, Any], channel: str) -> Mapping[str, Any] | None:
    section = _channels(tree).get(channel)
    return section if isinstance(section, Mapping) else None
