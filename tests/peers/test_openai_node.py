"""The official Node client of OpenAI's API, against a real gateway."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.peers.gateway import TOKEN
from tests.peers.http_api import api_gateway
from tests.peers.install import npm

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]  # the first run installs it

PROGRAM = Path(__file__).parent / "openai_node" / "runs.mjs"
SECONDS = 120


def test_node_client_of_openai_runs_agents(tmp_path: Path) -> None:
    folder = npm(PROGRAM.parent)
    node = shutil.which("node")
    assert node is not None
    with api_gateway(tmp_path) as (gateway, model):
        command = [node, str(PROGRAM), str(folder), f"{gateway.page}v1", TOKEN]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        deadline_s = time.monotonic() + 10
        while model.requests[-1].outcome != "client left":
            assert time.monotonic() < deadline_s, "the aborted stream has stopped its run"
            time.sleep(0.05)
    found = json.loads(done.stdout)
    events = found.pop("events")
    assert events[0] == "response.created" and events[-1] == "response.completed"
    assert "response.output_text.delta" in events
    assert found == {
        "chat": ["hello", "stop"],
        "usage": True,
        "stream": True,
        "helper": "streamed",
        "call": ["tool_calls", "get_weather", {"city": "Rome"}],
        "followed": "sunny",
        "response": ["completed", "hi"],
        "responseCall": ["incomplete", "function_call", "get_weather"],
        "responseAnswer": "dry",
        "unknown": ["NotFoundError", 404, "model_not_found"],
        "refused": ["BadRequestError", 400, ""],
        "stranger": ["AuthenticationError", 401, ""],
        "image": ["BadRequestError", 400, "url_not_fetched"],
    }
