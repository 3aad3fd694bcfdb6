"""OpenClaw's Control UI, from its package, in Chromium against our gateway.

A server of its own serves the page, on another port of this machine, which the config names.
"""

import json
import os
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from homarus.testing.model_server import CallTools, Delay, ModelServer, Say, ScriptedCall
from tests.peers.browser import Browser, Page
from tests.peers.gateway import TOKEN, Running, call, new_home, running_gateway
from tests.peers.install import Original

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

# The tabs whose methods are implemented, and a text that each shows once it has its data.
TABS = {
    "overview": "Snapshot",
    "channels": "Channel health",
    "instances": "Connected Instances",
    "sessions": "agent:main:",
    "usage": "Usage",
    "agents": "main",
    "config": "Settings",
    "logs": "client connected: openclaw-control-ui",
    "debug": "Snapshots",
}
# Its form has no field for a text or an object (`agents.list[].model`), of OpenClaw's gateway too.
KNOWN = "Form view can't safely edit some fields."
ERRORS = (
    "[...document.querySelectorAll('.callout.danger')].map(one => one.innerText)"
    f".filter(text => !text.startsWith({json.dumps(KNOWN)}))"
)


class _PageFiles(SimpleHTTPRequestHandler):
    folder = Path()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, directory=str(self.folder), **named)

    def translate_path(self, path: str) -> str:
        """Return the file of a path; the page itself for the addresses of its tabs."""
        found = super().translate_path(path)
        return found if Path(found).is_file() else str(self.folder / "index.html")

    def log_message(self, *_args: Any) -> None:
        """Write nothing to the terminal."""


@pytest.fixture(scope="module")
def address(original: Original) -> Iterator[str]:
    """Serve the page, and return its address."""
    _PageFiles.folder = original.entry.parent / "dist" / "control-ui"
    server = ThreadingHTTPServer(("127.0.0.1", 0), _PageFiles)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def gateway(
    address: str, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Run a gateway whose config names the page."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path_factory.mktemp("gateway"), kept, model)
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    home.configure({**config, "gateway": {"controlUi": {"allowedOrigins": [address]}}})
    with running_gateway(home) as running:
        yield running


@pytest.fixture
def page(browser: Browser, address: str, gateway: Running) -> Page:
    """Open the page with the address and the token of our gateway in its settings."""
    opened = browser.open(f"{address}/favicon.svg")
    settings = {
        "gatewayUrl": gateway.url,
        "token": TOKEN,
        "sessionKey": "main",
        "lastActiveSessionKey": "main",
        "theme": "dark",
    }
    name = "openclaw.control.settings.v1"
    opened.run(f"localStorage.setItem({name!r}, {json.dumps(json.dumps(settings))})")
    return opened


def test_openclaw_page_chats_and_shows_a_tool(
    page: Page, address: str, gateway: Running, model: ModelServer
) -> None:
    answer = f"lobster-{uuid4().hex[:12]}"
    (gateway.home.workspace / "lamp.txt").write_text("green\n")
    page.go(f"{address}/chat?session=main")
    page.wait_until(
        "document.querySelector('textarea') && !document.querySelector('textarea').disabled"
    )
    model.script([Delay(1.0), CallTools(ScriptedCall("read", {"path": "lamp.txt"}))], [Say(answer)])
    page.type("textarea", "Which colour has the lamp?")
    page.press("Enter")
    page.wait_for_text("body", answer)
    page.wait_for_text("body", "Which colour has the lamp?")
    assert page.run(ERRORS) == []
    assert "client connected: openclaw-control-ui" in gateway.log


def test_openclaw_page_shows_no_error_in_an_implemented_tab(
    page: Page, address: str, gateway: Running
) -> None:
    call(gateway, "sessions.create", key="page")
    for tab, text in TABS.items():
        page.go(f"{address}/{tab}")
        page.wait_for_text("body", text)
        page.wait_until(f"{ERRORS}.length === 0")  # until the schema is there, one says so
