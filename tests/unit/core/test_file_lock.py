"""The file lock: it excludes other holders, ends with its process, and may be optional."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from homarus.core.file_lock import file_lock, open_lock_file, try_lock, wait_for_lock

HOLD = """
import sys
from pathlib import Path
from homarus.core.file_lock import file_lock
with file_lock(Path(sys.argv[1]), 0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


def test_file_lock_creates_a_private_file_and_can_be_taken_again(path: Path) -> None:
    for _ in range(2):
        with file_lock(path, 0):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(TimeoutError, match="another program holds it"), file_lock(path, 0):
                pytest.fail("two holders")


def test_file_lock_holder_killed_is_released_by_the_kernel(path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        with pytest.raises(TimeoutError), file_lock(path, 0.02):
            pytest.fail("two holders")
        holder.send_signal(signal.SIGKILL)
        with file_lock(path, 10):
            pass


def test_file_lock_refuses_a_symlink(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"), file_lock(path, 0):
        pytest.fail("a link was followed")
    assert not (tmp_path / "target").exists()


def test_shared_lock_is_refused_only_while_exclusively_held(path: Path) -> None:
    one, two = open_lock_file(path), open_lock_file(path)
    try:
        assert try_lock(one, is_shared=True) and try_lock(two, is_shared=True)
        assert not try_lock(one)
    finally:
        os.close(one)
    assert try_lock(two) and wait_for_lock(two, 0)
    os.close(two)


@pytest.mark.parametrize("is_optional", [False, True])
def test_file_system_without_locks_is_an_error_unless_optional(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_optional: bool
) -> None:
    def fail(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    if is_optional:
        with file_lock(path, 0, is_optional=True):
            return
    with pytest.raises(OSError, match="lock"), file_lock(path, 0):
        pytest.fail("no lock was taken")
