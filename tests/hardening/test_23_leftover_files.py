"""Temporary files that a crash left in a workspace are removed when the gateway starts."""

import os
import time
from pathlib import Path

from homarus.core.atomic_file import remove_leftovers, temporary_name
from tests.crash.conftest import MakeRig
from tests.crash.harness import wait_for

DAY_S = 86_400


def write(path: Path, age_s: float = DAY_S) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("half a file")
    os.utime(path, (time.time() - age_s, time.time() - age_s))
    return path


def test_only_old_temporary_files_of_ours_are_removed(tmp_path: Path) -> None:
    gone = [
        write(tmp_path / temporary_name()),
        write(tmp_path / "memory" / "2026" / temporary_name()),
        write(tmp_path / "agents/main/sessions/sessions.json.4711.tmp"),
    ]
    kept = [
        write(tmp_path / temporary_name(), age_s=-60),  # in use
        write(tmp_path / "notes.tmp"),
        write(tmp_path / ".0123.tmp"),
        write(tmp_path / "my.json.17.tmp"),
        write(tmp_path / ".git" / temporary_name()),
    ]
    outside = write(tmp_path.parent / f"{tmp_path.name}-outside" / temporary_name())
    (tmp_path / "link").symlink_to(outside.parent)
    link = tmp_path / temporary_name()
    link.symlink_to(outside)
    assert remove_leftovers([tmp_path]) == len(gone)
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in [*kept, outside, link])


def test_gateway_removes_what_a_killed_write_left(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    left = write(rig.state / "workspace" / "memory" / temporary_name())
    rig.start()
    rig.wait_ready()
    wait_for(lambda: not left.exists(), "it is removed")
