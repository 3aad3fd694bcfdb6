"""A call that blocks the event loop: the log says where, and health is red afterwards."""

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from homarus.core.loop_monitor import LoopMonitor
from homarus.gateway.http_server import GatewayAsgiApp
from homarus.gateway.method import MethodCall, NoParams, find_methods, method
from homarus.gateway.methods.system import HealthParams, health
from tests.unit.gateway.harness import play
from tests.unit.gateway.test_http_server import get

TOLD = threading.Event()


@method("block", scope="read", params=NoParams)
async def block(_call: MethodCall, _params: NoParams) -> bool:
    """What a careless tool does: it waits, and everybody waits with it."""
    TOLD.clear()  # a slow disk may have blocked the loop before
    return TOLD.wait(60)


async def test_row_41_blocking_call_is_logged_with_stack_and_health_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    TOLD.clear()
    with pytest.MonkeyPatch.context() as patch:
        quick = LoopMonitor(tick_s=0.01, limit_s=0.5, on_stall=TOLD.set)
        patch.setattr("homarus.gateway.server.LoopMonitor", lambda: quick)
        async with play(tmp_path) as stage:
            gateway = stage.gateway
            gateway.methods = find_methods(SimpleNamespace(block=block, health=health))
            assert gateway.monitor.is_stalled is False
            peer = await stage.enter()
            await asyncio.sleep(0.05)  # the loop ticks
            peer.ask("1", "block")
            await stage.settle()
            assert peer.answers("1")[0]["payload"] is True, "somebody noticed while it was blocked"
            page = await get(GatewayAsgiApp(gateway), "/health")
            assert (page.status, json.loads(page.body)) == (503, {"ok": False, "status": "blocked"})
            peer.ask("2", "health", HealthParams(probe=True).model_dump())
            await stage.settle()
            told = peer.answers("2")[0]["payload"]
            assert told["ok"] is False and told["loop"]["stalls"] >= 1
    assert "the event loop has been blocked for" in caplog.text
    assert "return TOLD.wait(60)" in caplog.text
