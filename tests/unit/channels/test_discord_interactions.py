"""Slash commands, buttons and menus of Discord, on our fake."""

import pytest

from homarus.agent.commands.listing import native_commands
from homarus.channels.discord import gateway
from homarus.config.schema import CommandsConfig
from homarus.core.approval_button import make_approval_buttons
from homarus.core.message import Button
from homarus.core.native_command import CommandOption, NativeCommand
from homarus.testing.discord_server import ADA, CHANNEL, EVE, GUILD, ROLE, DiscordServer
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.discord_stage import bot, running, send


@pytest.fixture(autouse=True)
def _quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "READY_S", 0.01)


WEATHER = NativeCommand(
    "weather",
    "Say how it will be",
    (
        CommandOption("place", "Where", is_required=True),
        CommandOption("days", "How many", "integer"),
        CommandOption("wind", "With wind", "boolean"),
        CommandOption("unit", "Of degrees", choices=("c", "f")),
    ),
)


async def test_discord_commands_are_listed_with_typed_options() -> None:
    async with DiscordServer() as server:
        channel = bot(server, listed=(WEATHER, NativeCommand("Bad Name", "x")))
        async with running(server, channel, RecordingHandler()):
            await server.until_asked("PUT commands")
        async with running(server, channel, RecordingHandler()):
            await server.until_asked("GET commands", 2)
        (listed,) = server.world.commands
        assert [(one["name"], one["type"]) for one in listed["options"]] == [
            ("place", 3),
            ("days", 4),
            ("wind", 5),
            ("unit", 3),
        ]
        assert len(server.books.of("PUT commands")) == 1  # an unchanged list is left


async def test_discord_takes_every_command_of_ours() -> None:
    ours = native_commands(CommandsConfig(config=True, debug=True, bash=True))
    async with DiscordServer() as server:
        async with running(server, bot(server, listed=ours), RecordingHandler()):
            await server.until_asked("PUT commands")
        assert [one["name"] for one in server.world.commands] == [one.name for one in ours]


async def test_discord_commands_are_taken_away_if_off() -> None:
    async with DiscordServer() as server:
        server.world.commands = [{"name": "old", "description": "x", "options": []}]
        channel = bot(server, listed=(WEATHER,), commands={"native": False})
        async with running(server, channel, RecordingHandler()):
            await server.until_asked("PUT commands")
        assert server.world.commands == []


async def test_discord_command_is_message_of_its_chat() -> None:
    async with DiscordServer() as server:
        server.world.members[str(ADA)] = [str(ROLE)]
        desk, channel = RecordingHandler(), bot(server, listed=(WEATHER,))
        async with running(server, channel, desk):
            await server.until_asked("PUT commands")
            values = {"place": "Oslo", "days": 2, "wind": True, "unit": "c"}
            id_ = server.command("weather", values, CHANNEL)
            server.command("weather", {"place": "Rome"})
            in_room, direct = await desk.received(2)
            await server.until_asked("POST callback", 2)
        assert (in_room.text, in_room.id) == ("/weather Oslo 2 on c", f"interaction:{id_}")
        assert in_room.address.chat == str(CHANNEL) and in_room.metadata.mentioned
        assert (in_room.metadata.guild, in_room.metadata.roles) == (str(GUILD), (str(ROLE),))
        assert (direct.text, direct.address.chat) == ("/weather Rome", f"user:{ADA}")
        ack = server.rest.interactions[id_]
        assert ack == {"type": 4, "data": {"content": "Received.", "flags": 64}}


async def test_discord_stranger_gets_same_acknowledgement() -> None:
    async with DiscordServer() as server:
        desk = RecordingHandler(leaves=True)
        async with running(server, bot(server, listed=(WEATHER,)), desk):
            await server.until_asked("PUT commands")
            ids = [server.command("weather", {"place": "Oslo"}, CHANNEL, who) for who in (ADA, EVE)]
            await server.until_asked("POST callback", 2)
        assert server.rest.interactions[ids[0]] == server.rest.interactions[ids[1]]


