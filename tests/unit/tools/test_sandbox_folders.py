"""Names, locks and records of sandboxes."""

import os
import re
from pathlib import Path

import pytest

from homarus.cli.sandbox import _used_bytes
from homarus.core.errors import SandboxError
from homarus.tools.sandbox.folders import (
    SandboxFolders,
    SandboxRecord,
    data_folders,
    data_root,
    load_record,
    make_sandbox_name,
    remove_tree,
)
from tests.unit.tools.sandbox_builders import GROUP


def folders(tmp: Path) -> SandboxFolders:
    return SandboxFolders(data_root(tmp) / "one-1", tmp / "sandboxes" / "one-1")


@pytest.mark.parametrize(
    "key",
    [
        "agent:main:../../etc",
        "agent:main:/etc/passwd",
        "agent:main:\x00\n\u202e",
        "agent:main:" + "x" * 5000,
        "agent:main:\ud800",
        "",
        "..",
    ],
)
def test_sandbox_name_of_untrusted_key_is_safe(key: str) -> None:
    name = make_sandbox_name("session", "main", key)
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}[a-z0-9]", name)


def test_sandbox_name_by_scope_is_shared_by_the_right_sessions() -> None:
    one, two = GROUP, "agent:main:telegram:group:100"  # they read the same without their signs
    names = {make_sandbox_name("session", "main", key) for key in (one, two, one.upper())}
    assert len(names) == 3
    assert make_sandbox_name("agent", "main", one) == make_sandbox_name("agent", "main", two)
    assert make_sandbox_name("agent", "main", one) != make_sandbox_name("agent", "work", one)
    assert make_sandbox_name("shared", "main", one) == make_sandbox_name("shared", "work", two)
    assert make_sandbox_name("session", "main", one).startswith("main-telegram-group-100-")


def test_acquire_creates_private_folders_with_a_shared_lock(tmp_path: Path) -> None:
    own = folders(tmp_path)
    first, second = own.acquire(), own.acquire()
    for folder in (own.data, own.tmp, own.workspace):
        assert folder.stat().st_mode & 0o777 == 0o700
    os.close(first)
    for folder in (own.tmp, own.workspace):
        folder.chmod(0)  # as a command may do, and the next one could not start
    os.close(own.acquire())
    assert {each.stat().st_mode & 0o777 for each in (own.tmp, own.workspace)} == {0o700}
    assert own.is_live() and own.acquire_exclusive() is None
    os.close(second)
    assert not own.is_live()


def test_acquire_while_removed_fails_and_then_makes_new_folders(tmp_path: Path) -> None:
    own = folders(tmp_path)
    os.close(own.acquire())
    (own.workspace / "old").touch()
    exclusive = own.acquire_exclusive()
    assert exclusive is not None
    with pytest.raises(SandboxError, match="is being removed"):
        own.acquire()
    assert len(own.move_to_trash()) == 2
    fd = own.acquire()  # the lock that is held is that of the removed one
    os.close(exclusive)
    assert own.is_live() and not (own.workspace / "old").exists()
    os.close(fd)


def test_acquire_refuses_a_link_in_place_of_the_workspace(tmp_path: Path) -> None:
    own = folders(tmp_path)
    own.workspace.parent.mkdir(parents=True)
    own.workspace.symlink_to(tmp_path)
    with pytest.raises(SandboxError, match="is a link"):
        own.acquire()
    assert not own.is_live()


def test_record_is_private_and_written_once_a_minute(tmp_path: Path) -> None:
    own = folders(tmp_path)
    os.close(own.acquire())
    record = SandboxRecord("one-1", GROUP, "main", "session", "oci", 5, 5, own.workspace)
    own.save(record)
    file = own.data / "sandbox.json"
    assert file.stat().st_mode & 0o777 == 0o600 and load_record(own.data) == record
    before = file.stat().st_ino
    own.save(SandboxRecord("one-1", GROUP, "main", "session", "oci", 9, 9, own.workspace))
    assert file.stat().st_ino == before
    own.save(SandboxRecord("one-1", GROUP, "main", "session", "oci", 9, 90_000, own.workspace))
    loaded = load_record(own.data)
    assert loaded and (loaded.created_ms, loaded.used_ms) == (5, 90_000)
    assert [each.name for each in own.data.iterdir() if each.name.endswith(".tmp")] == []


@pytest.mark.parametrize("text", ["", "[]", '{"name": "two-2"}', "\0"])
def test_record_that_is_invalid_is_not_loaded(tmp_path: Path, text: str) -> None:
    own = folders(tmp_path)
    os.close(own.acquire())
    (own.data / "sandbox.json").write_text(text)
    assert load_record(own.data) is None and list(data_folders(tmp_path)) == [own.data]


def test_record_with_another_path_is_not_loaded(tmp_path: Path) -> None:
    own = folders(tmp_path)
    os.close(own.acquire())
    own.save(SandboxRecord("one-1", GROUP, "main", "session", "oci", 5, 5, Path("/etc")))
    assert load_record(own.data) is None


def test_remove_tree_of_unreadable_folders_spares_linked_ones(tmp_path: Path) -> None:
    other, top = tmp_path / "other", tmp_path / "top"
    (other / "kept").mkdir(parents=True)
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "link").symlink_to(other)
    (top / "closed").chmod(0)
    remove_tree(top)
    assert not top.exists() and (other / "kept").is_dir()


def test_remove_tree_of_very_deep_folders_removes_them(tmp_path: Path) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    top.mkdir()
    outside.mkdir()
    fd = os.open(top, os.O_RDONLY)
    name = "d" * 10
    for _ in range(1100):  # deeper than recursion goes, and than a path can name
        os.mkdir(name, dir_fd=fd)
        os.symlink(outside, "link", dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    assert _used_bytes(top) == 0
    remove_tree(top)
    assert not top.exists() and outside.exists()
