"""The network of a sandboxed session in the real program: allowed hosts, refusals, audit log."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.e2e.program import Home
from tests.e2e.test_prompt_injection import tool_results, use
from tests.unit.tools.network_builders import require_bwrap

pytestmark = pytest.mark.slow

FETCH = "env | grep -i proxy; NO_PROXY= no_proxy= curl -sS http://127.0.0.1:{port}/secret; curl -sS https://evil.test/x"


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from outside\n")

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Hello) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def configure(home: Home, model_url: str, allow: list[str], allowed_names: list[str]) -> None:
    home.use_model(model_url, sandbox={"mode": "all"})
    policy = {"tools": {"web": {"fetch": {"ssrfPolicy": {"allowedHostnames": allowed_names}}}}}
    network = {"agents": {"defaults": {"sandbox": {"network": {"allow": allow}}}}}
    (home.state / "homarus.json").write_text(json.dumps(policy | network))


def run_fetch(home: Home, port: int) -> str:
    use(home, "exec", "main", command=FETCH.format(port=port))
    return str(tool_results(home)[-1]["content"][0]["text"])


def test_sandboxed_session_reaches_allowed_hosts_only(
    home: Home, model_url: str, port: int
) -> None:
    require_bwrap()
    if not shutil.which("curl", path="/usr/bin"):
        pytest.skip("curl is not installed")
    configure(home, model_url, [f"127.0.0.1:{port}"], ["127.0.0.1"])
    text = run_fetch(home, port)
    assert "hello from outside" in text
    assert "evil.test:443 is not in sandbox.network.allow" in text
    log = home.run("audit", "--kind", "execution", "--json").out
    assert f"allowed 127.0.0.1:{port}; refused evil.test:443" in log
    assert "/secret" not in log
    configure(home, model_url, [f"127.0.0.1:{port}"], [])
    assert "is not on the public internet (loopback)" in run_fetch(home, port)
    configure(home, model_url, [], ["127.0.0.1"])
    text = run_fetch(home, port)
    assert "hello" not in text
    assert "PROXY" not in text.upper()
