"""The Discord channel on our fake of Discord: what it receives."""

import pytest

from homarus.channels.discord import gateway
from homarus.testing.discord_server import (
    ADA,
    BOT,
    DiscordServer,
)
from homarus.testing.fakes import RecordingHandler
from tests.unit.channels.discord_stage import bot, running

OUR_NAME = f"<@{BOT}>"


@pytest.fixture(autouse=True)
def _quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "READY_S", 0.01)


async def test_discord_direct_message_has_user_as_chat() -> None:
    async with DiscordServer() as server:
        desk, channel = RecordingHandler(), bot(server)
        async with running(server, channel, desk):
            id_ = server.say("hello, 👩‍👩‍👧 @everyone")
            (got,) = await desk.received(1)
        assert (got.id, got.text, got.sender) == (id_, "hello, 👩‍👩‍👧 @everyone", str(ADA))
        assert (got.address.chat, got.address.thread) == (f"user:{ADA}", None)
        assert got.metadata.kind == "direct" and got.metadata.name == "Ada"
        assert desk.kept and desk.kept["dms"] == {server.dm(): str(ADA)}
