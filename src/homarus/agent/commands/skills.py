"""The commands of skills: `/skill NAME [input]`, and `/NAME [input]` for each that people may use.

Such a message is answered by a run that is told to use the skill. A skill may say that its command
calls a tool instead (`command-dispatch: tool`): then the run makes that call, and no model is
asked. Either way the calls are decided, approved and audited as any other.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.agent.commands.catalog import ParsedCommand
from homarus.agent.commands.context import AgentCommandContext, CommandServices
from homarus.config.paths import shorten
from homarus.core.errors import UnknownNameError
from homarus.core.message import Inbound
from homarus.core.session_keys import agent_id_of
from homarus.core.text import closest_names
from homarus.plugins.commands import CommandReply, command
from homarus.policy.sandbox_settings import is_sandboxed

if TYPE_CHECKING:  # imported by the first command of a skill
    from homarus.skills.commands import SkillCommand


@command("skill")
async def list_skills(context: AgentCommandContext) -> CommandReply:
    """`/skill` without a name lists the skills; with one it is interpreted before."""
    commands = context.services.skills.commands(context.key, context.inbound)
    if not commands:
        return CommandReply("No skills can be used here. homarus skills list says why.")
    return CommandReply("\n".join(["Skills:", *map(format_command, commands)]))


def format_command(found: "SkillCommand") -> str:
    """Format a command of a skill as a line of a list."""
    return f"/{found.name} [input] - {found.description}"


def find_skill_message(
    services: CommandServices, key: str, inbound: Inbound, parsed: ParsedCommand | None
) -> Inbound | None:
    """Return what a run answers when a message is the command of a skill, else None.

    `parsed` is the command that the message is, if it is one. Raises UnknownNameError for
    `/skill` with another name.
    """
    if parsed is None:
        return _find_by_command(services, key, inbound)
    name, _, text = parsed.args.partition(" ")
    if parsed.command.name != "skill" or not name:
        return None
    from homarus.skills.commands import find_skill_command

    commands = services.skills.commands(key, inbound)
    found = find_skill_command(commands, name, by_skill_name=True)
    if found is None:
        known = [each.skill.name for each in commands]
        raise UnknownNameError("skill", name, closest_names(name, known) or tuple(known[:3]))
    return _make_message(services, key, inbound, found, text.strip())


def _find_by_command(services: CommandServices, key: str, inbound: Inbound) -> Inbound | None:
    """Return the message for `/NAME input`, if that is the command of a skill."""
    head, _, text = inbound.text.strip().partition(" ")
    first, _, more = head.partition("\n")
    name = first.removeprefix("/")
    if name == first or not name.replace("_", "").isalnum() or not name.isascii():
        return None
    commands = services.skills.commands(key, inbound)
    if not commands:
        return None
    from homarus.skills.commands import find_skill_command

    found = find_skill_command(commands, name)
    typed = f"{more} {text}".strip() if more else text.strip()
    return _make_message(services, key, inbound, found, typed) if found else None


def _make_message(
    services: CommandServices, key: str, inbound: Inbound, found: "SkillCommand", text: str
) -> Inbound:
    skill, options = found.skill, replace(inbound.options, skill=found.skill.name)
    if found.tool:
        return replace(inbound, options=replace(options, skill_input=text))
    in_sandbox = is_sandboxed(services.get_config(), agent_id_of(key), key)
    location = str(skill.file) if in_sandbox else shorten(skill.file, Path.home())
    order = f"Use the skill {skill.name}: read {location} and follow it."
    return replace(inbound, text=f"{order}\n\n{text}" if text else order, options=options)


def skill_lines(commands: "Sequence[SkillCommand]") -> list[str]:
    """Return the part of `/commands` about skills."""
    return ["Skills:", *map(format_command, commands), ""] if commands else []
