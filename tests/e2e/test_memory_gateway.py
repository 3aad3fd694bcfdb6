"""Memory in a running gateway: written and searched by a model, killed, reloaded, stopped."""

import json
import signal
from collections.abc import Callable
from typing import Any

from homarus.gateway.client import GatewayClient
from tests.e2e.gateway import EventRecorder, Gateway, connect_client, send, wait_for
from tests.e2e.program import Home
from tests.unit.memory.embed_server import EmbedServer, Reply

Start = Callable[..., Gateway]
MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:7"
BOAT = "Ada's boat is called Plankton."


async def use(
    client: GatewayClient, events: EventRecorder, tool: str, key: str = MAIN, **args: Any
) -> str:
    """Have the model call a tool; return what the tool returned."""
    run_id = await send(client, f"MOCK:tool:{tool}:{json.dumps(args)}§", key)
    assert (await events.end_of(run_id))["state"] == "final"
    history: Any = await client.call("chat.history", {"sessionKey": key})
    told = [one for one in history["messages"] if one["role"] == "toolResult"]
    return str(told[-1]["content"][0]["text"])


async def search(client: GatewayClient, events: EventRecorder, query: str, key: str = MAIN) -> Any:
    return json.loads(await use(client, events, "memory_search", key, query=query))


def notes(home: Home) -> str:
    files = sorted((home.workspace / "memory").rglob("*.md"))
    return "".join(file.read_text(encoding="utf-8") for file in files)


def settings(home: Home, memory: Any = None, **search: Any) -> None:
    """Add a memory section to the config."""
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    config["agents"]["defaults"]["memorySearch"] = search
    home.configure(config | ({"memory": memory} if memory else {}))


async def test_memory_write_survives_kills_exactly_once(
    home: Home, gateway: Gateway, start: Start
) -> None:
    async def remember(client: GatewayClient, events: EventRecorder) -> None:
        written = json.loads(await use(client, events, "memory_write", text=BOAT))
        assert written["path"].startswith("memory/") and notes(home).count(BOAT) == 1
        found = await search(client, events, "What is the boat called?")
        assert BOAT in found["results"][0]["snippet"]

    async with connect_client(gateway) as (client, events):
        await remember(client, events)
    for times, number in ((2, signal.SIGKILL), (3, signal.SIGTERM)):
        gateway.signal(number)
        assert gateway.end() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        gateway = start().wait_ready(times=times)
        async with connect_client(gateway) as (client, events):
            await remember(client, events)
    assert "Traceback" not in gateway.output


async def test_memory_group_sees_only_shared_notes_where_allowed(
    home: Home, gateway: Gateway
) -> None:
    shared = home.workspace / "memory/shared/rules.md"
    async with connect_client(gateway) as (client, events):
        written = json.loads(await use(client, events, "memory_write", text=BOAT))
        shared.parent.mkdir(parents=True)
        shared.write_text("The boat is washed on Fridays.\n", encoding="utf-8")
        for tool, args in (
            ("memory_search", {"query": "boat"}),
            ("memory_get", {"path": written["path"]}),
        ):
            assert "Plankton" not in await use(client, events, tool, GROUP, **args)
        settings(home, {"qmd": {"scope": {"default": "allow"}}})
        await events.wait(lambda name, _: name == "config.reloaded")
        found = await search(client, events, "boat", GROUP)
        assert [one["path"] for one in found["results"]] == ["memory/shared/rules.md"]
        assert "Plankton" not in await use(
            client, events, "memory_get", GROUP, path=written["path"]
        )
        assert len((await search(client, events, "boat"))["results"]) == 2


async def test_memory_config_reload_disables_and_enables(home: Home, gateway: Gateway) -> None:
    async with connect_client(gateway) as (client, events):
        await use(client, events, "memory_write", text=BOAT)
        for on, words in ((False, "memory_search"), (True, "Plankton")):
            events.all.clear()
            settings(home, enabled=on)
            await events.wait(lambda name, _: name == "config.reloaded")
            told = await use(client, events, "memory_search", query="boat")
            assert words in told and ("Plankton" in told) == on


async def test_memory_note_edited_by_hand_is_found_by_next_search(
    home: Home, gateway: Gateway
) -> None:
    note = home.workspace / "memory/2026-01-01.md"
    async with connect_client(gateway) as (client, events):
        assert (await search(client, events, "walrus"))["results"] == []
        note.parent.mkdir(parents=True, exist_ok=True)
        for name in ("Otto", "Olga"):
            note.write_text(f"- The walrus is called {name}.\n", encoding="utf-8")
            (found,) = (await search(client, events, "walrus"))["results"]
            assert name in found["snippet"]
        note.unlink()
        assert (await search(client, events, "walrus"))["results"] == []


async def test_memory_transcripts_are_found_once_enabled(home: Home, gateway: Gateway) -> None:
    def is_written() -> bool:
        return "zeppelin" in json.dumps(home.transcripts())

    async with connect_client(gateway) as (client, events):
        await events.end_of(await send(client, "I bought a red zeppelin.", "agent:main:hangar"))
        assert (await search(client, events, "airships"))["results"] == []
    wait_for(is_written)
    async with connect_client(gateway) as (client, events):
        settings(home, sources=["memory", "sessions"], experimental={"sessionMemory": True})
        await events.wait(lambda name, _: name == "config.reloaded")
        found = (await search(client, events, "Which zeppelin was it?"))["results"]
        (zeppelin,) = (one for one in found if "I bought" in one["snippet"])
        assert "User: I bought a red zeppelin." in zeppelin["snippet"]
        assert zeppelin["source"] == "sessions"
        text = await use(client, events, "memory_get", path=zeppelin["path"])
        assert "User: I bought a red zeppelin." in json.loads(text)["text"]


async def test_memory_gateway_stop_does_not_wait_for_embedding_service(
    home: Home, start: Start
) -> None:
    with EmbedServer() as server:
        remote = {"baseUrl": f"{server.url}/v1", "apiKey": "sk-embed-0123456789"}
        settings(home, provider="openai", model="m", remote=remote)
        server.replies += [None, *[Reply(hold=True)] * 50]  # it tells its size, and no more
        note = home.workspace / "MEMORY.md"
        note.parent.mkdir(parents=True)
        note.write_text(f"- {BOAT}\n", encoding="utf-8")
        gateway = start().wait_ready()

        async def scene(client: GatewayClient, events: EventRecorder) -> None:
            found = await search(client, events, "boat")  # by its words
            assert BOAT in found["results"][0]["snippet"]

        async with connect_client(gateway) as (client, events):
            await scene(client, events)
        wait_for(lambda: len(server.seen) == 2)
        gateway.signal(signal.SIGTERM)
        assert gateway.end() == 0
    assert "Traceback" not in gateway.output
