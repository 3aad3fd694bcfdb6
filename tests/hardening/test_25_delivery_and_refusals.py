"""`agent --deliver` answers in a chat; no refusal makes OpenClaw's command run its own agent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from homarus import __version__
from homarus.core.errors import HomarusError, InvalidRequestError, ProviderError
from homarus.core.message import Address, Json
from homarus.sessions.last_route import route_fields
from homarus.testing.fakes import ListChannel
from tests.unit.gateway.app_harness import Harness, answer, world

KEY = "agent:main:main"
OPENCLAW = {"client": "cli", "version": "dev"}  # what its command sends
POLICY = {"session": {"sendPolicy": {"default": "deny"}}}
UNKNOWN_GROUP = {
    "agents": {"defaults": {"model": "mock/mock-1"}},
    "tools": {"deny": ["group:nothing"]},
}


def asks(run_id: str = "r1", **more: Json) -> dict[str, Json]:
    return {"message": "hi", "sessionKey": KEY, "idempotencyKey": run_id, **more}


async def delivered(channel: ListChannel, count: int = 1) -> list[tuple[str, str]]:
    async with asyncio.timeout(10):
        while len(channel.sent) < count:  # noqa: ASYNC110 - the fake has no event
            await asyncio.sleep(0.005)
    return [(sent.address.chat, sent.text) for sent in channel.sent]


async def set_route(it: Harness, address: Address) -> None:
    session = await it.app.control.load(KEY)
    await session.update(**route_fields({}, address))


@pytest.mark.parametrize(
    ("params", "chat"),
    [
        ({}, "7"),
        ({"channel": "last"}, "7"),
        ({"channel": "whatsapp"}, "7"),  # what OpenClaw's command sends without --channel
        ({"to": "list:42"}, "42"),
        ({"channel": "list", "to": "42"}, "42"),
        ({"replyChannel": "list", "replyTo": "43", "channel": "whatsapp", "to": "42"}, "43"),
    ],
)
async def test_agent_deliver_sends_reply_to_chat(
    params: dict[str, Json], chat: str, tmp_path: Path
) -> None:
    channel = ListChannel()
    async with world(tmp_path, [answer("Ahoy.")], channels=[channel]) as it:
        await set_route(it, Address("list", "7"))
        result = await it.ask("agent", asks(deliver=True, **params), client="cli")
        assert result["result"]["payloads"][0]["text"] == "Ahoy."
        assert await delivered(channel) == [(chat, "Ahoy.")]
        assert not channel.sent[0].extras.reply_to
        entry = (await it.app.control.load(KEY)).record.data
        assert (entry["lastChannel"], entry["lastTo"]) == ("list", "7")  # the route is kept


async def test_agent_without_deliver_sends_nothing(tmp_path: Path) -> None:
    channel = ListChannel()
    async with world(tmp_path, [answer("Ahoy.")], channels=[channel]) as it:
        await set_route(it, Address("list", "7"))
        await it.ask("agent", asks(to="list:42"))
        assert not channel.sent


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "no chat to deliver to"),
        ({"channel": "telegram", "to": "1"}, "there is no channel 'telegram'"),
        ({"to": "list:42", "replyAccountId": "other"}, "has no account 'other'"),
    ],
)
async def test_agent_deliver_without_chat_is_refused_before_the_run(
    params: dict[str, Json], reason: str, tmp_path: Path
) -> None:
    async with world(tmp_path, channels=[ListChannel()]) as it:
        with pytest.raises(InvalidRequestError, match=reason):
            await it.ask("agent", asks(deliver=True, **params))
        assert not it.model.requests


@pytest.mark.parametrize(
    ("config", "params", "scopes", "reason"),
    [
        (POLICY, {}, (), "send blocked by session policy"),
        (UNKNOWN_GROUP, {}, (), "there is no such group of tools"),
        ({}, {"deliver": True}, (), "no chat to deliver to"),
        ({}, {"agentId": "nobody"}, (), "unknown agent id"),
        ({}, {"extraSystemPrompt": "x" * 32_001}, (), "extraSystemPrompt"),
        ({}, {"timeout": "soon"}, (), "invalid agent params"),
        ({}, {}, ("read",), "missing scope"),
        ({}, {}, (), "the service is down"),
    ],
)
async def test_openclaw_command_gets_refusal_as_result(
    config: dict[str, Any],
    params: dict[str, Json],
    scopes: tuple[str, ...],
    reason: str,
    tmp_path: Path,
) -> None:
    async with world(tmp_path, [ProviderError("the service is down")] * 2, config) as it:
        result = await it.ask("agent", asks(**params), *scopes, **OPENCLAW)
        assert result["status"] == "error" and result["runId"] == "r1"
        assert reason in result["summary"]
        assert reason in result["result"]["payloads"][0]["text"]
        with pytest.raises(HomarusError, match=reason):  # other clients get the error
            await it.ask("agent", asks("r2", **params), *scopes, client="cli", version=__version__)
