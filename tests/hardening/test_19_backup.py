"""`homarus backup` saves everything consistently, finds every change, and destroys nothing."""

import asyncio
import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from homarus.cli.backup import command
from homarus.core.errors import CorruptDataError, HomarusError, StateInUseError, UserError
from homarus.store.backup import MANIFEST, verify_backup
from homarus.store.lock import StateLock
from homarus.store.sqlite import open_store
from tests.hardening.state_sample import ENTRIES, SESSIONS, fill_state, read_entries, use_store

NOTE = "workspace/MEMORY.md"
Members: TypeAlias = list[tuple[tarfile.TarInfo, bytes]]
Change: TypeAlias = Callable[[tarfile.TarInfo, bytes], Members]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("OPENCLAW_", "XDG_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    state = home / ".openclaw"
    asyncio.run(fill_state(state))
    for name, text in {
        NOTE: "a note",
        "openclaw.json": "{}",
        "credentials/telegram-allowFrom.json": "[]",
        "logs/old.log": "noise",
        "gateway.json": "{}",
        "state.sqlite.damaged-1": "old damage",
    }.items():
        (state / name).parent.mkdir(exist_ok=True)
        (state / name).write_text(text)
    (state / "workspace/link").symlink_to("/etc/passwd")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return home


def call(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def create(home: Path) -> Path:
    done = call("create", "--output", str(home.parent / "b.tar.gz"), "--json")
    assert done.exception is None, done.exception
    return Path(json.loads(done.output)["path"])


def test_backup_holds_everything_but_derived_files(home: Path) -> None:
    file = create(home)
    assert file.stat().st_mode & 0o777 == 0o600
    report = verify_backup(file)
    names = set(report.files)
    assert {f"state/{NOTE}", "state/openclaw.json", "state/state.sqlite"} <= names
    assert "state/credentials/telegram-allowFrom.json" in names
    assert sum(name.endswith(".jsonl") for name in names) == SESSIONS
    left_out = ("logs", "gateway.json", "lock", "-wal", "damaged", "link")
    assert not [name for name in names if any(word in name for word in left_out)]
    shown = call("verify", str(file))
    assert "is complete" in shown.output
    again = call("create", "--output", str(file))
    assert isinstance(again.exception, UserError), "an existing file is not replaced"


async def test_backup_of_a_running_store_is_consistent(home: Path) -> None:
    async with open_store(home / ".openclaw") as store:
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(asyncio.to_thread(create, home))
            await use_store(store)
        assert verify_backup(writing.result()).files


async def test_restore_brings_everything_back_and_keeps_what_was_there(home: Path) -> None:
    file = await asyncio.to_thread(create, home)
    state = home / ".openclaw"
    (state / NOTE).write_text("changed later")
    done = await asyncio.to_thread(call, "restore", str(file), "--yes")
    assert done.exception is None, done.exception
    assert (state / NOTE).read_text() == "a note"
    (kept,) = home.glob(".openclaw.before-restore-*")
    assert (kept / NOTE).read_text() == "changed later" and (kept / "logs/old.log").exists()
    assert str(kept.name) in done.output
    async with open_store(state) as store:
        for number in range(SESSIONS):
            assert len(await read_entries(store, number)) == ENTRIES
        await use_store(store)
    assert state.stat().st_mode & 0o777 == 0o700
    modes = {path.stat().st_mode & 0o077 for path in state.rglob("*")}
    assert modes == {0}


def test_restore_over_a_running_gateway_is_refused(home: Path) -> None:
    file = create(home)
    lock = StateLock(home / ".openclaw")
    try:
        done = call("restore", str(file), "--yes")
    finally:
        lock.release()
    assert isinstance(done.exception, StateInUseError)
    assert "running gateway" in str(done.exception)
    assert not list(home.glob(".openclaw.*"))


def test_restore_without_consent_changes_nothing(home: Path) -> None:
    file = create(home)
    done = CliRunner().invoke(command, ["restore", str(file)], input="n\n")
    assert done.exit_code == 1 and not list(home.glob(".openclaw.*"))


def test_restore_into_an_empty_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = create(home)
    other = home.parent / "other"
    other.mkdir()
    monkeypatch.setenv("HOME", str(other))
    done = call("restore", str(file), "--yes", "--json")
    assert done.exception is None and json.loads(done.output)["ok"]
    assert (other / ".openclaw" / NOTE).read_text() == "a note"


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9, 0.999])
def test_verify_finds_a_changed_byte(home: Path, where: float) -> None:
    file = create(home)
    data = bytearray(file.read_bytes())
    data[int(len(data) * where)] ^= 0x55
    file.write_bytes(data)
    with pytest.raises(CorruptDataError, match="not a complete backup"):
        verify_backup(file)


