"""Sandboxed conversations in the real program, with real bubblewrap."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from homarus.gateway.client import GatewayClient
from tests.contract.sandboxes import IMAGE, container_problem, containers
from tests.e2e.gateway import EventRecorder, Gateway, change, connect_client, send
from tests.e2e.program import Home
from tests.unit.tools.network_builders import require_bwrap
from tests.waiting import until

pytestmark = pytest.mark.slow

GROUP = "agent:main:telegram:group:-100"
INSIDE = """
id -u; pwd; echo made > made.txt; ls -A
cat MEMORY.md /agent/MEMORY.md {workspace}/MEMORY.md && echo LEAKED
cat {state}/openclaw.json && echo LEAKED
tail -n +3 /proc/net/dev | cut -d: -f1
"""


def configure(home: Home, **sandbox: object) -> None:
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    settings = {"mode": "non-main", "scope": "session", **sandbox}
    defaults = config["agents"]["defaults"] | {"sandbox": settings}
    tools = {
        "exec": {"security": "full", "ask": "off"},
        "elevated": {"enabled": True, "allowFrom": {"cli": ["*"]}},
    }
    change(home, agents={"defaults": defaults}, tools=tools)


class Conversation:
    """Calls tools in a session by the scripted model."""

    def __init__(self, client: GatewayClient, events: EventRecorder, key: str) -> None:
        self._client, self._events, self._key = client, events, key

    async def say(self, text: str) -> Any:
        return await self._events.end_of(await send(self._client, text, self._key))

    async def use(self, tool: str, **args: Any) -> str:
        """Return the result of a tool call."""
        await self.say(f"MOCK:tool:{tool}:{json.dumps(args)}§")
        given: Any = await self._client.call("chat.history", {"sessionKey": self._key})
        results = [each for each in given["messages"] if each["role"] == "toolResult"]
        return str(results[-1]["content"][0]["text"])


async def test_group_runs_in_a_sandbox_and_main_on_the_machine(
    start: Callable[..., Gateway], home: Home
) -> None:
    require_bwrap()
    configure(home)
    home.workspace.mkdir(parents=True)
    (home.workspace / "MEMORY.md").write_text("LEAKED")
    gateway = start().wait_ready()
    async with connect_client(gateway) as (client, events):
        group, main = (Conversation(client, events, key) for key in (GROUP, "main"))
        command = INSIDE.format(workspace=home.workspace, state=home.state)
        shown = await group.use("exec", command=command)
        assert shown.startswith("1000\n/workspace\nmade.txt\n"), shown
        assert "LEAKED" not in shown
        assert shown.split("\n\n")[0].split()[-1] == "lo", shown
        assert await group.use("read", path="/workspace/made.txt") == "made"
        assert "no such file" in await group.use("read", path="MEMORY.md")
        assert not (home.workspace / "made.txt").exists()
        assert await main.use("exec", command="touch made.txt && pwd") == str(home.workspace)
        assert (home.workspace / "made.txt").exists()
        await group.say("/elevated full")
        assert await group.use("exec", command="pwd") == str(home.workspace)
        await group.say("/elevated off")
        assert await group.use("exec", command="pwd") == "/workspace"
    (box,) = [each for each in (home.state / "sandboxes").iterdir() if each.name != ".data"]
    assert box.name.startswith("main-telegram-group-100-")
    assert (box / "made.txt").read_text() == "made\n"


@pytest.mark.peers
async def test_container_runs_commands_of_all_sessions(
    start: Callable[..., Gateway], home: Home
) -> None:
    if problem := container_problem():
        pytest.skip(problem)
    prefix = f"homarus-test-{os.getpid()}-"
    docker = {"image": IMAGE, "containerPrefix": prefix, "memory": "64m", "env": {"TOKEN": "a b"}}
    configure(home, mode="all", workspaceAccess="rw", docker=docker)
    home.workspace.mkdir(parents=True)
    gateway = start().wait_ready()
    async with connect_client(gateway) as (client, events):
        main = Conversation(client, events, "main")
        command = "hostname; pwd; id -u; echo $TOKEN; echo made > made.txt; ls /usr"
        shown = await main.use("exec", command=command)
        assert shown.startswith("sandbox\n/workspace\n1000\na b\n"), shown
        assert (home.workspace / "made.txt").stat().st_uid == os.geteuid()
        assert await main.use("read", path="/workspace/made.txt") == "made"
        started = await main.use("exec", command="sleep 4711", background=True)
        assert "still runs" in started, started
        await until(lambda: containers(f"name={prefix}"), 0.2)
    gateway.process.kill()
    await until(lambda: not containers(f"name={prefix}"), 0.2)


@pytest.mark.peers
async def test_container_without_its_image_runs_nothing(
    start: Callable[..., Gateway], home: Home
) -> None:
    if problem := container_problem():
        pytest.skip(problem)
    configure(home, mode="all", docker={"image": "localhost/missing:1"})
    gateway = start().wait_ready()
    async with connect_client(gateway) as (client, events):
        main = Conversation(client, events, "main")
        shown = await main.use("exec", command="touch made.txt; echo ran")
    assert "localhost/missing:1 is not on this machine" in shown and "pull" in shown, shown
    assert not (home.workspace / "made.txt").exists()
