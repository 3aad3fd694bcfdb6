import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import NotFoundError, StoreError
from homarus.memory.qmd.collections import (
    QmdCollection,
    clean_name,
    collections_of,
    find_document,
    read_document,
)
from homarus.memory.qmd.process import QmdProcess
from homarus.memory.qmd.registry import CollectionRegistry
from homarus.memory.view import MemoryView
from tests.unit.memory.fake_qmd import FakeQmd, fake_qmd, make_qmd_spec


def note(base: Path, name: str, text: str = "- words\n") -> Path:
    path = base / "ws" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_collections_include_defaults_and_configured_paths(tmp_path: Path) -> None:
    paths = [
        {"path": "~/Notes & Ideas"},
        {"path": "docs", "name": "Memory_Dir!", "pattern": "*.md"},
        {"path": "/abs/üö"},
        {"path": "/abs/one.md", "name": "one"},
    ]
    spec = make_qmd_spec(tmp_path, {"paths": paths, "sessions": {"enabled": True}})
    found = [(one.name, one.root, one.pattern, one.source) for one in collections_of(spec)]
    workspace = tmp_path / "ws"
    assert found == [
        ("memory-root", workspace, "MEMORY.md", "memory"),
        ("memory-alt", workspace, "memory.md", "memory"),
        ("memory-dir", workspace / "memory", "**/*.md", "memory"),
        ("sessions", tmp_path / "agents/main/qmd/sessions", "**/*.md", "sessions"),
        ("notes-ideas", tmp_path / "Notes & Ideas", "**/*.md", "memory"),
        ("memory-dir-2", workspace / "docs", "*.md", "memory"),
        ("collection", Path("/abs/üö"), "**/*.md", "memory"),
        ("one", Path("/abs"), "one.md", "memory"),
    ]


def test_collections_defaults_can_be_disabled(tmp_path: Path) -> None:
    assert collections_of(make_qmd_spec(tmp_path, {"includeDefaultMemory": False})) == ()


@given(st.text(max_size=200))
def test_clean_name_has_only_lowercase_digits_and_hyphens(name: str) -> None:
    clean = clean_name(name)
    assert clean and len(clean) <= 64
    assert all(ch in "abcdefghijklmnopqrstuvwxyz0123456789-" for ch in clean)
    assert clean[0] != "-" != clean[-1]
    assert clean_name(clean) == clean


@pytest.mark.parametrize(
    ("pattern", "holds", "not_held"),
    [
        ("**/*.md", ["a.md", "x/y/a.md"], ["a.txt", ".a.md", ".x/a.md"]),
        ("*.md", ["a.md"], ["x/a.md"]),
        ("MEMORY.md", ["MEMORY.md"], ["x/MEMORY.md", "SOUL.md"]),
        ("docs/**", ["docs/a.md", "docs/x/a.md"], ["a.md", "other/a.md"]),
        ("{a,b}/*.md,c.md", ["a/1.md", "b/1.md", "c.md"], ["c/1.md", "x/c.md"]),
    ],
)
def test_collection_pattern_matches_like_qmd(
    pattern: str, holds: list[str], not_held: list[str]
) -> None:
    one = QmdCollection("x", Path("/x"), pattern)
    assert all(map(one.holds, holds))
    assert not any(map(one.holds, not_held))


def test_find_document_returns_file_of_collection(tmp_path: Path) -> None:
    spec = make_qmd_spec(tmp_path, {"paths": [{"path": "docs", "pattern": "*.md"}]})
    for name in ("MEMORY.md", "memory/a b/ü.md", "docs/x.md"):
        note(tmp_path, name)
    workspace = tmp_path / "ws"
    assert find_document(spec, "qmd/memory-root/MEMORY.md").file == workspace / "MEMORY.md"
    assert find_document(spec, "qmd/memory-dir/a b/ü.md").file == workspace / "memory/a b/ü.md"
    assert find_document(spec, "qmd/docs/x.md").file == workspace / "docs/x.md"


