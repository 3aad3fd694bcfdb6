"""The real gateway process on a free port, and the scripted model behind it."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from websockets.sync.client import connect

from homarus.core.message import Json
from homarus.testing.model_server import ModelServer
from tests.e2e.program import Home

TOKEN = "peers-" + "0123456789abcdef"
LOG = "gateway.log"
READY_S = 30.0


@dataclass
class Running:
    """A running gateway: its address and output."""

    home: Home
    port: int
    process: subprocess.Popen[str]

    @property
    def page(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Return its log."""
        return (self.home.path / LOG).read_text(encoding="utf-8")


@contextmanager
def running_gateway(
    home: Home, port: int = 0, *, ui: bool = False, program: Path | None = None
) -> Iterator[Running]:
    """Run `homarus gateway run` while the block lasts; without `ui` it has the plain page.

    An installed `program` makes its own token; that of this checkout gets one.
    """
    command = [str(program)] if program else [sys.executable, "-m", "homarus"]
    token = {} if program else {"OPENCLAW_GATEWAY_TOKEN": TOKEN}
    process = subprocess.Popen(
        [*command, "gateway", "run", "--port", str(port)],
        env={
            **home.env,
            **token,
            "PYTHONUNBUFFERED": "1",
            "HOMARUS_NO_UI": "" if ui else "1",
        },
        cwd=home.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    more = threading.Condition()
    reader = threading.Thread(target=_read, args=(process, lines, more))
    reader.start()
    try:
        found = _wait_for(r"(?:wss?|https?)://[^\s/]+:(\d+)", lines, more, process)
        yield Running(home, int(found[1]), process)
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        finally:
            process.kill()
            reader.join()
            if process.stdout is not None:
                process.stdout.close()


def _read(process: subprocess.Popen[str], lines: list[str], more: threading.Condition) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with more:
            lines.append(line)
            more.notify_all()
    with more:
        more.notify_all()


def _wait_for(
    pattern: str, lines: list[str], more: threading.Condition, process: subprocess.Popen[str]
) -> re.Match[str]:
    deadline_s = time.monotonic() + READY_S
    with more:
        while not (found := re.search(pattern, "".join(lines))):
            left_s = deadline_s - time.monotonic()
            assert process.poll() is None, f"the gateway ended: {''.join(lines)}"
            assert left_s > 0, f"no {pattern!r} in {''.join(lines)}"
            more.wait(min(left_s, 0.5))
    return found


def call(gateway: Running, method: str, /, **params: Json) -> Json:
    """Call a method as a program of this machine that has the token."""
    with connect(gateway.url, proxy=None) as socket:
        socket.recv()
        client = {"id": "test", "version": "1", "platform": "linux", "mode": "test"}
        asked: dict[str, Json] = {"minProtocol": 4, "maxProtocol": 4, "client": client}
        asked |= {"auth": {"token": TOKEN}, "scopes": ["operator.admin"]}
        for number, (name, given) in enumerate([("connect", asked), (method, params)]):
            frame = {"type": "req", "id": str(number), "method": name, "params": given}
            socket.send(json.dumps(frame))
            while (answer := json.loads(socket.recv())).get("id") != str(number):
                pass
            assert answer["ok"], answer
    return answer["payload"]


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Run a scripted model on a thread of this process, so that a test can script it."""
    started: list[tuple[ModelServer, asyncio.AbstractEventLoop]] = []
    ready = threading.Event()

    async def serve() -> None:
        async with ModelServer() as server:
            started.append((server, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(READY_S)
    server, loop = started[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def inherited_environment() -> dict[str, str]:
    """Return what a home takes over from the environment of the tests."""
    names = ("PATH", "LANG", "TZ", "PYTHONPATH")
    return {name: os.environ[name] for name in names if name in os.environ}


def new_home(folder: Path, env: dict[str, str], model: ModelServer) -> Home:
    """Create a home whose one model is the scripted one."""
    home = Home(folder, {**env, "HOME": str(folder), "NO_PROXY": "127.0.0.1"})
    home.use_model(model.url)
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    home.configure({**config, "logging": {"file": str(folder / LOG)}})
    return home
