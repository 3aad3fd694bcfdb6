"""Define chat commands by decorator."""

from types import SimpleNamespace

from homarus.config.schema import Config
from homarus.core.message import Address, Inbound, Json
from homarus.plugins.commands import (
    CommandContext,
    CommandPorts,
    CommandReply,
    command,
    find_commands,
)
from homarus.plugins.values import HookContext

KEY = "agent:main:main"


@command("mood")
async def show_mood(context: CommandContext) -> CommandReply:
    """`/mood [word]`."""
    stored = (await context.entry()).get("mood", "calm")
    return CommandReply(f"Mood: {context.single_arg or stored}", {"mood": context.single_arg})


def make_context(args: str) -> CommandContext:
    async def load_entry(_key: str) -> dict[str, Json]:
        return {"mood": "merry"}

    async def stop_runs(_key: str) -> tuple[str, ...]:
        return ()

    async def call_hooks(_where: HookContext, _name: str, _text: str) -> tuple[str, ...]:
        return ()

    ports = CommandPorts(load_entry, stop_runs, call_hooks, lambda: None)
    inbound = Inbound("1", Address("cli", KEY), "ann", f"/mood {args}", authority="owner")
    return CommandContext(ports, Config(), HookContext(session_key=KEY), KEY, inbound, args)


def test_find_commands_returns_decorated_functions_by_name() -> None:
    found = find_commands(SimpleNamespace(show_mood=show_mood, other=make_context))
    assert found == {"mood": show_mood}


async def test_command_is_called_with_its_context_and_ports() -> None:
    assert make_context("").is_owner
    assert (await show_mood(make_context(""))).text == "Mood: merry"
    reply = await show_mood(make_context(" Bold "))
    assert (reply.text, reply.fields) == ("Mood: bold", {"mood": "bold"})
