"""Our fake of Discord is as strict as its documentation."""

import json
from typing import Any

import pytest

from homarus.channels.discord.rest import DiscordRefusedError, DiscordRest
from homarus.core.message import Json
from homarus.testing.discord_server import BOT, CHANNEL, FORUM, DiscordServer

QUIET: dict[str, Json] = {"allowed_mentions": {"parse": []}}
PLACE = {"name": "place", "description": "Where", "type": 3, "required": True}
BUTTON = {"type": 2, "style": 2, "label": "Go", "custom_id": "g"}


async def post(data: Json, channel: int = CHANNEL) -> Any:
    async with DiscordServer() as server:
        rest = DiscordRest(server.url, server.token)
        return await rest.call("POST", f"/channels/{channel}/messages", data)


def row(*parts: Json) -> list[Json]:
    return [{"type": 1, "components": [*parts]}]


@pytest.mark.parametrize(
    "data",
    [
        {"content": ""},
        {"content": "x" * 2_001},
        {"content": "x", "nonce": "n" * 26},
        {"content": "x", "enforce_nonce": True},
        {"content": "x", "unknown": 1},
        {"content": "x", "flags": 1 << 6},
        {"content": "x", "attachments": [{"id": 0}]},
        {"content": "x", "message_reference": {"message_id": "1"}},
        {"content": "x", "components": row(*[BUTTON] * 2)},
        {"content": "x", "components": row()},
        {"content": "x", "components": row({**BUTTON, "label": "x" * 81})},
        {"content": "x", "components": row({**BUTTON, "custom_id": "x" * 101})},
        {"content": "x", "components": [*row(BUTTON), BUTTON]},
        {"content": "x", "components": row({"type": 3, "custom_id": "m", "options": []})},
        {"poll": {"question": {"text": ""}, "answers": [], "duration": 1}},
    ],
    ids=lambda data: json.dumps(data)[:40],
)
async def test_fake_discord_refuses_invalid_messages(data: dict[str, Json]) -> None:
    with pytest.raises(DiscordRefusedError) as caught:
        await post({**data, **QUIET})
    assert caught.value.status in {400, 404}


@pytest.mark.parametrize(
    "data",
    [
        {"name": "Weather"},
        {"description": ""},
        {"description": "x" * 101},
        {"options": [{**PLACE, "required": False}, {**PLACE, "name": "day"}]},
        {"options": [PLACE, PLACE]},
        {"options": [{**PLACE, "choices": [{"name": "", "value": "x"}]}]},
    ],
    ids=lambda data: json.dumps(data)[:40],
)
async def test_fake_discord_refuses_invalid_commands(data: dict[str, Json]) -> None:
    command = {"name": "weather", "description": "Say how it will be", "type": 1, **data}
    async with DiscordServer() as server:
        rest = DiscordRest(server.url, server.token)
        with pytest.raises(DiscordRefusedError, match="Invalid Form Body"):
            await rest.call("PUT", f"/applications/{BOT}/commands", [command])


async def test_fake_discord_refuses_mentions_and_wrong_places() -> None:
    for data, channel in (({"content": "x"}, CHANNEL), ({"content": "x", **QUIET}, FORUM)):
        with pytest.raises(DiscordRefusedError):
            await post(data, channel)
    assert (await post({"content": "x", **QUIET}))["content"] == "x"


async def test_fake_discord_nonce_returns_first_message_until_forgotten() -> None:
    async with DiscordServer() as server:
        rest = DiscordRest(server.url, server.token)
        data = {"content": "x", "nonce": "n", "enforce_nonce": True, **QUIET}
        path = f"/channels/{CHANNEL}/messages"
        first, second = [await rest.call("POST", path, data) for _ in range(2)]
        server.world.nonces.clear()
        third = await rest.call("POST", path, data)
        assert first["id"] == second["id"] != third["id"]