@pytest.mark.parametrize(
    "path",
    [
        "qmd/memory-root/SOUL.md",
        "qmd/memory-root/memory/a.md",
        "qmd/memory-dir/../SOUL.md",
        "qmd/memory-dir/./a.md",
        "qmd/memory-dir//a.md",
        "qmd/memory-dir//etc/x.md",
        "qmd/memory-dir/a.md/",
        "qmd/memory-dir/",
        "qmd/memory-dir",
        "qmd/",
        "qmd",
        "memory-dir/a.md",
        "qmd/other/a.md",
        "qmd/memory-dir/a.md\0.md",
        "qmd/memory-dir/secret.txt",
        "qmd/memory-dir/.hidden.md",
        "qmd/memory-dir/link.md",
        "qmd/memory-dir/linked/x.md",
        "qmd/memory-dir/folder.md",
        "qmd/memory-dir/pipe.md",
        "qmd/memory-dir/missing.md",
        "qmd/docs/sub/x.md",
    ],
)
def test_find_document_anything_else_is_not_found(tmp_path: Path, path: str) -> None:
    spec = make_qmd_spec(tmp_path, {"paths": [{"path": "docs", "pattern": "*.md"}]})
    for name in (
        "SOUL.md",
        "memory/a.md",
        "memory/.hidden.md",
        "memory/secret.txt",
        "docs/sub/x.md",
    ):
        note(tmp_path, name)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.md").write_text("secret", encoding="utf-8")
    memory = tmp_path / "ws" / "memory"
    (memory / "link.md").symlink_to(outside / "x.md")
    (memory / "linked").symlink_to(outside)
    (memory / "folder.md").mkdir()
    os.mkfifo(memory / "pipe.md")
    with pytest.raises(NotFoundError):
        find_document(spec, path)


def test_document_audience_follows_its_path(tmp_path: Path) -> None:
    spec = make_qmd_spec(
        tmp_path,
        {
            "paths": [{"path": ".", "name": "all"}, {"path": "~/memory", "name": "mine"}],
            "sessions": {"enabled": True},
        },
    )
    for name in ("MEMORY.md", "memory/a.md", "memory/shared/b.md", "memory/chats/kin-1/c.md"):
        note(tmp_path, name)
    for path in (tmp_path / "memory/shared/d.md", tmp_path / "agents/main/qmd/sessions/e.md"):
        path.parent.mkdir(parents=True)
        path.write_text("- words\n", encoding="utf-8")
    seen = {
        path: find_document(spec, path).audience
        for path in (
            "qmd/memory-root/MEMORY.md",
            "qmd/memory-dir/a.md",
            "qmd/memory-dir/shared/b.md",
            "qmd/memory-dir/chats/kin-1/c.md",
            "qmd/all/memory/chats/kin-1/c.md",
            "qmd/mine/shared/d.md",
            "qmd/sessions/e.md",
        )
    }
    assert list(seen.values()) == [
        "private",
        "private",
        "shared",
        "chat:kin-1",
        "chat:kin-1",
        "private",
        "unclaimed",
    ]


def names(fake: FakeQmd, action: str) -> list[str]:
    argv = [call["argv"] for call in fake.calls("collection")]
    found = [one for one in argv if one[3] == action]
    return [one[4].removeprefix("--name=") for one in found]


def settle(fake: FakeQmd, **settings: Any) -> CollectionRegistry:
    fake.forget()
    command = str(fake.folder / "qmd")
    spec = make_qmd_spec(fake.folder.parent, {"command": command, **settings})
    registry = CollectionRegistry(spec, QmdProcess(spec))
    registry.reconcile()
    return registry