def test_verify_invalid_compressed_data_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "changed.tar.gz"
    header, invalid_block = gzip.compress(b"")[:10], b"\x07"  # deflate has no block type 3
    file.write_bytes(header + invalid_block * 64)
    with pytest.raises(CorruptDataError, match=r"not a complete backup: .*invalid block type"):
        verify_backup(file)


def test_verify_finds_a_backup_that_was_cut(home: Path) -> None:
    file = create(home)
    file.write_bytes(file.read_bytes()[:-2_000])
    with pytest.raises(CorruptDataError, match="not a complete backup"):
        verify_backup(file)


def rewrite(file: Path, change: Change) -> Path:
    """Rewrite the archive with each member changed."""
    hostile = file.with_name("hostile.tar.gz")
    with tarfile.open(file) as source, tarfile.open(hostile, "w:gz") as target:
        for member in source:
            opened = source.extractfile(member)
            assert opened is not None
            for info, data in change(member, opened.read()):
                info.size = len(data) if info.isreg() else 0
                target.addfile(info, io.BytesIO(data))
    return hostile


def link(name: str, kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "extra",
    [
        tarfile.TarInfo("../../escaped"),
        tarfile.TarInfo("/etc/escaped"),
        tarfile.TarInfo("state/../../escaped"),
        tarfile.TarInfo("state//escaped"),
        tarfile.TarInfo("state/added"),
        link("state/link", tarfile.SYMTYPE, "/etc"),
        link("state/hard", tarfile.LNKTYPE, "/etc/passwd"),
        link("state/fifo", tarfile.FIFOTYPE, ""),
        link("state/device", tarfile.CHRTYPE, ""),
    ],
    ids=lambda info: info.name,
)
def test_restore_refuses_hostile_members(home: Path, extra: tarfile.TarInfo) -> None:
    def add(info: tarfile.TarInfo, data: bytes) -> Members:
        return [(info, data)] if info.name != f"state/{NOTE}" else [(extra, b"x"), (info, data)]

    hostile = rewrite(create(home), add)
    done = call("restore", str(hostile), "--yes")
    assert isinstance(done.exception, HomarusError)
    assert not list(home.parent.rglob("escaped")) and (home / ".openclaw" / NOTE).exists()


def test_restore_puts_no_workspace_over_hidden_folders(home: Path) -> None:
    """The place of a workspace comes from the archive."""
    (home / ".ssh").mkdir()
    (home / ".ssh/authorized_keys").write_text("mine")

    def aim(info: tarfile.TarInfo, data: bytes) -> Members:
        if info.name != MANIFEST:
            return [(info, data)]
        manifest = json.loads(data)
        digest = hashlib.sha256(b"theirs").hexdigest()
        theirs = {"size": 6, "sha256": digest, "mode": 0o600}
        manifest["roots"]["workspace-x"] = str(home / ".ssh")
        manifest["files"]["workspace-x/authorized_keys"] = theirs
        added = tarfile.TarInfo("workspace-x/authorized_keys")
        added.mode = 0o600
        return [(added, b"theirs"), (info, json.dumps(manifest).encode())]

    done = call("restore", str(rewrite(create(home), aim)), "--yes")
    assert done.exception is None, done.exception
    assert (home / ".ssh/authorized_keys").read_text() == "mine"
    put = home / ".openclaw/restored/workspace-x/authorized_keys"
    assert put.read_text() == "theirs"


def test_workspace_outside_the_state_directory_is_saved_and_restored(home: Path) -> None:
    workspace = home / "notes"
    workspace.mkdir()
    (workspace / "AGENTS.md").write_text("rules")
    config = {"agents": {"defaults": {"workspace": str(workspace)}}}
    (home / ".openclaw/openclaw.json").write_text(json.dumps(config))
    file = create(home)
    (workspace / "AGENTS.md").write_text("changed")
    done = call("restore", str(file), "--yes")
    assert done.exception is None, done.exception
    assert (workspace / "AGENTS.md").read_text() == "rules"
    (kept,) = home.glob("notes.before-restore-*")
    assert (kept / "AGENTS.md").read_text() == "changed"


def test_damaged_database_is_not_backed_up_silently(home: Path) -> None:
    database = home / ".openclaw/state.sqlite"
    data = bytearray(database.read_bytes())
    data[20_000:30_000] = b"\xaa" * 10_000
    database.write_bytes(data)
    done = call("create", "--output", str(home.parent / "c.tar.gz"))
    assert isinstance(done.exception, CorruptDataError) and "doctor --fix" in done.exception.fix
    assert not list(home.parent.glob("c.tar.gz*"))
