"""`file_delete` and the trash: what may be deleted, where it goes, and how long it stays."""

import asyncio
from pathlib import Path

import pytest

from homarus.core.errors import ToolError
from homarus.policy.workspace_access import FULL_ACCESS, FileScope, session_access
from homarus.tools.builtin.file_delete import file_delete
from homarus.tools.builtin.files import read
from homarus.tools.folder import open_by_path
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.tool import ToolContext, ToolOutput
from homarus.tools.trash import make_batch, prune_trash

GROUP = "agent:main:telegram:group:-1"
DAY_S = 86_400


async def use(root: Path, path: str, key: str = "agent:main:main") -> str:
    """Delete a path and return where it is in the trash."""
    ctx = ToolContext(key, "main", root, run_access=session_access(key))
    result = await file_delete(ctx, {"path": path})
    assert isinstance(result, ToolOutput) and result.details
    return str(result.details["trash"])


async def effects(root: Path, path: str) -> frozenset[str]:
    assert file_delete.find_effects is not None
    return await file_delete.find_effects(ToolContext("agent:main:main", "main", root), path=path)


async def test_deleted_file_is_in_the_trash_and_restorable(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("text")
    trashed = await use(tmp_path, "notes/a.md")
    assert not (tmp_path / "notes" / "a.md").exists()
    assert trashed.startswith(".trash/") and trashed.endswith("/notes/a.md")
    (tmp_path / trashed).rename(tmp_path / "notes" / "a.md")
    assert (tmp_path / "notes" / "a.md").read_text() == "text"


async def test_deleted_folder_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("c")
    trashed = await use(tmp_path, "a/")
    assert (tmp_path / trashed / "b" / "c").read_text() == "c" and not (tmp_path / "a").exists()


async def test_file_of_the_same_name_is_deleted_again(tmp_path: Path) -> None:
    for _ in range(3):
        (tmp_path / "a").write_text("x")
        await use(tmp_path, "a")
    assert len(list((tmp_path / ".trash").glob("*/a"))) == 3


async def test_deleted_link_is_moved_and_its_target_stays(tmp_path: Path) -> None:
    root, outside = tmp_path / "workspace", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").write_text("x")
    (root / "link").symlink_to(outside)
    trashed = await use(root, "link")
    assert (root / trashed).is_symlink() and (outside / "file").read_text() == "x"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".", "the workspace itself"),
        ("sub/..", "the workspace itself"),
        ("..", "outside the workspace"),
        ("../outside", "outside the workspace"),
        ("/etc/hostname", "outside the workspace"),
        ("link/file", "outside the workspace|absolute path"),
        ("missing", "no such file"),
        ("missing/deep", "no such file"),
        ("sub\0", "nobody can see"),
        (".git", "nothing is written in"),
        (".openclaw", "gateway's own state"),
        ("state", "contains the gateway's own state"),
        (".trash", "is in the trash"),
        (".TRASH/x", "is in the trash|no such file"),
    ],
)
async def test_what_may_not_be_deleted_stays(path: str, reason: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "workspace", tmp_path / "outside"
    for folder in (outside, root / "sub", root / ".git", root / ".openclaw", root / ".trash"):
        folder.mkdir(parents=True)
    (root / "state" / "inner" / ".openclaw").mkdir(parents=True)
    (outside / "file").write_text("x")
    (root / "link").symlink_to("../outside")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ToolError, match=reason):
        await use(root, path)
    assert sorted(tmp_path.rglob("*")) == before


async def test_trash_that_is_a_link_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "workspace", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / ".trash").symlink_to(outside)
    (root / "a").write_text("x")
    with pytest.raises(ToolError):
        await use(root, "a")
    assert (root / "a").exists() and list(outside.iterdir()) == []


async def test_deletion_outside_the_workspace_has_no_trash(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "a").write_text("x")
    scope = FileScope(protected=())
    ctx = ToolContext(
        "agent:main:main", "main", tmp_path / "workspace", run_access=FULL_ACCESS, scope=scope
    )
    with pytest.raises(ToolError, match="where there is no trash"):
        await file_delete(ctx, {"path": str(tmp_path / "a")})
    assert (tmp_path / "a").exists()


async def test_group_deletes_its_files_and_no_others(tmp_path: Path) -> None:
    for name in ("AGENTS.md", "MEMORY.md", "memory/2026.md", "skills/a/SKILL.md", "docs/rules.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "SOUL.md").symlink_to("docs/rules.md")
    (tmp_path / "plain").write_text("x")
    refused = ("AGENTS.md", "MEMORY.md", "memory", "skills", "skills/a", "docs", "docs/rules.md")
    for path in (*refused, "SOUL.md", "memory/2026.md"):
        with pytest.raises(ToolError, match=r"not written from this conversation"):
            await use(tmp_path, path, GROUP)
    await use(tmp_path, "plain", GROUP)
    assert not (tmp_path / "plain").exists() and (tmp_path / "docs/rules.md").exists()


async def test_trash_is_not_there_for_other_audiences(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("private")
    trashed = await use(tmp_path, "MEMORY.md")
    ctx = ToolContext(GROUP, "main", tmp_path, run_access=session_access(GROUP))
    with pytest.raises(ToolError, match="no such file"):
        await read(ctx, {"path": trashed})
    assert "private" in str(
        await read(ToolContext("agent:main:main", "main", tmp_path), {"path": trashed})
    )


async def test_deletion_effects_are_those_of_what_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rules.md").write_text("x")
    (tmp_path / "AGENTS.md").symlink_to("docs/rules.md")
    assert await effects(tmp_path, "notes.md") == set()
    for path in ("AGENTS.md", "skills", "hooks/x", "docs", "docs/rules.md", "SOUL.md"):
        assert await effects(tmp_path, path) == {"identity"}
    assert await effects(tmp_path, "/etc/hosts") == {"config"}


def test_portable_folders_move_to_the_trash_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("x")
    trashed = RootedFs(tmp_path, open_by_path).move_to_trash("a/b", "batch")
    assert trashed == ".trash/batch/a/b" and (tmp_path / trashed).read_text() == "x"


async def test_parallel_deletions_all_arrive(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"f{number}").write_text("x")
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(use(tmp_path, f"f{number}"))
    assert len(list((tmp_path / ".trash").glob("*/f*"))) == 20


def test_old_trash_is_pruned_and_the_rest_stays(tmp_path: Path) -> None:
    now_s = 1_800_000_000.0
    old, new = make_batch(now_s - 31 * DAY_S), make_batch(now_s - 29 * DAY_S)
    for name in (old, new, "mine"):
        (tmp_path / ".trash" / name / "deep").mkdir(parents=True)
        (tmp_path / ".trash" / name / "deep" / "file").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (tmp_path / ".trash" / old / "link").symlink_to(outside)
    linked = f"{old[:-6]}ffffff"
    (tmp_path / ".trash" / linked).symlink_to(outside)
    assert prune_trash(tmp_path, int(now_s * 1000)) == [old]
    left = {path.name for path in (tmp_path / ".trash").iterdir()}
    assert left == {new, "mine", linked} and (outside / "file").exists()


def test_pruning_ignores_a_trash_that_is_missing_or_a_link(tmp_path: Path) -> None:
    assert prune_trash(tmp_path, 0) == []
    other = tmp_path / "other"
    (other / make_batch(0.0)).mkdir(parents=True)
    (tmp_path / ".trash").symlink_to(other)
    assert prune_trash(tmp_path, 1_800_000_000_000) == []
    assert len(list(other.iterdir())) == 1
