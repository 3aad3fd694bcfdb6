"""List the chat commands: for people, for clients, and for services that show them.

Every module of this package is searched for commands when one is first needed, so that a program
that gets no command loads none of them. A new command is a new file.
"""

from collections.abc import Mapping, MutableMapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from homarus.agent import commands
from homarus.agent.commands.catalog import BY_NAME, COMMANDS, RESETS, Category, CommandSpec
from homarus.agent.commands.native_options import command_options
from homarus.config.schema import CommandsConfig
from homarus.core.native_command import NativeCommand
from homarus.plugins.commands import (
    ChatCommand,
    CommandContext,
    CommandReply,
    command,
    find_commands,
)

_FIRST: Final = (
    "new", "stop", "status", "model", "think", "verbose", "reasoning", "usage", "queue",
    "compact", "context", "export-session", "whoami", "commands",
)  # fmt: skip


@command("help")
async def show_help(_context: CommandContext) -> CommandReply:
    """`/help`."""
    lines = [_line(name) for name in _FIRST]
    return CommandReply(
        "\n".join([*lines, "A directive inside a message holds for that message alone."])
    )


@command("commands")
async def list_commands(context: CommandContext) -> CommandReply:
    """`/commands`."""
    implemented = [spec.name for spec in implemented_commands()]
    off = disabled_commands(context.config.commands)
    lines = list[str]()
    for category in dict.fromkeys(spec.category for spec in COMMANDS):
        listed = [name for name in implemented if name not in off]
        names = [name for name in listed if BY_NAME[name].category == category]
        lines += [f"{_TITLES[category]}:", *map(_line, names), ""] if names else []
    lines += _skill_lines(context)
    if off:
        settings = ", ".join(f"/{name} (commands.{name})" for name in off)
        lines.append(f"Switched off: {settings}")
    missing = ", ".join(f"/{spec.name}" for spec in COMMANDS if spec.name not in implemented)
    return CommandReply("\n".join([*lines, f"Not built yet: {missing}"]))


def _skill_lines(context: CommandContext) -> list[str]:
    from homarus.agent.commands.context import AgentCommandContext  # it imports much
    from homarus.agent.commands.skills import skill_lines

    if not isinstance(context, AgentCommandContext):
        return []
    return skill_lines(context.services.skills.commands(context.key, context.inbound))


_TITLES: Final[Mapping[Category, str]] = {
    "session": "Conversation", "options": "Settings", "status": "Looking", "media": "Media",
    "management": "Management", "tools": "Tools", "docks": "Other channels",
}  # fmt: skip


def _line(name: str) -> str:
    spec = BY_NAME[name]
    shown = "export" if name == "export-session" else name
    return f"/{shown}{f' {spec.args}' if spec.args else ''} - {spec.help}"


@cache
def command_handlers() -> MutableMapping[str, ChatCommand]:
    """Import every module of the package, and return its commands by name."""
    names = [f"{commands.__name__}.{each.name}" for each in iter_modules(commands.__path__)]
    return find_commands(*map(import_module, names))


def native_commands(config: CommandsConfig) -> tuple[NativeCommand, ...]:
    """Return the commands with their options, for services that list them to people."""
    if config.native is False:
        return ()
    off = disabled_commands(config)
    return tuple(
        NativeCommand(spec.name, spec.help, command_options(spec.args))
        for spec in implemented_commands()
        if spec.scope != "text" and spec.name not in off
    )


def disabled_commands(config: CommandsConfig) -> tuple[str, ...]:
    """Return the commands that a setting of their own must switch on, and that are off."""
    enabled = {"config": config.config, "debug": config.debug, "bash": config.bash}
    return tuple(name for name, is_enabled in enabled.items() if not is_enabled)


def implemented_commands() -> tuple[CommandSpec, ...]:
    """Return the commands of the catalogue that have a function."""
    implemented = {*command_handlers(), *RESETS}
    return tuple(spec for spec in COMMANDS if spec.name in implemented)
