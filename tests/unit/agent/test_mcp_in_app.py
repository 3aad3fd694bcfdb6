"""MCP servers in the complete program: a run finds, calls and is marked by a server's tool."""

import json
import os
from pathlib import Path

import pytest

from bench.app import ask, configure, model_server
from homarus.process import open_app
from tests.unit.tools.mcp_builders import script
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)
KEY = "agent:main:main"


async def test_first_run_uses_the_tool_of_a_server_never_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"HOME": str(tmp_path), "OPENCLAW_STATE_DIR": str(tmp_path / "state")}
    with model_server() as url:
        configure(tmp_path, url)
        file = tmp_path / "state" / "openclaw.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        config["mcp"] = {"servers": {"raw": script("raw")}}
        file.write_text(json.dumps(config), encoding="utf-8")
        async with open_app({**env, "PATH": os.environ["PATH"]}) as app:
            monkeypatch.setattr(app.mcp, "_discovery_s", 100)  # the machine may be busy
            assert "raw__act" not in app.tools("main")
            await ask(app, KEY, 'Do MOCK:tool:raw__act:{"text":"moin"}§')
            assert "raw__act" in app.tools("main")
            session = await app.control.load(KEY)
            stored = json.dumps([str(each) for each in session.messages])
            assert "moin 1" in stored and "EXTERNAL_UNTRUSTED_CONTENT" in stored
            [connection] = app.mcp.get_pool().connections
            assert connection.pid
        assert connection.is_closed
        await until(lambda: not Path(f"/proc/{connection.pid}").exists(), 0.01)
