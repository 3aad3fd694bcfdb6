"""An import as a whole: counts, an unchanged source, interrupted runs, and refused places."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from homarus.core import faults
from homarus.core.errors import StateInUseError, UserError
from homarus.core.faults import InjectedFaultError, parse_faults
from homarus.store.lock import StateLock
from tests.unit.importing.source_homes import (
    make_home,
    notes,
    outcomes,
    read_target,
    read_tree,
    run_import,
    session_texts,
    write,
)

EXPECTED = {
    "sessions": 4, "transcripts": 1, "memory": 3, "cronJobs": 1, "credentials": 4,
    "approvedSenders": 2,
}  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_home(tmp_path / "old")


def test_import_of_a_home_copies_every_kind(home: Path, source: Path) -> None:
    report = run_import(home, source)
    for kind, count in EXPECTED.items():
        assert outcomes(report, kind) == {"source": count, "imported": count, "after": count}
    state = home / ".openclaw"
    assert session_texts(home, "agent:main:main") == ["one", "two"]
    assert session_texts(home, "agent:main:telegram:group:-5:topic:42") == ["in the topic"]
    assert session_texts(home, "agent:ops:abc123") == ["Hello", "Again"]
    assert session_texts(home, "agent:ops:abc123:topic:7") == ["In topic 7"]
    assert report.messages == 6
    stored = read_target(home)["sessions"]
    assert stored["agent:main:main"][2]["model"] == "gpt-x"
    assert stored["agent:ops:abc123"][2]["displayName"] == "my-api"
    topic = stored["agent:main:telegram:group:-5:topic:42"][2]["sessionFile"]
    assert topic == str(state / "agents/main/sessions/s-topic-topic-42.jsonl")
    assert Path(topic).is_file()
    assert (state / "workspace/memory/2026-04-15.md").read_text() == "# 2026-04-15\n"
    assert (state / "workspace-ops/MEMORY.md").read_text() == "# Ops\n"
    assert (state / "agents/main/sessions/s-old.jsonl").is_file()
    assert "ops: is not in the config here: homarus agents add ops" in notes(report)


def test_import_leaves_the_source_byte_equal(home: Path, source: Path) -> None:
    before = read_tree(source.parent)
    run_import(home, source)
    assert read_tree(source.parent) == before


def test_second_import_adds_nothing(home: Path, source: Path) -> None:
    run_import(home, source)
    first = read_target(home)
    report = run_import(home, source)
    for kind, count in EXPECTED.items():
        expected = {"source": count, "before": count, "present": count, "after": count}
        assert outcomes(report, kind) == expected
    assert read_target(home) == first


def test_dry_run_counts_the_same_and_writes_nothing(home: Path, source: Path) -> None:
    report = run_import(home, source, is_dry_run=True)
    assert not list(home.iterdir())
    real = run_import(home, source).as_json()
    assert report.as_json() == {**real, "dryRun": True}


@pytest.mark.parametrize("fault", ["import.item:raise:4", "import.file:raise:2"])
def test_interrupted_import_is_continued_to_the_same_end(
    home: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    run_import(whole, source)
    interrupted = 0
    for _ in range(30):
        monkeypatch.setattr(faults, "_faults", parse_faults(fault))
        try:
            run_import(home, source)
            break
        except InjectedFaultError:
            interrupted += 1
    monkeypatch.setattr(faults, "_faults", {})
    report = run_import(home, source)
    assert interrupted >= 3  # each run stores a few items before it ends
    assert not any(outcomes(report, kind).get("imported") for kind in EXPECTED)
    expected = json.loads(json.dumps(read_target(whole), default=repr).replace(str(whole), "~"))
    assert (
        json.loads(json.dumps(read_target(home), default=repr).replace(str(home), "~")) == expected
    )


def test_killed_import_is_continued(home: Path, source: Path, tmp_path: Path) -> None:
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "HOMARUS_FAULT": "store.sync:kill9:3"}
    command = [sys.executable, "-m", "homarus", "import", str(source)]
    killed = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
    assert killed.returncode == -9
    report = run_import(home, source)
    counts = outcomes(report, "sessions")
    assert 0 < counts["present"] < 4 and counts["after"] == 4
    assert session_texts(home, "agent:main:main") == ["one", "two"]


def test_import_from_the_own_home_is_refused(home: Path) -> None:
    state = make_home(home)
    with pytest.raises(UserError, match="is the home that Homarus uses"):
        run_import(home, state)
    (home / "link").symlink_to(state)
    with pytest.raises(UserError, match="is the home that Homarus uses"):
        run_import(home, home / "link")


def test_import_of_nested_folders_is_refused(home: Path, source: Path) -> None:
    inner = make_home(home / ".openclaw")
    with pytest.raises(UserError, match="is inside the state directory"):
        run_import(home, inner)
    (source / "nested/.openclaw").mkdir(parents=True)
    with pytest.raises(UserError, match="inside the source"):
        run_import(source / "nested", source)


def test_target_workspace_inside_the_source_is_refused(home: Path, source: Path) -> None:
    config = {"agents": {"defaults": {"workspace": str(source / "workspace")}}}
    write(home / ".openclaw/openclaw.json", config)
    before = read_tree(source)
    with pytest.raises(UserError, match="inside the source"):
        run_import(home, source)
    assert read_tree(source) == before


def test_target_link_into_the_source_is_refused(home: Path, source: Path) -> None:
    (home / ".openclaw/workspace").mkdir(parents=True)
    (home / ".openclaw/workspace/memory").symlink_to(source / "workspace-ops")
    before = read_tree(source)
    with pytest.raises(UserError, match="inside the source"):
        run_import(home, source)
    assert read_tree(source) == before


def test_import_while_a_gateway_runs_is_refused(
    home: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.store.lock.WAIT_S", 0)
    lock = StateLock(home / ".openclaw")
    try:
        with pytest.raises(StateInUseError, match="while a gateway runs") as refused:
            run_import(home, source)
        assert refused.value.fix == "homarus gateway stop"
        counted = run_import(home, source, is_dry_run=True)
        assert outcomes(counted, "sessions")["imported"] == 4
    finally:
        lock.release()


def test_source_without_anything_is_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds nothing to import"):
        run_import(home, tmp_path / "new")
    with pytest.raises(UserError, match="is no folder"):
        run_import(home, tmp_path / "absent")


def test_folder_that_contains_a_home_is_a_source(home: Path, source: Path) -> None:
    assert run_import(home, source.parent).source == str(source)


def test_home_with_a_damaged_config_is_imported(home: Path, source: Path) -> None:
    write(source / "openclaw.json", "{ no")
    report = run_import(home, source)
    assert outcomes(report, "sessions")["imported"] == 4
    assert "config: openclaw.json: not read" in notes(report)
