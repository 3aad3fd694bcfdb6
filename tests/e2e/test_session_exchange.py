"""Two agents of a real gateway: one asks the other, they exchange a turn, and a chat is told."""

import asyncio
from pathlib import Path
from typing import Any

from homarus.core.text import one_line
from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall
from tests.crash.harness import Rig, SpawnedProcess, wait_for
from tests.crash.test_rows_exchanges import CONFIG, SOURCE, TARGET, open_exchanges

ASK = {"sessionKey": TARGET, "message": "When do we meet?", "timeoutSeconds": 60}


def open_rig(folder: Path, url: str) -> Rig:
    models = [{"id": "mock-1", "name": "Mock", "contextWindow": 100_000}]
    provider = {"baseUrl": url, "apiKey": "sk-test", "models": models}
    return Rig(
        SpawnedProcess, folder, config=CONFIG | {"models": {"providers": {"mock": provider}}}
    )


def sends(rig: Rig, chat: str) -> list[str]:
    return [send["text"] for send in rig.ledger.get("/ledger")["sends"] if send["chat"] == chat]


def exchange(rig: Rig) -> None:
    """Have a person ask the first agent, and wait until the second has told its chat."""
    rig.offer("hello", "other", marks=("Hello, I help.",))
    rig.start()
    wait_for(lambda: sends(rig, "other"), "the helper has a chat")
    rig.offer("Ask the helper when we meet.", marks=("at noon",))
    wait_for(lambda: len(sends(rig, "other")) == 2 and sends(rig, "chat"), "both chats are told")
    wait_for(lambda: not open_exchanges(rig), "the exchange has ended")


async def test_agents_exchange_a_turn_and_tell_the_chat_once(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.script(
            [Say("Hello, I help.")],
            [CallTools(ScriptedCall("sessions_send", ASK))],
            [Say("At noon, I say.")],  # the helper
            [Say("The helper says: at noon.")],  # to the person
            [Say("REPLY_SKIP")],  # its turn
            [Say("Main asked me when you meet: at noon.")],  # for the chat of the helper
        )
        rig = await asyncio.to_thread(open_rig, tmp_path, server.url)
        try:
            await asyncio.to_thread(exchange, rig)
            await asyncio.to_thread(check_exchanged, rig, list(server.requests))
        finally:
            await asyncio.to_thread(rig.close)


def check_exchanged(rig: Rig, requests: list[Any]) -> None:
    assert len(requests) == 6, [one_line(str(each.body["messages"][-1]), 200) for each in requests]
    assert sends(rig, "chat") == ["The helper says: at noon."]
    assert sends(rig, "other") == ["Hello, I help.", "Main asked me when you meet: at noon."]
    source, target = rig.messages(SOURCE), rig.messages(TARGET)
    asked = [one for one in target if one["role"] == "user"]
    assert [one.get("provenance", {}).get("kind") for one in asked] == [
        None,
        "inter_session",
        "inter_session",
    ]
    assert asked[1]["provenance"]["sourceSessionKey"] == SOURCE
    assert asked[1]["provenance"]["sourceTool"] == "sessions_send"
    [result] = [one for one in source if one["role"] == "toolResult"]
    assert result["details"]["status"] == "ok" and "At noon, I say." in str(result["content"])
    turns = [one for one in source if one["role"] == "user"][1:]
    assert len(turns) == 1 and "turn 1 of 2" in str(turns[0]["content"])
