"""Sub-agents in the complete program: start, result, announcement, limits, stop, archive."""

from pathlib import Path

import pytest

from homarus.core.message import Message
from homarus.providers.base import ModelRequest
from tests.unit.agent.subagent_harness import PARENT, open_stage, spawn_call

pytestmark = pytest.mark.timeout(60)


def plain(text: str, _request: ModelRequest) -> str | Message | None:
    """A parent that starts one sub-agent, which counts."""
    if "[Subagent Task]" in text:
        return "There are 42 files."
    if "[System Message]" in text:
        return "You have 42 files."
    if "go" in text:
        return spawn_call("count the files", label="count")
    return "Started."


async def test_subagent_that_answers_is_announced_once(tmp_path: Path) -> None:
    async with open_stage(tmp_path, plain) as stage:
        outcome = await (await stage.say("go"))
        assert outcome.text == "Started."
        [record] = await stage.ended()
        await stage.idle()
        assert (record.status, record.result) == ("done", "There are 42 files.")
        assert record.child_key.startswith("agent:main:subagent:")
        [text] = await stage.announcements()
        assert "“count” finished" in text and "There are 42 files." in text
        assert record.child_key in text and record.session_id in text
        assert "tokens 1.2k (in 1.0k / out 200)" in text and "cost $0.2500" in text
        assert (await stage.texts("assistant"))[-1] == "You have 42 files."
        child = await stage.app.store.session(record.child_key)
        assert child is not None
        assert (child.data["spawnedBy"], child.data["spawnDepth"]) == (PARENT, 1)
        assert child.data["label"] == "count"