def test_registry_adds_collections_once(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    registry = settle(fake)
    assert names(fake, "add") == ["memory-root", "memory-alt", "memory-dir"]
    workspace = str(tmp_path / "ws")
    added = next(call["argv"] for call in fake.calls() if call["argv"][3] == "add")
    assert added[3:] == ["add", "--name=memory-root", "--mask=MEMORY.md", "--", workspace]
    fake.forget()
    registry.reconcile()
    assert fake.calls() == []
    settle(fake)  # another process
    assert [call["argv"][3] for call in fake.calls()] == ["list"]


def test_registry_changed_folder_or_pattern_is_added_again(tmp_path: Path) -> None:
    for name in ("docs/a.md", "other/a.md"):
        note(tmp_path, name)
    fake = fake_qmd(tmp_path)
    settle(fake, paths=[{"path": "docs", "name": "x"}], includeDefaultMemory=False)
    assert (names(fake, "remove"), names(fake, "add")) == ([], ["x"])
    settle(fake, paths=[{"path": "other", "name": "x"}], includeDefaultMemory=False)
    assert (names(fake, "remove"), names(fake, "add")) == (["x"], ["x"])
    changed = [{"path": "other", "name": "x", "pattern": "*.md"}]
    settle(fake, paths=changed, includeDefaultMemory=False)
    assert (names(fake, "remove"), names(fake, "add")) == (["x"], ["x"])
    settle(fake, includeDefaultMemory=False)
    assert (names(fake, "remove"), names(fake, "add")) == (["x"], [])


def test_registry_foreign_collections_stay_and_taken_name_is_reused(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    config = tmp_path / "agents/main/qmd/xdg-config"
    config.mkdir(parents=True)
    (config / "known.json").write_text(json.dumps(["theirs", "memory-dir"]), encoding="utf-8")
    settle(fake)
    assert names(fake, "remove") == ["memory-dir"]
    assert json.loads((config / "known.json").read_text())[0] == "theirs"


def test_registry_adds_folder_once_it_exists_and_never_a_link(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    memory = tmp_path / "ws" / "memory"
    memory.rmdir()
    registry = settle(fake)
    assert names(fake, "add") == ["memory-root", "memory-alt"]
    (tmp_path / "elsewhere").mkdir()
    memory.symlink_to(tmp_path / "elsewhere")
    registry.reconcile()
    assert names(fake, "add") == ["memory-root", "memory-alt"]
    memory.unlink()
    memory.mkdir()
    registry.reconcile()
    assert names(fake, "add") == ["memory-root", "memory-alt", "memory-dir"]


def test_registry_failed_addition_is_retried(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    fake.does("collection", "if rest[2] == 'add': sys.exit('disk full')")
    registry = CollectionRegistry(fake.spec, QmdProcess(fake.spec))
    with pytest.raises(StoreError, match="disk full"):
        registry.reconcile()
    (fake.folder / "collection.py").unlink()
    fake.forget()
    registry.reconcile()
    assert names(fake, "add") == ["memory-root", "memory-alt", "memory-dir"]


def test_registry_invalid_record_is_ignored(tmp_path: Path) -> None:
    fake = fake_qmd(tmp_path)
    settle(fake)
    (tmp_path / "agents/main/qmd/collections.json").write_text("[{", encoding="utf-8")
    settle(fake)
    assert names(fake, "remove") == ["memory-alt", "memory-dir", "memory-root"]
    assert names(fake, "add") == ["memory-root", "memory-alt", "memory-dir"]


def test_read_document_respects_view(tmp_path: Path) -> None:
    spec = make_qmd_spec(tmp_path, {})
    note(tmp_path, "memory/a.md", "mine\n")
    note(tmp_path, "memory/shared/b.md", "ours\n")
    (tmp_path / "ws/memory/binary.md").write_bytes(b"\0\1")
    everyone = MemoryView(audiences=frozenset({"shared"}))
    assert read_document(spec, "memory-dir/a.md", MemoryView()) == b"mine\n"
    assert read_document(spec, "memory-dir/a.md", everyone) is None
    assert read_document(spec, "memory-dir/shared/b.md", everyone) == b"ours\n"
    for name in ("memory-dir/binary.md", "memory-dir/none.md", "memory-dir/../SOUL.md", ""):
        assert read_document(spec, name, MemoryView()) is None
