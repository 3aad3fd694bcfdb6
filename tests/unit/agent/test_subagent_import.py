"""A home in which OpenClaw left sub-agents: what was running is reported, what ended is listed."""

import json
from pathlib import Path

import pytest

from homarus.providers.base import ModelRequest
from tests.unit.agent.subagent_harness import PARENT, open_stage

pytestmark = pytest.mark.timeout(60)
RUNNING, ENDED = "agent:main:subagent:aaaa-1", "agent:main:subagent:bbbb-2"


def answer(text: str, _request: ModelRequest) -> str:
    return "It was interrupted." if "[System Message]" in text else "Hello."


def write_runs(home: Path) -> Path:
    """Write the file as OpenClaw 2026.2.17 leaves it when it is killed."""
    common = {
        "requesterSessionKey": PARENT,
        "requesterOrigin": {"channel": "webchat"},
        "requesterDisplayKey": "main",
        "cleanup": "keep",
        "runTimeoutSeconds": 0,
        "createdAt": 1_790_000_000_000,
        "archiveAtMs": 4_000_000_000_000,
    }
    ended = {
        "endedAt": 1_790_000_060_000,
        "outcome": {"status": "ok"},
        "cleanupHandled": True,
        "cleanupCompletedAt": 1_790_000_061_000,
    }
    runs = {
        "r-1": {"runId": "r-1", "childSessionKey": RUNNING, "task": "Count the lamps", **common},
        "r-2": {"runId": "r-2", "childSessionKey": ENDED, "task": "Sort", **common, **ended},
    }
    path = home / "state" / "subagents" / "runs.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"version": 2, "runs": runs}), encoding="utf-8")
    return path


async def test_running_subagent_of_openclaw_is_reported_once(tmp_path: Path) -> None:
    path = write_runs(tmp_path)
    async with open_stage(tmp_path, answer) as stage:
        await stage.idle()
        found = {one.child_key: one.status for one in await stage.records()}
        assert found == {RUNNING: "interrupted", ENDED: "done"}
        [news] = await stage.announcements()
        assert "“Count the lamps” was interrupted" in news and "no result" in news
        assert (await stage.texts("assistant"))[-1] == "It was interrupted."
    written = json.loads(path.read_text(encoding="utf-8"))["runs"]
    assert written["r-1"]["outcome"]["status"] == "error"
    assert written["r-1"]["cleanupHandled"] is True, "OpenClaw does not report it again"
    async with open_stage(tmp_path, answer) as stage:
        await stage.idle()
        assert len(await stage.announcements()) == 1
        assert len(await stage.records()) == 2
