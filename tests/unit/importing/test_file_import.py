"""Notes that meet others, and files that are not notes."""

import os
from pathlib import Path

import pytest

from homarus.importing import file_import
from tests.unit.importing.source_homes import notes, outcomes, run_import, write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path / "old/workspace/MEMORY.md", "theirs\n")
    return tmp_path / "old"


def workspace(home: Path) -> Path:
    return home / ".openclaw/workspace"


def test_different_note_is_stored_under_another_name(home: Path, source: Path) -> None:
    write(source / "workspace/memory/day.md", "their day\n")
    ours = write(workspace(home) / "MEMORY.md", "ours\n")
    day = write(workspace(home) / "memory/day.md", "our day\n")
    report = run_import(home, source)
    assert outcomes(report, "memory") == {"source": 2, "before": 2, "keptBeside": 2, "after": 4}
    assert (ours.read_text(), day.read_text()) == ("ours\n", "our day\n")
    copies = {path.name: path.read_text() for path in day.parent.glob("*.imported-*.md")}
    assert sorted(copies.values()) == ["their day\n", "theirs\n"]
    assert all(name.startswith(("MEMORY.imported-", "day.imported-")) for name in copies)
    assert "MEMORY.md is different here" in notes(report)
    again = run_import(home, source)
    assert outcomes(again, "memory") == {"source": 2, "before": 4, "present": 2, "after": 4}


def test_note_changed_here_is_not_imported_again(home: Path, source: Path) -> None:
    run_import(home, source)
    (workspace(home) / "MEMORY.md").write_text("theirs\nand ours\n")
    report = run_import(home, source)
    assert outcomes(report, "memory") == {"source": 1, "before": 1, "present": 1, "after": 1}


def test_note_keeps_its_time_and_is_private(home: Path, source: Path) -> None:
    os.utime(source / "workspace/MEMORY.md", ns=(5_000_000_000, 5_000_000_000))
    run_import(home, source)
    status = (workspace(home) / "MEMORY.md").stat()
    assert (status.st_mtime_ns, status.st_mode & 0o777) == (5_000_000_000, 0o600)


def test_files_that_are_not_notes_are_skipped(
    home: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_import, "MAX_FILE_BYTES", 20)
    memory = source / "workspace/memory"
    write(memory / "good.md", "good\n")
    write(memory / "large.md", "x" * 21)
    write(memory / "data.json", "{}")
    write(memory / "new\nline.md", "x")
    (memory / "link.md").symlink_to(write(tmp_path / "secret.md", "secret"))
    (memory / "folder").symlink_to(tmp_path)
    os.mkfifo(memory / "pipe.md")
    os.close(os.open(os.fsencode(memory) + b"/\xff.md", os.O_CREAT | os.O_WRONLY, 0o600))
    report = run_import(home, source)
    assert outcomes(report, "memory") == {"source": 7, "imported": 2, "skipped": 5, "after": 2}
    assert {path.name for path in (workspace(home) / "memory").iterdir()} == {"good.md"}
    for reason in ("leads out of", "not a file", "control characters", "not UTF-8", "larger than"):
        assert reason in notes(report)
    assert "secret" not in "".join(p.read_text() for p in workspace(home).rglob("*.md"))


def test_workspace_outside_the_source_needs_the_option(
    home: Path, source: Path, tmp_path: Path
) -> None:
    write(tmp_path / "clawd/MEMORY.md", "outside\n")
    (source / "workspace/MEMORY.md").unlink()
    (source / "workspace").rmdir()
    write(source / "openclaw.json", {"agent": {"workspace": str(tmp_path / "clawd")}})
    report = run_import(home, source)
    assert not outcomes(report, "memory")
    assert "this workspace is outside SOURCE; import it with --workspace DIR" in notes(report)
    run_import(home, source, workspace=tmp_path / "clawd")
    assert (workspace(home) / "MEMORY.md").read_text() == "outside\n"


def test_linked_workspace_is_not_followed(home: Path, source: Path, tmp_path: Path) -> None:
    (source / "workspace").rename(tmp_path / "moved")
    (source / "workspace").symlink_to(tmp_path / "moved")
    (source / "agents").mkdir()
    report = run_import(home, source)
    assert not outcomes(report, "memory")
    assert "this workspace is outside SOURCE" in notes(report)
