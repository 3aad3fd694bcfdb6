"""A home, a model and a terminal for each test."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.gateway import TOKEN, Gateway, change
from tests.e2e.program import Home, Open, Terminal


@pytest.fixture(scope="session")
def model_url() -> Iterator[str]:
    """A scripted model server in a process of its own."""
    command = [sys.executable, "-m", "homarus.testing.model_server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"the model server said {line!r}"
        yield found[0]
        server.terminate()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    names = ("PATH", "LANG", "TZ", "PYTHONPATH")
    keep = {name: os.environ[name] for name in names if name in os.environ}
    return Home(tmp_path, {**keep, "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"})


@pytest.fixture
def open_chat(home: Home) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(*args: str) -> Terminal:
        opened.append(Terminal(home, "chat", *args))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


@pytest.fixture
def start(home: Home, model_url: str) -> Iterator[Callable[..., Gateway]]:
    """Start gateways in the home; all are killed when the test ends."""
    home.use_model(model_url, maxConcurrent=50)
    change(home, gateway={"auth": {"token": TOKEN}}, logging={"file": str(home.path / "log.jsonl")})
    started: list[Gateway] = []

    def begin(*args: str) -> Gateway:
        started.append(Gateway(home, *args))
        return started[-1]

    yield begin
    for gateway in started:
        gateway.close()


@pytest.fixture
def gateway(start: Callable[..., Gateway]) -> Gateway:
    return start().wait_ready()
