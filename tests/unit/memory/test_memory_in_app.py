"""Memory in the whole program: an agent's tools write a note and find it again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from homarus.app import App
from homarus.core.message import ToolCall
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.process import open_app
from homarus.tools.execute import execute_tool_call
from homarus.tools.tool import ToolContext
from tests.unit.memory.builders import until

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:7"


async def use(app: App, key: str, name: str, **args: Any) -> Any:
    async def allow(_call: ToolCallFacts) -> ToolDecision:
        return ToolDecision("allow", "")

    ctx = ToolContext(key, "main", app.agent("main").workspace)
    given = await execute_tool_call(app.tools("main"), ctx, ToolCall("1", name, args), allow)
    return given.text if given.is_error else json.loads(given.text)


async def test_app_memory_tools_write_and_find_note(tmp_path: Path) -> None:
    async with open_app({"HOME": str(tmp_path)}) as app:
        assert {"memory_search", "memory_get", "memory_write"} <= {
            tool.name for tool in app.tools("main")
        }
        done = await use(app, MAIN, "memory_write", text="Ada's boat is called Plankton.")
        assert done["added"]
        found = await use(app, MAIN, "memory_search", query="What is the boat called?")
        assert found["results"][0]["citation"] == f"{done['path']}#L3"
        text = await use(app, MAIN, "memory_get", path=done["path"], **{"from": 3})
        assert text == {"path": done["path"], "text": "- Ada's boat is called Plankton."}
        denied = await use(app, GROUP, "memory_search", query="What is the boat called?")
        assert denied["disabled"] and "Plankton" not in str(denied)
        assert "Plankton" not in await use(app, GROUP, "memory_get", path=done["path"])


async def test_app_memory_write_replaced_text_is_searched(tmp_path: Path) -> None:
    async with open_app({"HOME": str(tmp_path)}) as app:
        path = "memory/boats.md"
        await use(app, MAIN, "memory_write", text="Ada's boat is called Plankton.", path=path)
        change = {"path": path, "mode": "replace", "oldText": "Plankton", "text": "Walrus"}
        assert (await use(app, MAIN, "memory_write", **change))["added"]
        insert = {"path": path, "mode": "insert", "line": 1, "text": "# Boats"}
        assert (await use(app, MAIN, "memory_write", **insert))["startLine"] == 1
        found = await use(app, MAIN, "memory_search", query="What is the boat called?")
        assert "Walrus" in str(found) and "Plankton" not in str(found)
        wrong = await use(app, MAIN, "memory_write", text="x", mode="prepend")
        assert "mode" in wrong


async def test_app_memory_opened_while_stopping_watches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = asyncio.Event()
    usual, found = App.stop, list[Any]()

    def stop(app: App) -> None:
        usual(app)
        stopped.set()

    async def live_run(app: App) -> None:
        await stopped.wait()  # and only then it remembers something
        await use(app, MAIN, "memory_write", text="Ada's boat is called Plankton.")
        found.append(await use(app, MAIN, "memory_search", query="What is the boat called?"))

    monkeypatch.setattr(App, "stop", stop)
    async with asyncio.timeout(60), open_app({"HOME": str(tmp_path)}) as app:
        group: asyncio.TaskGroup = app.group
        group.create_task(live_run(app))
    assert "Plankton" in found[0]["results"][0]["snippet"]


async def test_app_session_start_syncs_notes_in_background(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_app({"HOME": str(tmp_path)}) as app:
        agent = app.agent("main")
        app.memory.sync_on_session_start(agent)  # there is nothing to remember
        assert not app.memory._open
        agent.workspace.mkdir(parents=True, exist_ok=True)
        (agent.workspace / "MEMORY.md").write_text("- A walrus.\n", encoding="utf-8")
        app.memory.sync_on_session_start(agent)
        assert not app.memory._open, "nobody waits for it"
        database = app.paths.state / "memory" / "main.homarus.sqlite"
        await until(database.exists)
