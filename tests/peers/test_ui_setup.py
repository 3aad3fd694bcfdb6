"""When the control UI offers the setup: not while a model can answer."""

import os
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, WebSocket

from tests.e2e.program import Home
from tests.peers.gateway import LOG, running_gateway
from tests.peers.ui import WAIT_MS, new_page

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("ui_tools")]


def test_setup_is_not_offered_with_a_key_in_the_environment(
    ui_browser: Browser, tmp_path: Path
) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    env = {**kept, "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "sk-ant-test", "NO_PROXY": "*"}
    home = Home(tmp_path, env)
    home.configure({"logging": {"file": str(tmp_path / LOG)}})
    answers: list[str] = []

    def record(socket: WebSocket) -> None:
        socket.on("framereceived", lambda data: answers.append(str(data)))

    with running_gateway(home, ui=True) as gateway:
        page = new_page(ui_browser)
        page.tab.on("websocket", record)
        page.open(gateway, "agents")
        deadline_s = time.monotonic() + WAIT_MS / 1000
        while not any('"tried"' in answer for answer in answers):  # the answer of models.status
            assert time.monotonic() < deadline_s
            page.tab.evaluate("new Promise(requestAnimationFrame)")
        page.tab.get_by_role("tab", name="Identity").wait_for()
        assert page.tab.get_by_role("link", name="Set up your assistant").count() == 0
        assert page.problems == []
