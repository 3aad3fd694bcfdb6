"""The official servers: those of the Python and the TypeScript SDK, by stdio and by HTTP."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.install import npm
from tests.unit.tools.mcp_builders import SERVERS, open_world, script
from tests.waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]  # the first run installs it

EVERYTHING = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"


@pytest.fixture(scope="session")
def everything() -> tuple[str, str]:
    """Node, and the reference server of the TypeScript SDK."""
    folder = npm(Path(__file__).parent / "mcp_typescript")
    node = shutil.which("node")
    assert node is not None
    return node, str(folder / EVERYTHING)


@contextmanager
def running(command: list[str], port: int, **env: str) -> Iterator[None]:
    """Run a server until it listens on the port, and end it with the block."""
    kept = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **env}
    with subprocess.Popen(
        command, env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        try:
            asyncio.run(until(lambda: is_listening(port), 0.05))
            yield
        finally:
            process.kill()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: int = server.getsockname()[1]
        return found


async def use_everything(home: Path, settings: dict[str, Any]) -> None:
    """List, call with progress, read a resource and get a prompt."""
    async with open_world(home, {"all": settings}) as world:
        names = await world.begin_run()
        assert {"all__echo", "all__get-sum", "all__resources_read", "all__prompts_get"} <= names
        assert "Echo: hello" in (await world.call("all__echo", message="hello")).text
        assert "5" in (await world.call("all__get-sum", a=2, b=3)).text
        name = "all__trigger-long-running-operation"
        result = await world.call(name, duration=2, steps=4)
        assert not result.is_error and world.progress
        wrong = await world.call("all__get-sum", a="x", b=3)
        assert wrong.is_error
        listed = (await world.call("all__prompts_list")).text
        assert "simple-prompt" in listed
        assert not (await world.call("all__prompts_get", name="simple-prompt")).is_error
        assert "uri" in (await world.call("all__resources_list")).text


async def test_typescript_server_works_over_stdio(
    tmp_path: Path, everything: tuple[str, str]
) -> None:
    node, entry = everything
    await use_everything(tmp_path, {"command": node, "args": [entry, "stdio"]})


def test_typescript_server_works_over_http(tmp_path: Path, everything: tuple[str, str]) -> None:
    port = free_port()
    with running([*everything, "streamableHttp"], port, PORT=str(port)):
        asyncio.run(use_everything(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}))


async def use_notes(home: Path, settings: dict[str, Any]) -> None:
    async with open_world(home, {"notes": settings}) as world:
        assert "notes__add" in await world.begin_run()
        assert "5" in (await world.call("notes__add", a=2, b=3)).text
        await world.call("notes__work", steps=3)
        assert world.progress
        assert "Buy milk." in (await world.call("notes__resources_read", uri="notes://today")).text
        file = home / "cancelled"
        async with asyncio.TaskGroup() as group:
            call = group.create_task(world.call("notes__wait", path=str(file)))
            await until(Path(f"{file}.started").exists, 0.01)
            call.cancel()
        await until(lambda: file.exists() and file.read_text(), 0.01)


async def test_python_server_works_over_stdio(tmp_path: Path) -> None:
    await use_notes(tmp_path, script("notes"))


def test_python_server_works_over_http(tmp_path: Path) -> None:
    port = free_port()
    with running([sys.executable, str(SERVERS / "notes.py"), "--http", str(port)], port):
        asyncio.run(use_notes(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}))
