"""A small shared file: read when it changed, replaced whole, never lost."""

import errno
import os
from pathlib import Path

import pytest

from homarus.core.errors import DiskFullError, StoreError
from homarus.gateway.json_file import JsonFile


def test_json_file_shares_changes_with_other_programs(tmp_path: Path) -> None:
    ours, theirs = JsonFile(tmp_path / "a" / "f.json"), JsonFile(tmp_path / "a" / "f.json")
    assert ours.read() == {}
    ours.write({"x": {"é\ud800": 1}})
    assert theirs.read() == {"x": {"é\ud800": 1}}
    theirs.write({"y": 2})
    assert ours.read() == {"y": 2}
    ours.path.unlink()
    assert ours.read() == {}
    assert [p.name for p in (tmp_path / "a").iterdir()] == []


def test_json_file_unchanged_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.write({"x": 1})
    monkeypatch.setattr(Path, "read_bytes", lambda _path: pytest.fail("read again"))
    file.read()["x"] = 2
    assert file.read() == {"x": 1}, "what was handed out is the caller's own"


def test_json_file_removed_during_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.path.write_text("{}")

    def gone(path: Path) -> bytes:
        path.unlink()
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_bytes", gone)
    assert file.read() == {} and not caplog.records
    file.write({"x": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


def test_json_file_that_is_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text('{"x": 1}')
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    file = JsonFile(tmp_path / "link.json")
    assert file.read() == {"x": 1}
    file.write({"x": 2})
    assert (tmp_path / "link.json").is_symlink()
    assert JsonFile(tmp_path / "real.json").read() == {"x": 2}


def test_json_file_on_full_disk_keeps_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.write({"x": 1})

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFullError, match="was not changed"):
            file.write({"x": 2})
    assert file.read() == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["f.json"]


def test_json_file_that_is_no_regular_file_counts_as_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert JsonFile(tmp_path / "pipe.json").read() == {}
    (tmp_path / "folder.json").mkdir()
    assert JsonFile(tmp_path / "folder.json").read() == {}
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        JsonFile(tmp_path / "file" / "x.json").write({})
