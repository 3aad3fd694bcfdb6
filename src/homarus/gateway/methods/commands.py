"""Methods for the chat commands."""

import asyncio
import re
from typing import TYPE_CHECKING, Literal

from homarus.agent.commands.catalog import CommandSpec
from homarus.agent.commands.listing import implemented_commands
from homarus.config.agent_settings import default_agent_id
from homarus.core.message import Json
from homarus.core.session_keys import main_key, normalize_agent_id
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name

if TYPE_CHECKING:  # imported by the first call
    from homarus.skills.commands import SkillCommand

_CHOICES = re.compile(r"[a-z-]+(?:\|[a-z-]+)+")


class CommandListParams(Params):
    """Which commands; `provider` is a chat service, and changes nothing."""

    session_key: Name | None = None
    agent_id: Name | None = None
    provider: Name | None = None
    scope: Literal["text", "native", "both"] = "both"
    include_args: bool = True


@method("commands.list", scope="read", params=CommandListParams)
async def list_(call: MethodCall, params: CommandListParams) -> Json:
    """The chat commands that a message may contain, as `/commands` names them."""
    key = params.session_key or main_key(default_agent_id(call.services.loaded.config))
    if params.agent_id:
        agent = call.services.agent(normalize_agent_id(params.agent_id))  # raises if there is none
        key = main_key(agent.id)
    shown = [
        _row(spec, with_args=params.include_args)
        for spec in implemented_commands()
        if params.scope == "both" or spec.scope in {params.scope, "both"}
    ]
    found = await asyncio.to_thread(call.services.skill_ports.commands, key)
    skills = [_skill_row(command, with_args=params.include_args) for command in found]
    return {"commands": [*shown, *skills]}


def _skill_row(command: "SkillCommand", *, with_args: bool) -> dict[str, Json]:
    row: dict[str, Json] = {
        "name": command.name,
        "nativeName": command.name,
        "textAliases": [f"/{command.name}"],
        "description": command.description,
        "category": "tools",
        "source": "skill",
        "scope": "both",
        "acceptsArgs": True,
    }
    value = {"name": "input", "description": "[input]", "type": "string"}
    return {**row, "args": [value]} if with_args else row


def _row(spec: CommandSpec, *, with_args: bool) -> dict[str, Json]:
    row: dict[str, Json] = {
        "name": spec.name,
        **({"nativeName": spec.name} if spec.scope != "text" else {}),
        "textAliases": [f"/{name}" for name in (spec.name, *spec.aliases)],
        "description": spec.help,
        **({"category": spec.category} if spec.category != "docks" else {}),
        "source": "native",
        "scope": spec.scope,
        "acceptsArgs": bool(spec.args),
    }
    return {**row, "args": [_argument(spec)]} if with_args and spec.args else row


def _argument(spec: CommandSpec) -> dict[str, Json]:
    """Return what may follow the command; a list of words becomes its choices."""
    words = spec.args.strip("[]")
    shown: dict[str, Json] = {"name": "value", "description": spec.args, "type": "string"}
    if _CHOICES.fullmatch(words):
        shown["choices"] = [{"value": word, "label": word} for word in words.split("|")]
    return shown
