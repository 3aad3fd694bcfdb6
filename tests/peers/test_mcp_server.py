"""The gateway as an MCP server, used by the official TypeScript clients, over stdio and HTTP."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import Json
from homarus.testing.model_server import ModelServer
from tests.peers.gateway import TOKEN, Running, call, new_home, running_gateway
from tests.peers.install import npm

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs them

HERE = Path(__file__).parent / "mcp-client"
LIBRARIES = ("sdk", "client")  # of the handshake versions, and of 2026-07-28
ANSWER = "Hello from the mock model."
KEY = "agent:main:peer"
READ = {
    "conversations_list",
    "conversation_get",
    "messages_read",
    "sessions_list",
    "sessions_history",
}


@pytest.fixture(scope="session")
def client() -> Path:
    """Return the script that uses the clients, next to their packages."""
    folder = npm(HERE)
    return Path(shutil.copy(HERE / "client.mjs", folder / "client.mjs"))


@pytest.fixture(scope="module")
def gateway(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path_factory.mktemp("gateway"), kept, model)
    endpoint = {"endpoints": {"mcp": {"enabled": True}}}
    (home.state / "homarus.json").write_text(json.dumps({"gateway": {"http": endpoint}}))
    with running_gateway(home) as running:
        yield running


def use(client: Path, library: str, calls: list[Json], **where: Json) -> Any:
    asked = json.dumps({"library": library, "calls": calls, **where})
    done = subprocess.run(
        ["node", str(client), asked], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def over_stdio(gateway: Running, *args: str) -> dict[str, Json]:
    command = ["-m", "homarus", "mcp", "serve", *args]
    env = {**gateway.home.env, "OPENCLAW_GATEWAY_TOKEN": TOKEN}
    cwd = str(gateway.home.path)
    return {"stdio": {"command": sys.executable, "args": command, "env": env, "cwd": cwd}}


def over_http(gateway: Running, token: str = TOKEN, **headers: str) -> dict[str, Json]:
    return {
        "url": f"{gateway.page}mcp",
        "headers": {"Authorization": f"Bearer {token}", **headers},
    }


CALLS: list[Json] = [
    ["sessions_send", {"message": "MOCK:short", "sessionKey": KEY}],
    ["sessions_history", {"sessionKey": KEY, "limit": 2}],
    ["sessions_list", {"search": KEY}],
    ["permissions_list_open", {}],
    ["memory_search", {}],
    ["no_such_tool", {}],
]


def check_results(output: Any) -> None:
    assert output.get("error") is None, output
    assert output["server"]["name"] == "homarus"
    assert {"sessions_send", "memory_search", "messages_send"} <= {*output["tools"]}
    sent, history, listed, approvals, invalid, unknown = output["results"]
    assert sent["structuredContent"]["reply"] == ANSWER
    assert json.loads(sent["content"][0]["text"]) == sent["structuredContent"]
    told = history["structuredContent"]["messages"]
    assert [(row["role"], row["text"]) for row in told] == [
        ("user", "MOCK:short"),
        ("assistant", ANSWER),
    ]
    assert [row["key"] for row in listed["structuredContent"]["sessions"]] == [KEY]
    assert approvals["structuredContent"] == {"approvals": []}
    assert invalid["isError"] and "query" in invalid["content"][0]["text"]
    assert "no_such_tool" in unknown["error"] and unknown["code"] == -32602


@pytest.mark.parametrize("library", LIBRARIES)
def test_typescript_client_uses_the_server_over_stdio(
    client: Path, gateway: Running, library: str
) -> None:
    check_results(use(client, library, CALLS, **over_stdio(gateway)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_typescript_client_uses_the_server_over_http(
    client: Path, gateway: Running, library: str
) -> None:
    check_results(use(client, library, CALLS, **over_http(gateway)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_typescript_client_with_a_wrong_token_is_refused(
    client: Path, gateway: Running, library: str
) -> None:
    output = use(client, library, CALLS, **over_http(gateway, "wrong"))
    assert "tools" not in output and output["error"]
    output = use(client, library, CALLS, **over_http(gateway, Origin="https://evil.example"))
    assert "tools" not in output and output["error"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_typescript_client_with_read_scope_only_reads(
    client: Path, gateway: Running, library: str
) -> None:
    before: Any = call(gateway, "sessions.list")
    where = over_stdio(gateway, "--scope", "operator.read")
    output = use(client, library, [["sessions_send", {"message": "MOCK:short"}]], **where)
    assert {*output["tools"]} == READ
    [refused] = output["results"]
    assert refused["isError"] and "operator.write" in refused["content"][0]["text"]
    after: Any = call(gateway, "sessions.list")
    assert after["count"] == before["count"]
