"""A complete App on the scripted model server, which runs in a process of its own."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

from bench.figure import private_env
from homarus.app import App
from homarus.core.clock import Clock
from homarus.core.message import Address, Inbound
from homarus.process import open_app


@contextmanager
def model_server() -> Iterator[str]:
    """Yield the base URL of a running model server."""
    command = [sys.executable, "-m", "homarus.testing.model_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def configure(home: Path, url: str, *, has_skills: bool = True) -> None:
    """Write a config whose only model is the server's."""
    model = {"id": "mock", "name": "Mock", "contextWindow": 1_000_000}
    provider = {"baseUrl": url, "apiKey": "none", "api": "openai-completions", "models": [model]}
    config = {
        "logging": {"file": str(home / "log")},
        "models": {"providers": {"bench": provider}},
        "agents": {
            "defaults": {"model": {"primary": "bench/mock"}, "workspace": str(home / "workspace")},
            "list": [{"id": "main", **({} if has_skills else {"skills": []})}],
        },
    }
    (home / "state").mkdir(parents=True, exist_ok=True)
    (home / "state" / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")


@asynccontextmanager
async def open_app_for_bench(
    home: Path, url: str, *, has_skills: bool = True, clock: Clock | None = None
) -> AsyncIterator[App]:
    """Open an App in an empty home on that model."""
    configure(home, url, has_skills=has_skills)
    async with open_app(private_env(home), clock=clock) as app:
        yield app


async def ask(app: App, key: str, text: str) -> str:
    """Run one turn; a failure ends the bench."""
    inbound = Inbound(uuid4().hex, Address("cli", "bench"), "owner", text)
    outcome = await app.control.ask(key, inbound)
    if outcome.error is not None:
        raise outcome.error
    return outcome.text
