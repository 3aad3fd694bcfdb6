"""The commands `/exec` and `/elevated`: how the commands of a session are judged."""

from collections.abc import Mapping
from typing import Final

from homarus.agent.commands.context import AgentCommandContext
from homarus.agent.commands.inline_directives import exec_fields
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of
from homarus.core.text import one_line
from homarus.plugins.commands import CommandReply, command
from homarus.policy.exec_settings import ExecSettings, resolve_elevated, resolve_exec_settings
from homarus.policy.sandbox_settings import is_sandboxed
from homarus.sessions.directives import extract_exec
from homarus.sessions.session_settings import CHOICES, LEVELS, to_stored_value

_RESET_WORDS: Final = frozenset({"default", "reset", "clear"})
EXEC_FIELDS: Final = ("execHost", "execSecurity", "execAsk", "execNode")
_OPTIONS: Final = (
    "host=gateway|sandbox security=deny|allowlist|full ask=off|on-miss|always, or reset"
)
_LEVEL_EFFECTS: Final = {
    "off": "commands are judged by the settings of /exec",
    "on": "commands run on this machine, judged by the settings of /exec",
    "ask": "commands run on this machine, judged by the settings of /exec",
    "full": "commands run on this machine without a question",
}


@command("exec")
async def exec_(context: AgentCommandContext) -> CommandReply:
    """`/exec host= security= ask=`: show or set how this session's commands are judged."""
    word = context.single_arg
    if not word:
        return CommandReply(_describe(context, await context.entry()))
    fields: dict[str, Json] = {}
    if word in _RESET_WORDS:
        fields = dict.fromkeys(EXEC_FIELDS)
    else:
        rest, setting = extract_exec(f"/exec {context.args}")
        if rest or setting is None:
            raise UserError(
                f"/exec does not understand {one_line(rest, 40)!r}", fix=f"use {_OPTIONS}"
            )
        fields |= exec_fields(setting, context.config, context.key)
    entry = {**await context.entry(), **fields}
    return CommandReply(_describe(context, entry), fields)


@command("elevated")
async def elevated(context: AgentCommandContext) -> CommandReply:
    """`/elevated on|off|ask|full`."""
    levels = LEVELS["elevatedLevel"][1]
    if not context.single_arg:
        level, is_allowed = resolve_sender_level(context, await context.entry())
        reason = "" if is_allowed else f" You may not change it: {context.elevated_refusal}."
        return CommandReply(f"Elevated: {level}. Levels: {levels}.{reason}")
    try:
        level = str(to_stored_value("elevatedLevel", context.single_arg))
    except UserError:
        message = f"/elevated does not understand {one_line(context.args, 40)!r}"
        raise UserError(message, fix=f"use {levels}") from None
    if level != "off" and (refusal := context.elevated_refusal):
        raise UserError(
            f"elevated commands are not for you here: {refusal}",
            fix="the owner of this machine can change it: homarus config set",
        )
    effect = _LEVEL_EFFECTS[level]
    if level == "off" and is_sandboxed(context.config, agent_id_of(context.key), context.key):
        effect = "commands run in the sandbox of this conversation"
    text = f"Elevated: {level}; {effect}."
    return CommandReply(text, {"elevatedLevel": level})


def describe_exec(context: AgentCommandContext, entry: Mapping[str, Json]) -> str:
    """Return the settings for the sender's commands in a few words."""
    found = _resolve(context, entry)
    return f"host={found.host} security={found.security} ask={found.ask}"


def resolve_sender_level(
    context: AgentCommandContext, entry: Mapping[str, Json]
) -> tuple[str, bool]:
    """Return the elevated level of the sender's commands, and whether they may have one."""
    inbound = context.inbound
    return resolve_elevated(
        context.config,
        agent_id_of(context.key),
        entry,
        inbound.address.channel,
        inbound.sender,
        context.services.find_traits,
    )


def _describe(context: AgentCommandContext, entry: Mapping[str, Json]) -> str:
    found = _resolve(context, entry)
    lines = [f"Exec: {describe_exec(context, entry)}."]
    stored = [
        f"{name.removeprefix('exec').lower()}={entry[name]}"
        for name in EXEC_FIELDS
        if isinstance(entry.get(name), str)
    ]
    lines.append(f"Set for this conversation: {' '.join(stored) or 'nothing'}.")
    if is_sandboxed(context.config, agent_id_of(context.key), context.key):
        level, _ = resolve_sender_level(context, entry)
        outside = "on this machine" if level != "off" else "in the sandbox of this conversation"
        lines.append(f"Commands run {outside} (elevated: {level}).")
    for name, value in (("execSecurity", found.security), ("execAsk", found.ask)):
        if entry.get(name) in CHOICES[name] and entry[name] != value:
            wanted = f"{name.removeprefix('exec').lower()}={entry[name]}"
            lines.append(
                f"{wanted} does not hold: the config or exec-approvals.json is stricter ({value})."
            )
    lines.append(f"Options: {_OPTIONS}.")
    return "\n".join(lines)


def _resolve(context: AgentCommandContext, entry: Mapping[str, Json]) -> ExecSettings:
    return resolve_exec_settings(
        context.config,
        context.services.read_exec_rules(),
        agent_id_of(context.key),
        entry,
        is_owner=context.is_owner,
    )
