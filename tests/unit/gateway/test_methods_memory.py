"""memory.*: what a client of the gateway may know of what agents remember, and add to it."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import HomarusError, InvalidRequestError
from tests.unit.gateway.app_harness import CONFIG, Harness
from tests.unit.gateway.app_harness import run as run_world

WORDS: dict[str, Any] = {**CONFIG["agents"]["defaults"], "memorySearch": {"provider": "none"}}


@asynccontextmanager
async def run(folder: Path, *agents: str) -> AsyncIterator[Harness]:
    """In a world whose agents remember by words alone, whatever this machine has."""

    listed = [{"id": agent} for agent in agents]
    async with run_world(folder, config={"agents": {"defaults": WORDS, "list": listed}}) as it:
        try:
            yield it
        finally:
            await it.app.memory.close()


def remember(it: Harness, text: str, path: str = "MEMORY.md", agent: str = "main") -> Path:
    file = it.app.agent(agent).workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


async def test_memory_search_result_can_be_read(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        remember(it, "# Ada\n\n- Ada is allergic to walnuts.\n- She lives in Kiel.\n")
        told = await it.ask("memory.search", {"query": "walnuts"}, "write")
        (best, *_) = told["results"]
        assert best["citation"].startswith("MEMORY.md#L3") and "walnuts" in best["snippet"]
        assert told["backend"] == "builtin" and told["mode"] in {"fts-only", "hybrid"}
        got = await it.ask("memory.get", {"path": "MEMORY.md", "from": 3, "lines": 1}, "write")
        assert got["text"].strip() == "- Ada is allergic to walnuts."
        assert (got["path"], got["from"], got["lines"]) == ("MEMORY.md", 3, 1)


async def test_memory_write_is_found_at_once_and_stored_once(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        it.app.agent("main")  # makes the workspace
        first = await it.ask("memory.write", {"text": "The zeppelin lands on Friday."}, "write")
        assert first["added"] and first["path"].startswith("memory/")
        again = await it.ask("memory.write", {"text": "The zeppelin lands on Friday."}, "write")
        assert not again["added"] and again["path"] == first["path"]
        named = await it.ask("memory.write", text="Ada likes rye bread.", path="MEMORY.md")
        assert named["path"] == "MEMORY.md"
        (best, *_) = (await it.ask("memory.search", query="zeppelin"))["results"]
        assert best["path"] == first["path"] and best["startLine"] == first["startLine"]


async def test_memory_index_is_built_reported_and_rebuilt(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        remember(it, "- Ada is allergic to walnuts.\n")
        made = await it.ask("memory.index", {}, "admin")
        assert "MEMORY.md" in made["indexed"] and made["rebuilt"] == ""
        assert "MEMORY.md" not in (await it.ask("memory.index"))["indexed"]
        assert "MEMORY.md" in (await it.ask("memory.index", force=True))["indexed"]
        told = await it.ask("memory.status", {}, "read")
        assert told["agentId"] == "main" and told["files"] >= 1 and not told["problem"]


async def test_memory_of_agents_is_separate(tmp_path: Path) -> None:
    async with run(tmp_path, "main", "ops") as it:
        remember(it, "- Ada is allergic to walnuts.\n")
        remember(it, "- The server room is cold.\n", agent="ops")
        assert (await it.ask("memory.search", query="walnuts"))["results"]
        assert not (await it.ask("memory.search", query="walnuts", agentId="OPS"))["results"]
        assert (await it.ask("memory.search", query="server", agentId="ops"))["results"]
        with pytest.raises(HomarusError, match=r"unknown agent 'opps'.*ops"):
            await it.ask("memory.search", query="server", agentId="opps")


async def test_memory_read_scope_cannot_read_notes(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for method, params in (
            ("memory.search", {"query": "x"}),
            ("memory.get", {"path": "MEMORY.md"}),
            ("memory.write", {"text": "x"}),
        ):
            with pytest.raises(InvalidRequestError, match=r"missing scope: operator\.write"):
                await it.ask(method, params, "read")
        with pytest.raises(InvalidRequestError, match=r"missing scope: operator\.admin"):
            await it.ask("memory.index", {}, "write")


async def test_memory_invalid_params_are_refused(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        remember(it, "- Ada is allergic to walnuts.\n")
        for method, params in (
            ("memory.search", {}),
            ("memory.search", {"query": " \n"}),
            ("memory.search", {"query": "x", "maxResults": 0}),
            ("memory.search", {"query": "x", "minScore": 1.5}),
            ("memory.search", {"query": "x", "mode": "pages"}),
            ("memory.get", {"path": "MEMORY.md", "from": 0}),
            ("memory.get", {"path": ""}),
            ("memory.write", {"text": "   "}),
            ("memory.index", {"force": "yes"}),
        ):
            with pytest.raises(InvalidRequestError, match=f"invalid {method} params"):
                await it.ask(method, params)


@pytest.mark.parametrize(
    "path",
    ["../openclaw.json", "/etc/passwd", "memory/../../openclaw.json", "AGENTS.md", "no.md",
     "memory/link.md", "memory/\x00.md", "memory", "file:///etc/passwd"],
)  # fmt: skip
async def test_only_notes_are_read(tmp_path: Path, path: str) -> None:
    async with run(tmp_path) as it:
        remember(it, "secret", "secret.md")
        link = it.app.agent("main").workspace / "memory" / "link.md"
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(tmp_path / "state" / "openclaw.json")
        with pytest.raises(InvalidRequestError) as caught:
            await it.ask("memory.get", path=path)
        assert "sk-very-secret-key" not in str(caught.value)
        if path != "no.md":
            with pytest.raises(InvalidRequestError):
                await it.ask("memory.write", text="x", path=path)


def test_memory_package_is_imported_at_first_use() -> None:
    script = "import sys, homarus.gateway.methods, homarus.app; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name for name in done.stdout.split() if name.startswith("homarus.memory")}
    assert not loaded - {"homarus.memory"}


async def test_memory_status_has_the_recall_latency(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        remember(it, "Ada is allergic to walnuts.\n")
        assert (await it.ask("memory.status"))["recall"] is None
        await it.ask("memory.search", query="walnuts")
        recall = (await it.ask("memory.status"))["recall"]
        assert recall["count"] == 1 and recall["p50Ms"] == recall["p95Ms"] == recall["lastMs"]


async def test_memory_notes_lists_days_newest_first(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        remember(it, "# Long term\n")
        remember(it, "- rain\n", "memory/2026-02-03.md")
        remember(it, "- sun\n", "memory/2026-02-05.md")
        found = await it.ask("memory.notes", {}, "write")
        cut = await it.ask("memory.notes", {"limit": 1}, "write")
    days = [(note["path"], note["day"]) for note in found["notes"]]
    assert days[:2] == [
        ("memory/2026-02-05.md", "2026-02-05"),
        ("memory/2026-02-03.md", "2026-02-03"),
    ]
    assert ("MEMORY.md", None) in days
    assert found["notes"][0]["size"] == len("- sun\n")
    assert (len(cut["notes"]), cut["total"]) == (1, found["total"])
