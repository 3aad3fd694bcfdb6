"""The commands `/config` and `/debug`: settings in the files, and until the program ends.

Both are for the owner, and need `commands.config` and `commands.debug`. What a chat may set is what
a client of the gateway may set; secrets are never shown.
"""

import json
from typing import Final, Literal, TypeAlias

from homarus.agent.commands.context import AgentCommandContext, ConfigEdits
from homarus.config.json5_document import KeyPath
from homarus.config.redaction import redact_tree
from homarus.config.tree_edit import format_path, get_path, parse_path, set_path, unset_path
from homarus.core.errors import ConfigError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import clip_middle, one_line
from homarus.plugins.commands import CommandReply, command

_MAX_CHARS: Final = 6_000
_WORDS: Final = {"true": True, "false": False, "null": None}

_Action: TypeAlias = Literal["show", "get", "set", "unset", "reset"]


@dataclass(frozen=True, slots=True)
class _Request:
    """What `/config` or `/debug` was asked for; `value` is for `set`."""

    action: _Action
    path: KeyPath = ()
    value: Json = None


@command("config")
async def config(context: AgentCommandContext) -> CommandReply:
    """`/config show|get|set|unset path=value`."""
    _check_enabled("config", is_enabled=context.config.commands.config)
    request = _parse(context, "config", ("show", "get", "set", "unset"))
    edits = context.services.get_config_edits()
    if request.action in {"show", "get"}:
        return CommandReply(_show(context, "config", request.path, _read(edits)))
    return await _write(context, edits, request)


async def _write(
    context: AgentCommandContext, edits: ConfigEdits, request: _Request
) -> CommandReply:
    from homarus.config.group_migration import check_config_writes

    path = request.path
    for channel, account in target_accounts(path):
        check_config_writes(context.config, channel, account)

    def change(tree: dict[str, Json]) -> Json:
        if request.action == "set":
            return set_path(tree, path, request.value)
        try:
            get_path(tree, path)
        except LookupError:
            raise UserError(f"{format_path(path)} is not set") from None
        return unset_path(tree, path)

    try:
        written = await edits.write(context.inbound.address, change)
    except ConfigError as exc:
        raise UserError(f"the config was not changed: {exc}") from None
    name = format_path(path)
    if not written.changed:
        return CommandReply(f"{name} is that already.")
    shown = f"{name} = {_format(request.value, path)}" if request.action == "set" else name
    lines = [f"Config {'changed' if request.action == 'set' else 'removed'}: {shown}"]
    if written.unbuilt:
        lines.append(f"Without an effect in this version: {', '.join(written.unbuilt)}.")
    return CommandReply("\n".join(lines), on_saved=edits.apply)


@command("debug")
async def debug(context: AgentCommandContext) -> CommandReply:
    """`/debug show|reset|set|unset path=value`: settings that last until the program ends."""
    _check_enabled("debug", is_enabled=context.config.commands.debug)
    request = _parse(context, "debug", ("show", "reset", "set", "unset"))
    path, name = request.path, format_path(request.path)
    overrides = dict(context.services.get_overrides())
    if request.action == "show":
        tree: Json = {}
        for each, value in overrides.items():
            tree = set_path(tree, each, value)
        if not overrides:
            return CommandReply("No overrides: the settings are those of the files.")
        return CommandReply(_show(context, "debug", path, tree))
    if request.action == "set":
        overrides = {each: value for each, value in overrides.items() if each[: len(path)] != path}
        overrides[path] = request.value
        text = f"Until the next start: {name} = {_format(request.value, path)}"
    elif request.action == "unset":
        if path not in overrides:
            raise UserError(f"{name} has no override", fix="/debug show lists them")
        del overrides[path]
        text = f"{name} is that of the files again."
    else:
        overrides.clear()
        text = "No overrides any more: the settings are those of the files."
    try:
        await context.services.get_config_edits().override(overrides)
    except ConfigError as exc:
        raise UserError(f"nothing was changed: {exc}") from None
    return CommandReply(text)


def _check_enabled(name: str, *, is_enabled: bool) -> None:
    if not is_enabled:
        fix = f"on this machine: homarus config set commands.{name} true"
        raise UserError(f"/{name} is switched off", fix=fix)


def _parse(context: AgentCommandContext, name: str, actions: tuple[_Action, ...]) -> _Request:
    word, _, rest = context.args.strip().partition(" ")
    action = next((each for each in actions if each == word.lower()), None)
    rest = rest.strip()
    if not word:
        return _Request("show")
    if action is None:
        raise UserError(
            f"/{name} does not understand {one_line(word, 40)!r}", fix=f"use {', '.join(actions)}"
        )
    if action == "reset":
        return _Request(action)
    if action != "set":
        if not rest and action == "unset":
            raise UserError(
                f"/{name} unset needs a path", fix=f"/{name} unset messages.ackReaction"
            )
        return _Request(action, parse_path(rest) if rest else ())
    key, equals, text = rest.partition("=")
    if not key.strip() or not equals:
        fix = f'for example /{name} set messages.ackReaction="👀"'
        raise UserError(f"/{name} set needs path=value", fix=fix)
    return _Request(action, parse_path(key), _parse_value(text))


def _parse_value(text: str) -> Json:
    """Parse JSON; a word that is none is a text."""
    stripped = text.strip()
    if not stripped:
        raise UserError("there is no value after the =", fix='"" is an empty text')
    if stripped.lower() in _WORDS:
        return _WORDS[stripped.lower()]
    try:
        value = json.loads(stripped)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as exc:
        if stripped[0] in '{["':
            raise UserError(f"the value is no valid JSON: {one_line(str(exc), 80)}") from None
        return stripped
    return value


def target_accounts(path: KeyPath) -> list[tuple[str, str]]:
    """Return the channel and account that a path changes, whose own `configWrites` holds, too."""
    from homarus.core.session_keys import DEFAULT_ACCOUNT, normalize_account_id

    if path[:1] != ("channels",) or len(path) < 2 or path[1] == "defaults":
        return []
    account = str(path[3]) if len(path) > 3 and path[2] == "accounts" else DEFAULT_ACCOUNT
    return [(str(path[1]), normalize_account_id(account))]


def _read(edits: ConfigEdits) -> Json:
    try:
        return edits.read()
    except ConfigError as exc:
        raise UserError(str(exc)) from None


def _show(context: AgentCommandContext, name: str, path: KeyPath, tree: Json) -> str:
    if not context.is_for_owner_alone:
        raise UserError(f"/{name} shows settings only in a chat that no other people read")
    try:
        value = get_path(tree, path)
    except LookupError:
        raise UserError(f"{format_path(path)} is not set") from None
    title = f"{format_path(path)}:" if path else "Config:" if name == "config" else "Overrides:"
    return f"{title}\n```json\n{_format(value, path, indent=2)}\n```"


def _format(value: Json, path: KeyPath, indent: int | None = None) -> str:
    shown = json.dumps(redact_tree(value, path), ensure_ascii=False, indent=indent)
    return clip_middle(shown, _MAX_CHARS)
