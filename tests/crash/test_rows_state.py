"""Rows 24, 43 and 44: a state directory that is damaged, in use, or read-only."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from homarus.core.errors import CorruptDataError, StateInUseError
from homarus.store.base import SessionRecord, TranscriptEntry, TranscriptHeader
from homarus.store.sqlite import SqliteStore, check_database, open_store
from tests.e2e.program import DEADLINE_S, Done, Home

COUNT = 30


@pytest.fixture
def home(tmp_path: Path) -> Home:
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = Home(tmp_path, {**keep, "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"})
    home.use_model("http://127.0.0.1:9/v1")
    return home


async def fill(store: SqliteStore) -> None:
    """Write a session of COUNT messages to the database and its file."""
    async with store.transaction() as transaction:
        transaction.open_transcript(TranscriptHeader("s1", "main", 5, "/w"))
        transaction.put_session(SessionRecord("agent:main:main", "main", "s1", 5))
    for n in range(COUNT):
        message = {"role": "user", "content": f"{n}" * 400, "timestamp": n}
        parent = f"{n - 1:08x}" if n else None
        async with store.transaction() as transaction:
            transaction.append(
                "s1", TranscriptEntry(f"{n:08x}", parent, "message", 5, {"message": message})
            )
    await store.flush()


async def fill_and_copy(state: Path, copy: Path) -> None:
    """Fill a state directory and copy it as a kill -9 would leave it."""
    async with open_store(state) as store:
        await fill(store)
        shutil.copytree(state, copy)


def start_gateway(home: Home) -> Done:
    """Run `gateway run` where it cannot start; return how it ends."""
    return home.run("gateway", "run", "--port", "0")


@pytest.mark.parametrize("harm", ["not a database", "damaged inside", "cut"])
async def test_row_43_damaged_database_is_rebuilt_and_kept(
    home: Home, tmp_path: Path, harm: str
) -> None:
    await fill_and_copy(home.state, tmp_path / "killed")
    database = home.state / "state.sqlite"
    data = bytearray(database.read_bytes())
    if harm == "not a database":
        data[:] = b"these are not the bytes of a database " * 500
    elif harm == "damaged inside":
        data[100:4096] = b"\xaa" * 3996
    else:
        del data[6_000:]
    database.write_bytes(data)
    with pytest.raises(CorruptDataError):
        check_database(database)
    doctor = home.run("doctor")
    assert doctor.status != 0 and "state.sqlite is damaged" in doctor.out
    assert database.read_bytes() == data, "doctor alone changes nothing"
    async with open_store(home.state) as store:
        found = await store.entries("s1")
        assert [entry.id for entry in found] == [f"{n:08x}" for n in range(COUNT)]
    (kept,) = home.state.glob("state.sqlite.damaged-*")
    assert kept.read_bytes() == data, "nothing was thrown away"
    check_database(database)
    assert "the database is sound" in home.run("doctor", "--all").out


async def test_row_43_database_without_log_imports_files(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    await fill_and_copy(tmp_path / "state", killed)
    assert (killed / "state.sqlite-wal").stat().st_size > 0
    for name in ("state.sqlite-wal", "state.sqlite-shm"):
        (killed / name).unlink()
    async with open_store(killed) as store:
        record = await store.session("agent:main:main")
        assert record is not None and record.session_id == "s1"
        found = await store.entries("s1")
        assert [entry.id for entry in found] == [f"{n:08x}" for n in range(COUNT)]


@pytest.fixture
def gateway(home: Home) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "homarus", "gateway", "run", "--port", "0"]
    with subprocess.Popen(
        command, env=home.env, cwd=home.path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "is ready on" in process.stdout.readline()
        yield process
        process.kill()


def test_row_44_second_gateway_on_state_directory_is_refused(
    home: Home, gateway: "subprocess.Popen[str]"
) -> None:
    done = start_gateway(home)
    assert done.status == 75
    assert f"process {gateway.pid}" in done.err and str(home.state) in done.err
    with pytest.raises(StateInUseError, match=f"process {gateway.pid} uses"):
        open_store(home.state)
    assert gateway.poll() is None
    gateway.send_signal(signal.SIGTERM)
    assert gateway.wait(DEADLINE_S) == 0


def lose_the_right_to_write(folder: Path) -> None:
    """Make the directory read-only, as a mount would; permissions do not stop root."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
    else:
        folder.chmod(0o500)


@pytest.fixture
def read_only(home: Home) -> Iterator[Home]:
    try:
        lose_the_right_to_write(home.state)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("neither mounts nor permissions hold here")
    yield home
    if os.geteuid() == 0:
        subprocess.run(["umount", home.state], check=True)
    home.state.chmod(0o700)


def test_row_24_read_only_state_directory_refuses_start(read_only: Home) -> None:
    done = start_gateway(read_only)
    assert done.status not in {0, -9}
    assert "cannot write in the state directory" in done.err and "permissions" in done.err
