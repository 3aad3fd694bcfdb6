"""The complete program with a chat: a picture and a document reach a model without sight."""

import asyncio
import json
from pathlib import Path
from typing import Any

from homarus.agent.media.run_media import KIND
from homarus.channels.base import Capabilities, InboundHandler, Receipt
from homarus.core.envelope import strip_envelope
from homarus.core.message import Address, Inbound, Media, Outbound
from homarus.process import open_app
from homarus.testing.model_server import ModelServer, ReportedUsage, Say
from tests.unit.agent.test_image_scaling import png

GUARD_S = 60.0
FILES = {"photo": png(2_000, 10), "table": b"name,age\nann,7\n"}


class FileChat:
    """A service whose one user sends a picture and a table. A fake."""

    name, account = "svc", "default"
    capabilities = Capabilities(4_000, idempotent=True)

    def __init__(self) -> None:
        self.sent: list[Outbound] = []
        self.is_answered = asyncio.Event()

    async def run(self, receive: InboundHandler) -> None:
        media = (
            Media("image", "image/png", "bike.png", ref="photo"),
            Media("document", "text/csv", "people.csv", ref="table"),
        )
        await receive(Inbound("q1", Address("svc", "ann"), "ann", "what is it?", media=media))
        await asyncio.Event().wait()

    async def fetch(self, media: Media, _max_bytes: int) -> bytes:
        return FILES[media.ref]

    async def send(self, message: Outbound) -> Receipt:
        self.sent.append(message)
        self.is_answered.set()
        return Receipt("m1")


def write_home(folder: Path, url: str) -> dict[str, str]:
    """Write a config with a model that is blind, and one for pictures, on one fake server."""
    state = folder / ".openclaw"
    (state / "credentials").mkdir(parents=True)
    allowed = '{"version": 1, "allowFrom": ["ann"]}'
    (state / "credentials" / "svc-allowFrom.json").write_text(allowed)
    cost = {"input": 1.0, "output": 2.0, "cacheRead": 0, "cacheWrite": 0}
    models = [
        {"id": "blind", "name": "Blind", "input": ["text"], "contextWindow": 100_000},
        {"id": "eye", "name": "Eye", "input": ["text", "image"], "cost": cost},
    ]
    chosen = {"model": {"primary": "fake/blind"}, "imageModel": {"primary": "fake/eye"}}
    # The model for pictures need not be among those that a conversation may use.
    defaults = chosen | {"models": {"fake/blind": {}}, "imageMaxDimensionPx": 500}
    provider = {"baseUrl": f"{url}/v1", "apiKey": "k", "models": models}
    config = {"agents": {"defaults": defaults}, "models": {"providers": {"fake": provider}}}
    (state / "openclaw.json").write_text(json.dumps(config))
    return {"HOME": str(folder)}


def user_text(body: dict[str, Any]) -> str:
    return json.dumps([each for each in body["messages"] if each["role"] == "user"])


async def test_program_describes_a_picture_and_attaches_a_table(tmp_path: Path) -> None:
    chat = FileChat()
    async with asyncio.timeout(GUARD_S), ModelServer() as server:
        server.script(
            [Say("A red bicycle."), ReportedUsage(given=1_000, answered=500)], [Say("Nice bike.")]
        )
        async with open_app(write_home(tmp_path, server.url), channels=[chat]) as app:
            await app.recover()
            await chat.is_answered.wait()
            (key,) = [record.key for record in await app.store.sessions()]
            session = await app.sessions.load(key, "main")
            usage = await app.store.usage_records()
            assert await app.store.records(KIND) == {}
        asked, answered = (request.body for request in server.requests)
    assert chat.sent[0].text == "Nice bike."
    assert asked["model"] == "eye" and "image_url" in user_text(asked)
    assert answered["model"] == "blind" and "image_url" not in user_text(answered)
    seen = user_text(answered)
    for part in ("[Image]", "User text:", "Description:", "A red bicycle.", "ann,7", "<file name="):
        assert part in seen
    shown = strip_envelope(session.messages[0].text)
    assert shown.startswith("[Svc ann] what is it?\n[media attached: ")
    assert "bicycle" not in shown and "ann,7" not in shown
    rows = [(each.model, each.usage.cost, each.session) for each in usage]
    assert ("eye", 0.002, key) in rows and "blind" in {model for model, _, _ in rows}
