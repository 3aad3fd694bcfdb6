"""The command `/allowlist`: which senders of a channel are answered, shown and changed.

    /allowlist [list] [dm|group]
    /allowlist add|remove <entry> [dm|group] [--channel NAME] [--account ID] [--config|--store]

A change is made in the config and in the list of paired senders, or in one of them. Without
`commands.ownerAllowFrom`, a sender in the config's list is an owner: then one is added to the
config only by `--config`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from homarus.agent.commands.context import AgentCommandContext
from homarus.core.channel_traits import UNKNOWN_CHANNEL
from homarus.core.errors import ConfigError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.session_keys import normalize_account_id
from homarus.core.text import one_line
from homarus.plugins.commands import CommandReply, command
from homarus.policy.access import EVERYONE, normalize_sender_id

_ACTIONS: Final = ("list", "add", "remove")
_SCOPES: Final = {"dm": "allowFrom", "group": "groupAllowFrom"}
_OPTIONS: Final = ("channel", "account", "scope")
_TITLES: Final = {"dm": "Direct messages", "group": "Groups"}
_USAGE: Final = "/allowlist list, /allowlist add ID or /allowlist remove ID, with dm or group"


@dataclass(frozen=True, slots=True)
class _Request:
    """What `/allowlist` was asked for; `target` is config, store or both."""

    action: str
    entry: str
    scope: str
    channel: str
    account: str
    target: str


@command("allowlist")
async def allowlist(context: AgentCommandContext) -> CommandReply:
    """`/allowlist list|add|remove`."""
    request = _parse(context)
    section = context.config.channels.get(request.channel)
    is_known = context.services.find_traits(request.channel) is not UNKNOWN_CHANNEL
    if not isinstance(section, Mapping) or not is_known:
        raise UserError(
            f"{one_line(request.channel, 40)} is no channel with lists of senders",
            fix="--channel NAME names one of the config",
        )
    if request.action == "list":
        return CommandReply(await _list(context, request))
    if not context.config.commands.config:
        fix = "on this machine: homarus config set commands.config true"
        raise UserError("changes by /allowlist are switched off", fix=fix)
    return await _edit(context, request)


def _parse(context: AgentCommandContext) -> _Request:
    address, words = context.inbound.address, context.args.split()
    action = words.pop(0).lower() if words else "list"
    if action not in _ACTIONS:
        raise UserError(f"/allowlist does not understand {one_line(action, 40)!r}", fix=_USAGE)
    options, entries = _parse_options(words)
    channel = options.get("channel", address.channel).lower()
    own = address.account if channel == address.channel else "default"
    account = normalize_account_id(options.get("account") or own)
    scope = options.get("scope") or ("all" if action == "list" else "dm")
    if scope not in {*_SCOPES, "all"} or (scope == "all" and action != "list"):
        raise UserError("name dm or group", fix=_USAGE)
    if (action == "list") == bool(entries) or len(entries) > 1:
        raise UserError("name one sender by id", fix=_USAGE)
    makes_owner = action == "add" and scope == "dm" and not _names_owners(context)
    target = options.get("target") or ("store" if makes_owner else "both")
    return _Request(action, entries[0] if entries else "", scope, channel, account, target)


def _parse_options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options among the words, and the other words."""
    options, rest = dict[str, str](), list[str]()
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word.lower() in {"dm", "group", "all"}:
            options["scope"] = word.lower()
        elif word in {"--config", "--store"}:
            options["target"] = name
        elif name in _OPTIONS and equals:
            options[name] = value
        elif name in _OPTIONS and word != name and words:
            options[name] = words.pop(0)
        elif word.startswith("--"):
            raise UserError(f"/allowlist does not understand {one_line(word, 40)!r}", fix=_USAGE)
        else:
            rest.append(word)
    return options, rest


def _names_owners(context: AgentCommandContext) -> bool:
    return bool(context.config.commands.owner_allow_from)


