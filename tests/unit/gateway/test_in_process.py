"""A gateway inside of this process: the same methods and events, and nothing that listens."""

from pathlib import Path

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.gateway.in_process import open_in_process_gateway
from homarus.process import open_app
from homarus.testing.model_server import HangUntilDisconnect, ModelServer, Say
from tests.unit.agent.test_media_program import write_home


async def test_message_is_answered_with_events_and_history(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.script([Say("Hello **you**")])
        async with (
            open_app(write_home(tmp_path, server.url)) as app,
            open_in_process_gateway(app.gateway_services()) as client,
        ):
            params = {"sessionKey": "main", "message": "hi", "idempotencyKey": "run-1"}
            assert await client.call("chat.send", params) == {"runId": "run-1", "status": "started"}
            async for name, payload in client.events():
                if name == "chat" and payload["state"] == "final":
                    break
            history = await client.call("chat.history", {"sessionKey": "main"})
            assert "Hello **you**" in str(history)
            assert history["sessionInfo"]["queueDepth"] == 0
            with pytest.raises(InvalidRequestError):
                await client.call("no.such.method")
    assert not list((tmp_path / ".openclaw").rglob("gateway.json"))


async def test_run_is_stopped_when_the_client_leaves(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.script([HangUntilDisconnect()])
        async with open_app(write_home(tmp_path, server.url)) as app:
            async with open_in_process_gateway(app.gateway_services()) as client:
                params = {"sessionKey": "main", "message": "hi", "idempotencyKey": "run-1"}
                await client.call("chat.send", params)
                async for name, payload in client.events():
                    if name == "agent" and payload["stream"] == "lifecycle":
                        break
            assert not app.control.active_runs()
            row = await app.store.journal.inbox_record("run-1")
            assert row is not None
            assert row.why == "aborted"
