"""The list of commands that Discord shows when a user types `/`, with their typed options."""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final

from homarus.channels.discord.rest import DiscordRest
from homarus.core.errors import ChannelError
from homarus.core.message import Json
from homarus.core.native_command import CommandOption, NativeCommand
from homarus.core.text import one_line

log = logging.getLogger(__name__)

MAX_COMMANDS: Final = 100
_MAX_OPTIONS, _MAX_CHOICES = 25, 25
_MAX_CHARS: Final = 100
_NAME: Final = re.compile(r"[-_a-z0-9]{1,32}")
# In servers, and in the direct chat with the bot: it cannot answer in chats of other people, which
# have the commands if a user has installed the application.
_PLACES: Final[dict[str, Json]] = {"contexts": [0, 1], "integration_types": [0]}
_KINDS: Final = {"string": 3, "integer": 4, "boolean": 5, "number": 10}


def listable(commands: Iterable[NativeCommand]) -> tuple[NativeCommand, ...]:
    """Return the commands that Discord can list, each name once, as many as it takes."""
    found = dict[str, NativeCommand]()
    for command in commands:
        if not _NAME.fullmatch(command.name) or not command.description.strip():
            log.warning("Discord cannot list the command %r", command.name)
        else:
            found.setdefault(command.name, command)
    if left_out := [*found][MAX_COMMANDS:]:
        log.warning("Discord lists %d commands, not these: %s", MAX_COMMANDS, ", ".join(left_out))
    return tuple(found.values())[:MAX_COMMANDS]


def command_json(command: NativeCommand) -> dict[str, Json]:
    """Return a command as Discord takes it; required options are first."""
    options = sorted(command.options[:_MAX_OPTIONS], key=lambda option: not option.is_required)
    return {
        "name": command.name,
        "description": one_line(command.description, _MAX_CHARS),
        "type": 1,
        "options": [_option_json(each) for each in options if _NAME.fullmatch(each.name)],
        **_PLACES,
    }


async def list_commands(rest: DiscordRest, commands: Sequence[NativeCommand]) -> None:
    """Have Discord list these commands, and no others; an unchanged list is left as it is."""
    wanted = [command_json(one) for one in commands]
    try:
        application = await rest.get("/oauth2/applications/@me")
        path = f"/applications/{application['id']}/commands"
        known = await rest.get(path)
        rows = [row for row in known if isinstance(row, dict)] if isinstance(known, list) else []
        if sorted(map(_comparable, rows)) != sorted(map(_comparable, wanted)):
            await rest.call("PUT", path, wanted)
    except (ChannelError, LookupError, TypeError) as exc:
        log.warning("Discord does not list our commands: %s", exc)


def _option_json(option: CommandOption) -> dict[str, Json]:
    data: dict[str, Json] = {
        "type": _KINDS[option.kind],
        "name": option.name,
        "description": one_line(option.description, _MAX_CHARS) or option.name,
        "required": option.is_required,
    }
    choices = option.choices if len(option.choices) <= _MAX_CHOICES else ()
    if choices and option.kind == "string":
        data["choices"] = [
            {"name": one_line(each, _MAX_CHARS), "value": each[:_MAX_CHARS]} for each in choices
        ]
    return data


def _comparable(row: dict[str, Json]) -> str:
    """Return what we set of a command, without what Discord adds."""
    options = [
        (
            each.get("type"),
            each.get("name"),
            each.get("description"),
            bool(each.get("required")),
            [(one.get("name"), one.get("value")) for one in each.get("choices") or ()],
        )
        for each in row.get("options") or ()
    ]
    places = [sorted(row.get(name) or ()) for name in _PLACES]
    return repr((row.get("name"), row.get("description"), row.get("type", 1), options, places))
