import importlib.metadata
import logging
import sys
from contextlib import closing
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from homarus.config.memory import MemoryConfig
from homarus.core.errors import StoreError
from homarus.memory.backends import MEMORY_BACKENDS, open_backend
from homarus.memory.base import FallbackNotice, MemoryBackend, SearchOptions, SearchResponse
from homarus.memory.builtin import BuiltinBackend
from homarus.memory.embed.base import ignore_cost
from homarus.memory.failover import MAX_COOLDOWN_S, FailoverBackend
from homarus.memory.qmd.backend import QmdBackend
from tests.unit.memory.fake_qmd import FakeQmd, fake_qmd
from tests.unit.memory.test_qmd_backend import Hand, note, row


@pytest.fixture
def fake(tmp_path: Path) -> FakeQmd:
    fake = fake_qmd(tmp_path)
    note(fake, "MEMORY.md", "- The boat is called Lobster.\n")
    return fake


def both(fake: FakeQmd, clock: Hand) -> FailoverBackend:
    return FailoverBackend("qmd", QmdBackend(fake.spec), lambda: BuiltinBackend(fake.spec), clock)


CRASH = "sys.exit('ModelError: no weights')"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (CRASH, "no weights"),
        ("print('Segmentation fault')", "Segmentation fault"),
        ("print('{}')", "another shape"),
        ("os.kill(os.getpid(), 11)", "status -11"),
    ],
)
def test_failover_first_fails_second_answers_with_reason(
    fake: FakeQmd, code: str, why: str
) -> None:
    fake.does("search", code)
    with closing(both(fake, Hand())) as memory:
        memory.sync()
        answer = memory.search("boat", SearchOptions())
        status = memory.status()
    assert answer.results[0].citation == "MEMORY.md#L1"
    assert answer.backend == status.backend == "builtin"
    assert answer.fallback and status.fallback == answer.fallback
    assert answer.fallback.wanted == "qmd" and why in answer.fallback.why


def test_failover_program_not_installed_uses_second(fake: FakeQmd) -> None:
    (fake.folder / "qmd").unlink()
    with closing(both(fake, Hand())) as memory:
        assert len(memory.sync().indexed) == 1
        answer = memory.search("boat", SearchOptions())
    assert answer.results and answer.fallback
    assert "is not installed (npm install" in answer.fallback.why


def test_failover_cooldown_grows_then_first_is_tried_again(fake: FakeQmd) -> None:
    clock = Hand()
    fake.does("search", CRASH)
    with closing(both(fake, clock)) as memory:
        for pause_s in (30, 60, 120, 240, 480, MAX_COOLDOWN_S, MAX_COOLDOWN_S):
            fake.forget()
            memory.search("boat", SearchOptions())
            assert len(fake.calls("search")) == 1
            clock.now_s += pause_s - 0.5
            memory.sync()
            memory.search("boat", SearchOptions())
            assert len(fake.calls("search")) == 1
            clock.now_s += 0.5
        fake.finds(row("memory-root/MEMORY.md"))
        answer = memory.search("boat", SearchOptions())
        assert (answer.backend, answer.fallback) == ("qmd", None)
        assert memory.status().backend == "qmd"
        fake.does("search", CRASH)
        memory.search("boat", SearchOptions())
        clock.now_s += 30  # it was well in between, so it begins with a short pause
        fake.finds(row("memory-root/MEMORY.md"))
        assert memory.search("boat", SearchOptions()).backend == "qmd"


def test_failover_outage_and_its_end_are_logged_once(
    fake: FakeQmd, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Hand()
    fake.does("search", CRASH)
    with closing(both(fake, clock)) as memory, caplog.at_level(logging.INFO, "homarus"):
        for _ in range(4):
            memory.search("boat", SearchOptions())
            clock.now_s += 1_000
        assert caplog.text.count("no weights") == 1
        fake.finds(row("memory-root/MEMORY.md"))
        for _ in range(2):
            memory.search("boat", SearchOptions())
        assert caplog.text.count("answers again") == 1


def test_failover_note_written_during_outage_is_found(fake: FakeQmd) -> None:
    fake.does("search", CRASH)
    with closing(both(fake, Hand())) as memory:
        memory.search("boat", SearchOptions())
        note(fake, "memory/new.md", "- A zebra came by.\n")
        assert memory.sync().indexed == ("memory/new.md",)
        assert memory.search("zebra", SearchOptions()).results[0].path == "memory/new.md"


def test_failover_stopped_does_not_open_second(fake: FakeQmd) -> None:
    opened: list[MemoryBackend] = []

    def behind() -> MemoryBackend:
        opened.append(BuiltinBackend(fake.spec))
        return opened[-1]

    with closing(FailoverBackend("qmd", QmdBackend(fake.spec), behind)) as memory:
        memory.sync()
        memory.stop()
        with pytest.raises(StoreError, match="stopped"):
            memory.search("boat", SearchOptions())
        with pytest.raises(StoreError, match="stopped"):
            memory.sync(force=True)
    assert not opened


def test_failover_both_fail_raises_error_of_second(fake: FakeQmd) -> None:
    def broken() -> MemoryBackend:
        raise StoreError("the disk is gone")

    fake.does("search", CRASH)
    memory = FailoverBackend("qmd", QmdBackend(fake.spec), broken)
    with closing(memory), pytest.raises(StoreError, match="the disk is gone"):
        memory.search("boat", SearchOptions())


def test_open_backend_follows_settings(fake: FakeQmd) -> None:
    with closing(open_backend(fake.spec, ignore_cost)) as memory:
        memory.sync()
        assert isinstance(memory, FailoverBackend) and memory._second is None
    own = replace(fake.spec, settings=MemoryConfig())
    with closing(open_backend(own, ignore_cost)) as memory:
        assert isinstance(memory, BuiltinBackend)


def test_backend_from_entry_point_fails_over_to_builtin(
    fake: FakeQmd, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(BuiltinBackend):
        def search(self, text: str, ask: SearchOptions) -> SearchResponse:
            raise StoreError("the cloud is down")

    module = SimpleNamespace(
        create=lambda spec, _spent: Broken(spec), sync_interval_s=lambda _place: 0.0
    )
    monkeypatch.setitem(sys.modules, "cloud_memory", module)
    entries = {"homarus.memory": (EntryPoint("cloud", "cloud_memory", "homarus.memory"),)}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: entries.get(group, ()))
    settings = MemoryConfig.model_validate({"backend": "cloud"})
    with closing(open_backend(replace(fake.spec, settings=settings), ignore_cost)) as memory:
        memory.sync()
        answer = memory.search("boat", SearchOptions())
    assert answer.results and answer.backend == "builtin"
    assert answer.fallback == FallbackNotice("cloud", "the cloud is down")


def test_config_backend_names_agree_with_loader() -> None:
    schema = MemoryConfig.model_json_schema(by_alias=True)
    assert schema["properties"]["backend"]["enum"] == list(MEMORY_BACKENDS.names())