async def _list(context: AgentCommandContext, request: _Request) -> str:
    from homarus.config.channels import merged_section  # only imported for configs with channels

    section = merged_section(context.config.channels, request.channel, request.account)
    lines = [f"Allowlists of {request.channel} ({request.account}):"]
    for scope, key in _SCOPES.items():
        if request.scope not in {scope, "all"}:
            continue
        policy = section.get(f"{scope}Policy")
        named = f" (policy {one_line(str(policy), 20)})" if policy else ""
        lines.append(f"{_TITLES[scope]}{named}, config: {_format(section.get(key))}")
    if request.scope in {"dm", "all"}:
        pairings = context.services.get_pairings()
        paired = await asyncio.to_thread(
            pairings.approved_senders, request.channel, request.account
        )
        lines.append(f"Paired: {_format(paired)}")
    return "\n".join(lines)


def _format(entries: Any) -> str:
    if not isinstance(entries, list | tuple) or not entries:
        return "none"
    return ", ".join(one_line(str(each), 80) for each in entries)


async def _edit(context: AgentCommandContext, request: _Request) -> CommandReply:
    from homarus.config.group_migration import check_config_writes

    find_traits, chat = context.services.find_traits, context.inbound.address
    sender = normalize_sender_id(request.channel, request.entry, find_traits)
    if not sender or sender == EVERYONE:
        raise UserError(
            f"{one_line(request.entry, 40)!r} is no id of a sender on {request.channel}",
            fix="/whoami shows the sender of a message; everyone is a matter of dmPolicy",
        )
    check_config_writes(context.config, chat.channel, chat.account)
    check_config_writes(context.config, request.channel, request.account)
    if request.target == "store" and request.scope != "dm":
        raise UserError("only direct messages have a list of paired senders", fix="use --config")
    places = list[str]()
    edits = context.services.get_config_edits()
    if request.target != "store":
        try:
            written = await edits.write(
                chat, lambda tree: _edit_tree(context, request, sender, tree)
            )
        except ConfigError as exc:
            raise UserError(f"the config was not changed: {exc}") from None
        places += written.changed
    if request.target != "config" and request.scope == "dm" and await _edit_store(context, request):
        places.append("paired senders")
    verb = "added" if request.action == "add" else "removed"
    if not places:
        reason = "is listed already" if request.action == "add" else "is not listed"
        return CommandReply(f"{one_line(sender, 80)} {reason}.")
    text = f"{_TITLES[request.scope]}: {one_line(sender, 80)} {verb} ({', '.join(places)})."
    is_config_dm = request.target != "store" and request.scope == "dm"
    if is_config_dm and request.action == "add" and not _names_owners(context):
        text += " They give the owner's commands, too: commands.ownerAllowFrom is not set."
    return CommandReply(text, on_saved=edits.apply if request.target != "store" else None)


def _edit_tree(
    context: AgentCommandContext, request: _Request, sender: str, tree: dict[str, Json]
) -> Json:
    """Return the config tree with a sender added to the account's list, or removed from it."""
    from homarus.config.account_edits import account_path
    from homarus.config.channels import merged_section
    from homarus.config.tree_edit import set_path

    channels, key = tree.get("channels"), _SCOPES[request.scope]
    merged = merged_section(channels or {}, request.channel, request.account)
    found = merged.get(key)
    listed = list(found) if isinstance(found, list) else []
    find_traits = context.services.find_traits
    others = [
        each
        for each in listed
        if normalize_sender_id(request.channel, str(each), find_traits) != sender
    ]
    is_listed = len(others) < len(listed)
    if is_listed == (request.action == "add"):
        return tree
    new = [*listed, sender] if request.action == "add" else others
    path = account_path(tree, request.channel, request.account)
    return set_path(tree, (*path, key), new)


async def _edit_store(context: AgentCommandContext, request: _Request) -> bool:
    """Change the list of paired senders; return whether it was changed."""
    pairings = context.services.get_pairings()
    given = request.channel, request.entry, request.account
    if request.action == "add":
        return await asyncio.to_thread(pairings.add_sender, *given)
    paired = await asyncio.to_thread(pairings.approved_senders, request.channel, request.account)
    find_traits = context.services.find_traits
    ids = {normalize_sender_id(request.channel, each, find_traits) for each in paired}
    if normalize_sender_id(request.channel, request.entry, find_traits) not in ids:
        return False
    await asyncio.to_thread(pairings.revoke, *given)
    return True
