"""When memory looks at its files by itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from homarus.config.memory import MemorySearchConfig
from homarus.memory.spec import MemorySpec
from homarus.memory.transcripts import TranscriptSource
from homarus.memory.watch import files_signature, watch_files


class PollsExhaustedError(Exception):
    """All polls of the test have been made."""


class CountedClock:
    """Sleeps that take no time, and are counted; a look takes as long as it is said to."""

    def __init__(self, most: int = 99) -> None:
        self.naps: list[float] = []
        self.now_s = 0.0
        self._most = most

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        if len(self.naps) == self._most:
            raise PollsExhaustedError
        self.naps.append(seconds)
        self.now_s += seconds


async def watched(looks: list[str], look_takes_s: float = 0.0) -> tuple[list[int], list[float]]:
    """After how many looks it synced, and how long it slept."""
    clock, syncs, seen = CountedClock(), list[int](), iter(looks)
    taken: list[str] = []

    async def look() -> str:
        clock.now_s += look_takes_s
        found = next(seen, None)
        if found is None:
            raise PollsExhaustedError
        taken.append(found)
        return found

    async def sync() -> None:
        syncs.append(len(taken))

    with pytest.raises(PollsExhaustedError):
        await watch_files(look, sync, clock=clock, quiet_s=1.5, look_s=5.0)
    return syncs, clock.naps


async def test_watch_unchanged_files_trigger_no_sync() -> None:
    assert await watched(["a", "a", "a"]) == ([], [5.0, 5.0, 5.0])


async def test_watch_change_syncs_after_debounce() -> None:
    syncs, naps = await watched(["a", "b", "c", "c", "c"])
    assert syncs == [4]
    assert naps == [5.0, 1.5, 1.5, 5.0, 5.0]


async def test_watch_after_sync_compares_with_new_signature() -> None:
    assert (await watched(["a", "b", "b", "b", "a", "a"]))[0] == [3, 6]


async def test_watch_slow_polls_are_made_less_often() -> None:
    _, naps = await watched(["a", "a"], look_takes_s=2.0)
    assert naps == [100.0, 100.0]


def changes(spec: MemorySpec) -> Iterator[None]:
    """One change after another that a watch has to see."""
    memory = spec.workspace / "memory"
    (memory / "a.md").write_text("one")
    yield
    (memory / "a.md").write_text("two!")
    yield
    os.utime(memory / "a.md", ns=(1, 1))
    yield
    (memory / "b.md").symlink_to(memory / "a.md")
    yield
    (memory / "a.md").unlink()
    yield
    (spec.transcripts / "s1.jsonl").write_text('{"role":"user","content":"hello"}\n')
    yield
    (spec.transcripts / "sessions.json").write_text('{"agent:main:main":{"sessionId":"s1"}}')
    yield


def test_files_signature_changes_with_every_file(tmp_path: Path) -> None:
    asked = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    spec = MemorySpec(
        agent="main",
        workspace=tmp_path / "workspace",
        database=tmp_path / "main.sqlite",
        agent_folder=tmp_path / "agents" / "main",
        models_cache=tmp_path,
        home=tmp_path,
        search=MemorySearchConfig.model_validate(asked),
    )
    (spec.workspace / "memory").mkdir(parents=True)
    spec.transcripts.mkdir(parents=True)
    finder = TranscriptSource(spec)
    seen = [files_signature(spec, finder)]
    assert files_signature(spec, finder) == seen[0]
    for _ in changes(spec):
        seen.append(files_signature(spec, finder))
        assert files_signature(spec, finder) == seen[-1]
    assert len(set(seen)) == len(seen)
