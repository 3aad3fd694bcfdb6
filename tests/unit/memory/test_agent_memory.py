"""The keeper of memories: when things are indexed, and who waits for whom."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from homarus.agent.memory_registry import MemoryRegistry
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import HomarusError, StoreError, ToolError, UnknownNameError, UserError
from homarus.memory import agent_memory
from homarus.memory.agent_memory import AgentMemory
from homarus.memory.base import (
    MemoryStatus,
    NoteWriteOptions,
    Progress,
    SearchOptions,
    SearchResponse,
    ignore_progress,
)
from homarus.memory.builtin import BuiltinBackend
from homarus.memory.embed.base import EmbeddingModel
from homarus.memory.index import SyncReport
from homarus.memory.spec import MemorySpec
from homarus.memory.view import view_for
from homarus.testing.memory_store import MemoryStore
from tests.unit.memory.builders import GUARD_S, make_spec, until

T = TypeVar("T")


def note(spec: MemorySpec, path: str, text: str) -> None:
    file = spec.workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@asynccontextmanager
async def run() -> AsyncIterator[None]:
    async with asyncio.timeout(GUARD_S):
        yield


def paths_of(answer: SearchResponse) -> list[str]:
    return [one.path for one in answer.results]


class SlowEmbedder:
    """Vectors by letters; a text with the word `slow` waits until it is let go."""

    model = EmbeddingModel("fake", "letters", 26)

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.calls = 0

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls += 1
        if any("slow" in text for text in texts):
            self.entered.set()
            assert self.let_go.wait(GUARD_S)
        return [self._vector(text.lower()) for text in texts]

    def _vector(self, text: str) -> list[float]:
        counts = [float(text.count(chr(97 + at))) for at in range(26)]
        length = sum(one * one for one in counts) ** 0.5 or 1.0
        return [one / length for one in counts]


class FakeBackend:
    """Counts what it is asked; syncs and searches wait where they are told to."""

    def __init__(self) -> None:
        self.syncs = self.closed = 0
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.let_go.set()
        self.search_waits = threading.Event()
        self.search_waits.set()
        self.asks: list[SearchOptions] = []
        self.failure: HomarusError | None = None

    def sync(self, *, force: bool = False, progress: Progress = ignore_progress) -> SyncReport:
        self.syncs += 1
        self.entered.set()
        assert self.let_go.wait(GUARD_S)
        progress(1, 1, "a note")
        if self.failure:
            raise self.failure
        return SyncReport(generation=self.syncs)

    def search(self, text: str, ask: SearchOptions) -> SearchResponse:
        self.asks.append(ask)
        assert self.search_waits.wait(GUARD_S)
        return SearchResponse(())

    def status(self) -> MemoryStatus:
        raise StoreError("no status")

    def close(self) -> None:
        self.closed += 1


async def test_agent_memory_before_first_use_opens_nothing(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    before = threading.active_count()
    async with run():
        memory = AgentMemory(spec)
        assert not spec.database.exists()
        assert threading.active_count() == before
        await memory.close()
        assert not spec.database.exists()


async def test_search_sees_note_written_just_before(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    async with run():
        memory = AgentMemory(spec)
        assert paths_of(await memory.search("bicycle")) == []
        note(spec, "memory/2026-01-02.md", "- Bob: I bought a red bicycle.\n")
        assert paths_of(await memory.search("bicycle")) == ["memory/2026-01-02.md"]
        (spec.workspace / "memory/2026-01-02.md").unlink()
        assert paths_of(await memory.search("bicycle")) == []
        await memory.close()


async def test_write_without_sync_on_search_is_indexed(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, {"sync": {"onSearch": False, "watch": False}})
    async with run():
        memory = AgentMemory(spec)
        await memory.write("Ada's boat is called Plankton.", to="MEMORY.md")
        options = NoteWriteOptions("replace", old_text="Plankton")
        await memory.write("Walrus", to="MEMORY.md", options=options)
        found = await memory.search("What is the boat called?")
        assert [one.snippet for one in found.results] == ["- Ada's boat is called Walrus."]
        await memory.close()


async def test_write_is_found_by_search_and_get(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    async with run():
        memory = AgentMemory(spec)
        written = await memory.write("Carl likes oolong tea.", to="memory/people.md")
        assert (written.path, written.added) == ("memory/people.md", True)
        assert not (await memory.write("Carl likes oolong tea.", to="memory/people.md")).added
        found = (await memory.search("oolong")).results[0]
        assert found.path == "memory/people.md"
        excerpt = await memory.get(found.path, from_line=found.start_line, lines=1)
        assert "oolong" in excerpt.text
        today = await memory.write("It rained.")
        assert today.path.startswith("memory/2")
        await memory.close()


async def test_transcript_is_found_and_hidden_from_groups(tmp_path: Path) -> None:
    asked = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    spec = make_spec(tmp_path, asked, qmd={"sessions": {"retentionDays": 0}})
    spec.transcripts.mkdir(parents=True)
    message = {
        "role": "user",
        "content": "The zeppelin leaves at nine.",
        "timestamp": 1_771_322_400_000,
    }
    line = {"type": "message", "id": "a", "parentId": None, "message": message}
    (spec.transcripts / "s1.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    (spec.transcripts / "sessions.json").write_text(
        json.dumps({"agent:main:main": {"sessionId": "s1"}}), encoding="utf-8"
    )
    group = view_for("agent:main:telegram:group:-7")
    async with run():
        memory = AgentMemory(spec)
        found = (await memory.search("zeppelin")).results[0]
        assert (found.path, found.source) == ("sessions/s1.md", "sessions")
        lines = found.end_line - found.start_line + 1
        excerpt = await memory.get(found.path, from_line=found.start_line, lines=lines)
        assert found.snippet in excerpt.text
        assert (await memory.search("zeppelin", SearchOptions(view=group))).results == ()
        with pytest.raises(ToolError):
            await memory.get(found.path, view=group)
        await memory.close()


async def test_transcript_of_group_stays_readable_after_reset(tmp_path: Path) -> None:
    asked = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    spec = make_spec(tmp_path, asked, qmd={"sessions": {"retentionDays": 0}})
    key = "agent:main:telegram:group:-7"
    spec.transcripts.mkdir(parents=True)
    index = spec.transcripts / "sessions.json"
    row = {"role": "user", "content": "The zeppelin leaves at nine."}
    live = spec.transcripts / "s1.jsonl"
    live.write_text(json.dumps(row) + "\n", encoding="utf-8")
    index.write_text(json.dumps({key: {"sessionId": "s1"}}), encoding="utf-8")
    ask = SearchOptions(view=view_for(key))
    async with run():
        memory = AgentMemory(spec)
        assert paths_of(await memory.search("zeppelin", ask))[0] == "sessions/s1.md"
        live.rename(spec.transcripts / "s1.jsonl.reset.2026-02-17T10-00-00.000Z")
        index.write_text("{}", encoding="utf-8")
        path = paths_of(await memory.search("zeppelin", ask))[0]
        assert path == "sessions/s1.reset.2026-02-17T10-00-00.000Z.md"
        assert "zeppelin" in (await memory.get(path, view=ask.view)).text
        other = view_for("agent:main:telegram:group:-8")
        assert (await memory.search("zeppelin", SearchOptions(view=other))).results == ()
        with pytest.raises(ToolError):
            await memory.get(path, view=other)
        await memory.close()


async def test_close_interrupts_sync_of_one_long_note(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "".join(f"- slow line {number}\n" for number in range(2_000)))
    embedder = SlowEmbedder()
    backend = BuiltinBackend(spec, embedder)
    async with run():
        memory = AgentMemory(spec, backend=lambda: backend)
        memory.sync_on_session_start()
        await until(embedder.entered.is_set)
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(memory.close())
            await until(lambda: backend._is_closed)
            embedder.let_go.set()
            await closing
        assert embedder.calls == 1


async def test_search_during_slow_embedding_is_answered(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- Bob bought a red bicycle.\n")
    embedder = SlowEmbedder()
    async with run():
        memory = AgentMemory(spec, backend=lambda: BuiltinBackend(spec, embedder))
        assert (await memory.search("bicycle")).provider == "fake"
        note(spec, "memory/new.md", "- A slow walrus came by.\n")
        async with asyncio.TaskGroup() as group:
            syncing = group.create_task(memory.sync())
            await until(embedder.entered.is_set)
            answer = await memory.search("bicycle")
            assert paths_of(answer) == ["MEMORY.md"]
            assert not syncing.done()
            assert any("being indexed" in told for told in answer.notes)
            await memory.search("bicycle")
            assert not syncing.done()
            embedder.let_go.set()
        assert "memory/new.md" in syncing.result().indexed
        answer = await memory.search("walrus")
        assert (answer.results[0].path, answer.provider) == ("memory/new.md", "fake")
        await memory.close()


async def test_search_first_does_not_wait_for_vectors(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- A slow walrus came by.\n")
    embedder = SlowEmbedder()
    async with run():
        memory = AgentMemory(spec, backend=lambda: BuiltinBackend(spec, embedder))
        answer = await memory.search("walrus")
        assert (paths_of(answer), answer.provider) == (["MEMORY.md"], "none")
        embedder.let_go.set()
        await memory.sync()
        assert (await memory.search("walrus")).provider == "fake"
        await memory.close()


async def test_search_timeout_raises_and_close_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_memory, "_CLOSE_TIMEOUT_S", 0.05)
    spec = make_spec(tmp_path, qmd={"limits": {"timeoutMs": 50}})
    backend = FakeBackend()
    backend.search_waits.clear()
    async with run():
        memory = AgentMemory(spec, backend=lambda: backend)
        with pytest.raises(StoreError, match="did not answer within 50 ms"):
            await memory.search("anything")
        await memory.close()
        assert not backend.closed  # the search is still in there
        backend.search_waits.set()
        await until(lambda: backend.closed == 1)


async def test_search_passes_deadline_and_date_to_backend(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with run():
        memory = AgentMemory(make_spec(tmp_path), backend=lambda: backend)
        await memory.search("anything")
        await memory.close()
    (ask,) = backend.asks
    assert ask.now is not None
    assert 0 < (ask.timeout_ms or 0) <= 4_000


async def test_close_ends_long_sync_between_notes(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    for number in range(200):
        note(spec, f"memory/{number:03d}.md", f"- slow {number}\n")
    embedder = SlowEmbedder()
    async with run():
        memory = AgentMemory(spec, backend=lambda: BuiltinBackend(spec, embedder))
        async with asyncio.TaskGroup() as group:

            async def sync() -> None:
                with pytest.raises(StoreError, match="closed"):
                    await memory.sync()

            group.create_task(sync())
            await until(embedder.entered.is_set)
            closing = group.create_task(memory.close())
            await asyncio.sleep(0)
            embedder.let_go.set()
            await closing
        with pytest.raises(StoreError, match="closed"):
            await memory.search("anything")


async def test_sync_requests_during_sync_share_next_one(tmp_path: Path) -> None:
    backend = FakeBackend()
    backend.let_go.clear()
    async with run():
        memory = AgentMemory(make_spec(tmp_path), backend=lambda: backend)
        async with asyncio.TaskGroup() as group:
            group.create_task(memory.sync())
            await until(backend.entered.is_set)
            for _ in range(5):
                group.create_task(memory.sync())
            await asyncio.sleep(0)
            memory.sync_on_session_start()
            backend.let_go.set()
        assert backend.syncs == 2
        await memory.close()


async def test_search_overtaken_by_close_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unheeding(FakeBackend):
        def sync(self, *, force: bool = False, progress: Progress = ignore_progress) -> SyncReport:
            return super().sync(force=force)

    monkeypatch.setattr(agent_memory, "_SYNC_TIMEOUT_S", GUARD_S)
    backend = Unheeding()
    backend.let_go.clear()
    async with run():
        spec = make_spec(tmp_path, qmd={"limits": {"timeoutMs": 0}})
        memory = AgentMemory(spec, backend=lambda: backend)
        answers: list[str] = []

        async def ask() -> None:
            try:
                await memory.search("anything")
            except StoreError as exc:
                answers.append(str(exc))

        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
            await until(backend.entered.is_set)
            closing = group.create_task(memory.close())
            await until(lambda: memory._is_closed)
            backend.let_go.set()
            await closing
        assert answers == ["the memory of main was closed"]
        assert (backend.asks, backend.closed) == ([], 1)
        assert memory._answering is None


async def test_sync_cancelled_waiter_leaves_job_running(tmp_path: Path) -> None:
    backend = FakeBackend()
    backend.let_go.clear()
    async with run():
        memory = AgentMemory(make_spec(tmp_path), backend=lambda: backend)
        async with asyncio.TaskGroup() as group:
            impatient = group.create_task(memory.sync())
            await until(backend.entered.is_set)
            patient = group.create_task(memory.sync())
            impatient.cancel()
            await asyncio.sleep(0)
            backend.let_go.set()
        assert patient.result().generation == 2
        await memory.close()


async def test_search_after_failed_sync_uses_previous_generation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = FakeBackend()
    backend.failure = StoreError("no room on the disk")
    async with run():
        memory = AgentMemory(make_spec(tmp_path), backend=lambda: backend)
        with caplog.at_level(logging.WARNING, "homarus"):
            answer = await memory.search("anything")
        assert answer.notes == ("the index is not up to date: no room on the disk",)
        with pytest.raises(StoreError, match="no room"):
            await memory.sync()
        with pytest.raises(StoreError, match="no status"):
            await memory.status()
        await memory.close()
    assert "no room on the disk" in caplog.text


async def test_agent_memory_disabled_raises(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, {"enabled": False})
    async with run():
        memory = AgentMemory(spec)
        memory.sync_on_session_start()
        for work in (
            memory.search("x"),
            memory.sync(),
            memory.status(),
            memory.get("MEMORY.md"),
            memory.write("x"),
        ):
            with pytest.raises(UserError, match="switched off"):
                await work
        await memory.close()
        assert not spec.database.exists()


async def test_session_start_syncs_notes(tmp_path: Path) -> None:
    backend, lazy = FakeBackend(), FakeBackend()
    async with run():
        memory = AgentMemory(make_spec(tmp_path), backend=lambda: backend)
        memory.sync_on_session_start()
        await until(lambda: backend.syncs == 1)
        await memory.close()
        memory.sync_on_session_start()  # after the end: nothing
        asked = {"sync": {"onSessionStart": False, "onSearch": False}}
        still = AgentMemory(make_spec(tmp_path, asked), backend=lambda: lazy)
        still.sync_on_session_start()
        await still.search("anything")
        await still.close()
    assert (backend.syncs, lazy.syncs) == (1, 0)


class FastClock:
    """Waits without waiting: every sleep gives the loop a turn, and no time passes."""

    def __init__(self) -> None:
        self.naps: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        await asyncio.sleep(0.001)


async def test_watch_from_first_use_until_close_syncs_changes(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, {"sync": {"onSearch": False, "intervalMinutes": 7}})
    backend, clock = FakeBackend(), FastClock()
    async with run(), asyncio.TaskGroup() as group:
        memory = AgentMemory(spec, group=group, clock=clock, backend=lambda: backend)
        await asyncio.sleep(0.05)
        assert clock.naps == [] and memory.sync_interval_s == 0
        await memory.search("anything")
        await until(lambda: clock.naps.count(5.0) > 2)
        note(spec, "MEMORY.md", "- something new\n")
        await until(lambda: 1.5 in clock.naps)
        await until(lambda: backend.syncs > 0)
        assert memory.sync_interval_s == 420.0
        await memory.close()  # and the group can end


async def test_stop_watching_ends_tasks_and_still_answers(tmp_path: Path) -> None:
    backend = FakeBackend()
    paths = Paths.find({"OPENCLAW_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)})
    config = Config.model_validate({})
    async with run():
        async with asyncio.TaskGroup() as group:
            memories = MemoryRegistry(
                lambda: config, paths, dict, store=MemoryStore(), group=group, clock=FastClock()
            )
            memory = memories.get("main")
            memory._open = lambda: backend
            await memory.search("anything")
            memories.stop_watching()
        assert (await memory.search("anything")).results == ()
        await memories.close()


async def test_registry_reload_closes_memories_with_changed_settings(tmp_path: Path) -> None:
    paths = Paths.find({"OPENCLAW_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)})
    listed = [{"id": "main"}, {"id": "ops"}]
    held: dict[str, Any] = {"agents": {"list": listed}}
    async with run():
        memories = MemoryRegistry(
            lambda: Config.model_validate(held),
            paths,
            dict,
            store=MemoryStore(),
            clock=SystemClock(),
        )
        main_one, ops = memories.get("main"), memories.get("ops")
        await memories.reload()
        assert (memories.get("main"), memories.get("ops")) == (main_one, ops)
        held["agents"] = {
            "list": [{"id": "main"}, {"id": "ops", "memorySearch": {"enabled": False}}]
        }
        await memories.reload()
        assert memories.get("main") is main_one
        assert memories.get("ops") is not ops
        held["agents"] = {"list": [{"id": "ops"}]}
        held["models"] = {
            "providers": {"openai": {"baseUrl": "http://127.0.0.1:9/v1", "models": []}}
        }
        await memories.reload()
        with pytest.raises(UnknownNameError):
            memories.get("main")
        with pytest.raises(StoreError, match="closed"):
            await main_one.search("anything")
        await memories.close()


@pytest.mark.parametrize("damage", [b"", b"junk" * 4_000])
async def test_search_index_damaged_meanwhile_is_rebuilt_and_reported(
    tmp_path: Path, damage: bytes
) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    async with run():
        memory = AgentMemory(spec)
        assert paths_of(await memory.search("walrus")) == ["MEMORY.md"]
        await memory.close()
        data = spec.database.read_bytes()
        spec.database.write_bytes(damage + data[len(damage) :] if damage else damage)
        memory = AgentMemory(spec)
        answer = await memory.search("walrus")
        assert paths_of(answer) == ["MEMORY.md"]
        assert any("made anew" in told for told in answer.notes)
        assert not any("made anew" in told for told in (await memory.search("walrus")).notes)
        await memory.close()


async def test_search_index_deleted_while_open_is_rebuilt(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    note(spec, "MEMORY.md", "- The walrus is called Otto.\n")
    async with run():
        memory = AgentMemory(spec)
        assert paths_of(await memory.search("walrus")) == ["MEMORY.md"]
        for file in spec.database.parent.iterdir():
            with suppress(FileNotFoundError):
                file.unlink()
        assert paths_of(await memory.search("walrus")) == ["MEMORY.md"]
        await memory.close()
        assert spec.database.exists()