async def test_discord_command_in_chat_without_bot_is_ignored() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server, listed=(WEATHER,))
        async with running(server, channel, desk):
            await server.until_asked("PUT commands")
            data = {"id": "1", "name": "weather", "type": 1}
            with_eve = {"id": "77001", "type": 1, "recipients": [server.world.users[str(EVE)]]}
            id_ = server.acts.interact(2, data, 0, ADA, context=2, channel=with_eve)
            await server.until_asked("POST callback")
            await send(channel, "Rain.")  # to the direct chat with the bot, and not to that one
            server.say("end")
            (end,) = await desk.received(1)
        assert end.text == "end" and [one["content"] for one in server.sent(server.dm())] == [
            "Rain."
        ]
        assert server.rest.interactions[id_]["type"] == 4
        (listed,) = server.world.commands
        assert (listed["contexts"], listed["integration_types"]) == ([0, 1], [0])


async def test_discord_press_sends_visible_label() -> None:
    rows = ((Button("Yes", "y"), Button("No", "n")),)
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            ours = (await send(channel, "Sail?", str(CHANNEL), buttons=rows)).message_id
            id_ = server.press(ours, "No", CHANNEL)
            (got,) = await desk.received(1)
            await server.until_asked("POST callback")
        assert (got.text, got.sender, got.metadata.reply_to) == ("No", str(ADA), ours)
        assert got.metadata.is_press and got.metadata.quoted == "Sail?"
        assert server.rest.interactions[id_] == {"type": 6}


async def test_discord_more_than_five_choices_are_a_menu() -> None:
    rows = (tuple(Button(f"Day {n}", f"d{n}") for n in range(7)),)
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            ours = (await send(channel, "When?", buttons=rows)).message_id
            server.press(ours, "Day 3")
            (got,) = await desk.received(1)
        assert got.text == "Day 3" and got.address.chat == f"user:{ADA}"


async def test_discord_press_under_message_of_another_is_nothing() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        row = {"type": 1, "components": [{"type": 2, "style": 2, "label": "Go", "custom_id": "g"}]}
        async with running(server, channel, desk):
            theirs = server.say("press", CHANNEL, EVE, components=[row])
            await desk.received(1)
            id_ = server.press(theirs, "Go", CHANNEL)
            await server.until_asked("POST callback")
        assert desk.texts == ["press"] and server.rest.interactions[id_] == {"type": 6}


@pytest.mark.parametrize(
    ("approvers", "who", "is_decision"),
    [
        ([], EVE, True),
        ([ADA], ADA, True),
        ([f"discord:{ADA}"], ADA, True),
        ([ADA], EVE, False),
        (["*"], EVE, False),
    ],
)
async def test_discord_approval_is_answered_by_approvers_only(
    approvers: list[int | str], who: int, is_decision: bool
) -> None:
    buttons = (make_approval_buttons("abcd-1234", offers_always=False),)
    async with DiscordServer() as server:
        desk = RecordingHandler()
        channel = bot(server, execApprovals={"approvers": approvers})
        async with running(server, channel, desk):
            ours = (await send(channel, "May I?", str(CHANNEL), buttons=buttons)).message_id
            server.press(ours, "Allow once", CHANNEL, who)
            (got,) = await desk.received(1)
            server.say("/approve abcd-1234 allow-once", CHANNEL, who)
            server.say("end", CHANNEL, who)
            rest = (await desk.received(2 + is_decision))[1:]
        assert got.metadata.approval == ("abcd-1234 allow-once" if is_decision else "")
        assert [one.text for one in rest][:-1] == ["/approve abcd-1234 allow-once"] * is_decision


async def test_discord_approval_behind_any_name_is_for_approvers() -> None:
    async with DiscordServer() as server:
        desk = RecordingHandler()
        channel = bot(server, execApprovals={"approvers": [ADA]})
        async with running(server, channel, desk):
            server.say("@harbour\n/APPROVE abcd-1234 allow-once", CHANNEL, EVE)
            server.say("how does /approve work?", CHANNEL, EVE)
            (got,) = await desk.received(1)
        assert got.text == "how does /approve work?"
