"""A gateway whose endpoints for runs are on, for the official clients of OpenAI's API."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openai import OpenAI

from homarus.core.message import Json
from homarus.testing.model_server import ModelServer
from tests.e2e.program import Home
from tests.peers.gateway import TOKEN, Running, model_server, new_home, running_gateway

ENDPOINTS = {name: {"enabled": True} for name in ("chatCompletions", "responses")}


@contextmanager
def api_gateway(folder: Path, **sections: Json) -> Iterator[tuple[Running, ModelServer]]:
    """Run a scripted model, and a gateway with the API."""
    with model_server() as model:
        home = api_home(folder, model, **sections)
        with running_gateway(home) as gateway:
            yield gateway, model


def api_home(folder: Path, model: ModelServer, **sections: Json) -> Home:
    """Return a home with the API on, and these sections of the config changed."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(folder, kept, model)
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["models"]["providers"]["mock"]["models"][0]["input"] = ["text", "image"]
    defaults = config["agents"]["defaults"] | {"maxConcurrent": 50}
    agents = {"defaults": defaults, "list": [{"id": "main"}, {"id": "ops"}]}
    gateway = {"http": {"endpoints": ENDPOINTS}}
    home.configure({**config, "agents": agents, "gateway": gateway, **sections})
    return home


def open_client(gateway: Running, token: str = TOKEN, **headers: str) -> OpenAI:
    """Return the official client; it repeats nothing by itself."""
    url = f"{gateway.page}v1"
    return OpenAI(base_url=url, api_key=token, max_retries=0, default_headers=headers)


def transcript(gateway: Running, agent: str = "main") -> list[Json]:
    """Return the messages of the only session of an agent."""
    (entries,) = gateway.home.transcripts(agent)
    return [entry["message"] for entry in entries if entry["type"] == "message"]
