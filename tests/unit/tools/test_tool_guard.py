"""Beneath: nothing outside the root is reached, by any path, at any moment."""

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.tools.folder import BY_DESCRIPTOR, Folder, open_by_path, open_folder
from homarus.tools.rooted_fs import FileChangedError, RootedFs

CANARY = b"canary: nobody may read this"
OUTSIDE = {"only-outside": b"", "secret": CANARY}
KINDS = [open_folder, open_by_path] if BY_DESCRIPTOR else [open_by_path]
Opener = Callable[[Path], Folder]
by_descriptor = pytest.mark.skipif(not BY_DESCRIPTOR, reason="needs descriptors for folders")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A root `ws`, and an `outside` with a canary beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(CANARY)
    (tmp_path / "outside" / "only-outside").write_bytes(b"")
    root = tmp_path / "ws"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("inside")
    (root / "sub" / "k.txt").write_text("k")
    (root / "link_out").symlink_to(tmp_path / "outside" / "secret")
    (root / "link_dir").symlink_to(tmp_path / "outside")
    (root / "link_up").symlink_to("../outside")
    (root / "link_in").symlink_to("sub")
    (root / "link_file").symlink_to("sub/../a.txt")
    (root / "loop").symlink_to("loop")
    (root / "sub" / "link_up").symlink_to("../..")
    return tmp_path


def read(root: Path, path: str, opener: Opener = open_folder) -> bytes:
    with RootedFs(root, opener).open_read(path) as opened:
        return opened.file.read()


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, to see whether anything changed."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def open_fds() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.parametrize("opener", KINDS)
@pytest.mark.parametrize(
    "path",
    ["a.txt", "./a.txt", "sub/../a.txt", "sub//k.txt", "sub/deep/../../a.txt", "{root}/a.txt"],
)
def test_rooted_fs_reads_paths_inside(world: Path, path: str, opener: Opener) -> None:
    root = world / "ws"
    assert read(root, path.format(root=root), opener) in (b"inside", b"k")


@by_descriptor
def test_rooted_fs_follows_links_inside(world: Path) -> None:
    root = world / "ws"
    assert read(root, "link_in/k.txt") == b"k"
    assert read(root, "link_file") == b"inside"
    assert read(root, "link_in/../a.txt") == b"inside"


@pytest.mark.parametrize("opener", KINDS)
@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside/secret",
        "sub/../../outside/secret",
        "link_out",
        "link_dir/secret",
        "link_up/secret",
        "sub/link_up/outside/secret",
        "loop",
        "{outside}/secret",
        "{root}/../outside/secret",
        "/etc/passwd",
        "//etc/passwd",
        "~/x",
        "~root/x",
        "a.txt/",
        "sub",
        "missing",
        "a.txt/b",
    ],
)
def test_rooted_fs_refuses_paths_that_are_not_files_inside(
    world: Path, path: str, opener: Opener
) -> None:
    root = world / "ws"
    before = tree(world / "outside")
    with pytest.raises(ToolError) as refused:
        read(root, path.format(root=root, outside=world / "outside"), opener)
    assert "canary" not in str(refused.value)
    with pytest.raises(ToolError):
        RootedFs(root, opener).write_atomic(
            path.format(root=root, outside=world / "outside") + "/x/../y/..", b"pwned"
        )
    assert tree(world / "outside") == before


def test_rooted_fs_expands_home_when_root_is_home(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(world / "ws"))
    assert read(world / "ws", "~/a.txt") == b"inside"
    monkeypatch.setenv("HOME", str(world / "outside"))
    with pytest.raises(ToolDeniedError):
        read(world / "ws", "~/secret")


def test_rooted_fs_linked_root_is_known_by_both_names(world: Path) -> None:
    alias = world / "alias"
    alias.symlink_to(world / "ws")
    assert read(alias, f"{alias}/a.txt") == b"inside"
    assert read(alias, f"{world}/ws/a.txt") == b"inside"


@pytest.mark.parametrize("opener", KINDS)
def test_rooted_fs_refuses_special_files_and_hard_links(world: Path, opener: Opener) -> None:
    root = world / "ws"
    os.mkfifo(root / "fifo")
    os.link(world / "outside" / "secret", root / "hard")
    for path in ("fifo", "hard"):
        with pytest.raises(ToolDeniedError):
            read(root, path, opener)
        with pytest.raises(ToolDeniedError):
            RootedFs(root, opener).write_atomic(path, b"pwned")
    assert (world / "outside" / "secret").read_bytes() == CANARY


@pytest.mark.parametrize("opener", KINDS)
def test_rooted_fs_write_creates_directories_and_keeps_mode(world: Path, opener: Opener) -> None:
    root, beneath = world / "ws", RootedFs(world / "ws", opener)
    assert beneath.write_atomic("new/er/file.sh", b"1").created
    (root / "new/er/file.sh").chmod(0o750)
    done = beneath.write_atomic("new/er/file.sh", b"22")
    assert not done.created and done.path == "new/er/file.sh"
    assert (root / "new/er/file.sh").read_bytes() == b"22"
    assert stat.S_IMODE((root / "new/er/file.sh").stat().st_mode) == 0o750
    assert [path.name for path in (root / "new/er").iterdir()] == ["file.sh"]


@pytest.mark.parametrize("umask", [0, 0o027, 0o077])
def test_rooted_fs_new_file_is_for_its_owner_alone(world: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        RootedFs(world / "ws").write_atomic("new/fresh", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((world / "ws" / "new" / "fresh").stat().st_mode) == 0o600
    assert stat.S_IMODE((world / "ws" / "new").stat().st_mode) == 0o700


def test_rooted_fs_read_only_file_is_not_replaced(world: Path) -> None:
    (world / "ws" / "a.txt").chmod(0o444)
    with pytest.raises(ToolError, match="read-only"):
        RootedFs(world / "ws").write_atomic("a.txt", b"x")


@by_descriptor
def test_rooted_fs_write_through_inner_link_changes_target(world: Path) -> None:
    done = RootedFs(world / "ws").write_atomic("link_file", b"new")
    assert done.path == "a.txt"
    assert (world / "ws" / "link_file").is_symlink()
    assert (world / "ws" / "a.txt").read_bytes() == b"new"


@pytest.mark.parametrize("opener", KINDS)
def test_rooted_fs_dangling_outer_link_is_not_written_through(world: Path, opener: Opener) -> None:
    (world / "ws" / "dangling").symlink_to(world / "outside" / "new")
    (world / "ws" / "hanging").symlink_to("../outside/new")
    for path in ("dangling", "hanging"):
        with pytest.raises(ToolError):
            RootedFs(world / "ws", opener).write_atomic(path, b"pwned")
    assert not (world / "outside" / "new").exists()


def test_rooted_fs_file_changed_since_read_is_not_overwritten(world: Path) -> None:
    beneath = RootedFs(world / "ws")
    with beneath.open_read("a.txt") as opened:
        seen = opened.stat
    beneath.write_atomic("a.txt", b"theirs")
    with pytest.raises(ToolError, match="changed by somebody else"):
        beneath.write_atomic("a.txt", b"mine", seen=seen)
    assert (world / "ws" / "a.txt").read_bytes() == b"theirs"
    assert not list((world / "ws").glob(".*.tmp"))


def test_rooted_fs_new_file_does_not_replace_concurrent_one(world: Path) -> None:
    beneath = RootedFs(world / "ws")
    beneath.write_atomic("new.txt", b"theirs", new=True)
    with pytest.raises(FileChangedError):
        beneath.write_atomic("new.txt", b"mine", new=True)
    assert (world / "ws" / "new.txt").read_bytes() == b"theirs"
    assert not list((world / "ws").glob(".*.tmp"))


def test_rooted_fs_full_disk_raises_and_leaves_nothing(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="the disk is full"):
        RootedFs(world / "ws").write_atomic("a.txt", b"x" * 10)
    assert (world / "ws" / "a.txt").read_bytes() == b"inside"
    assert not list((world / "ws").glob(".*.tmp"))


@pytest.mark.parametrize("opener", KINDS)
@pytest.mark.parametrize("name", [".git", ".GIT", ".gi\u200ct", "sub/.git"])
def test_rooted_fs_write_in_git_directory_is_refused(
    world: Path, name: str, opener: Opener
) -> None:
    with pytest.raises(ToolDeniedError):
        RootedFs(world / "ws", opener).write_atomic(f"{name}/hooks/post-commit", b"#!/bin/sh")


@by_descriptor
def test_rooted_fs_link_does_not_hide_protected_directory(world: Path) -> None:
    root = world / "ws"
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".openclaw").mkdir()
    (root / ".openclaw" / "keys").write_text("k")
    (root / "plain").symlink_to(".git/hooks")
    (root / "state").symlink_to(".openclaw")
    with pytest.raises(ToolDeniedError):
        RootedFs(root).write_atomic("plain/post-commit", b"x")
    with pytest.raises(ToolDeniedError):
        read(root, "state/keys")


@pytest.mark.parametrize("opener", KINDS)
def test_rooted_fs_gateway_state_is_neither_read_nor_walked(world: Path, opener: Opener) -> None:
    root = world / "ws"
    (root / ".openclaw").mkdir()
    (root / ".openclaw" / "keys").write_text("k")
    with pytest.raises(ToolDeniedError):
        read(root, ".openclaw/keys", opener)
    assert not [found for found in RootedFs(root, opener).walk(".") if "keys" in found.path]


@pytest.mark.parametrize("opener", KINDS)
def test_rooted_fs_walk_is_ordered_and_follows_no_link(world: Path, opener: Opener) -> None:
    beneath = RootedFs(world / "ws", opener)
    met = [(found.path, found.kind) for found in beneath.walk(".", skip={"deep"})]
    assert met == [
        ("a.txt", "file"),
        ("link_dir", "link"),
        ("link_file", "link"),
        ("link_in", "link"),
        ("link_out", "link"),
        ("link_up", "link"),
        ("loop", "link"),
        ("sub", "folder"),
        ("sub/k.txt", "file"),
        ("sub/link_up", "link"),
    ]
    assert [found.path for found in beneath.walk("sub/k.txt")] == ["sub/k.txt"]
    assert len(list(beneath.walk(".", max_entries=3))) == 3


def test_rooted_fs_listing_counts_omitted_entries(world: Path) -> None:
    listing = RootedFs(world / "ws").listdir("sub", 2)
    assert [entry.name for entry in listing.entries] == ["deep", "k.txt"]
    assert listing.left_out == 1


def test_rooted_fs_missing_root_raises_with_fix(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="homarus setup"):
        read(tmp_path / "nowhere", "x")


@by_descriptor
def test_rooted_fs_leaves_no_descriptor_open(world: Path) -> None:
    beneath = RootedFs(world / "ws")
    for _ in range(3):  # the first round may open what the interpreter keeps
        before = open_fds()
        for path in ("link_in/k.txt", "sub/../../x", "missing/a", "sub/k.txt/x", "loop"):
            try:
                read(world / "ws", path)
            except ToolError:
                continue
        for found in beneath.walk("."):
            if found.path.startswith("sub/deep"):
                break
        beneath.write_atomic("sub/new/x", b"1")
        beneath.listdir("sub", 10)
    assert open_fds() == before


WORDS = [
    "..", ".", "", "a.txt", "sub", "deep", "k.txt", "link_out", "link_dir", "link_up", "link_in",
    "secret", "outside", "ws", "~", "~root", "$HOME", "%2e%2e", "..\\", "\\\\h\\s", "C:", "CON",
    "\0", "\n", "\u202e", "\u2025", "\uff0e\uff0e", "x" * 300, "file:", "@", "-rf", ".git", "new",
]  # fmt: skip


@st.composite
def hostile_paths(draw: st.DrawFn) -> str:
    """Paths built from the pieces that attacks are made of, and from anything at all."""
    words = st.sampled_from(WORDS) | st.text(max_size=8)
    start = draw(st.sampled_from(["", "", "/", "//", "{root}/", "{outside}/", "{world}/", "~/"]))
    return start + draw(st.sampled_from(["/", "//", "\\"])).join(draw(st.lists(words, max_size=9)))


@pytest.fixture(params=KINDS)
def opener(request: pytest.FixtureRequest) -> Opener:
    chosen: Opener = request.param
    return chosen


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=hostile_paths())
@example(path="sub/link_up/outside/secret")
@example(path="{outside}/secret")
def test_rooted_fs_no_path_reaches_file_outside(world: Path, opener: Opener, path: str) -> None:
    root, outside = world / "ws", world / "outside"
    for name, where in (("{root}", root), ("{outside}", outside), ("{world}", world)):
        path = path.replace(name, str(where))
    beneath = RootedFs(root, opener)
    for attempt in (
        lambda: read(root, path, opener),
        lambda: beneath.write_atomic(path, b"pwned"),
        lambda: beneath.listdir(path, 100),
        lambda: list(beneath.walk(path, max_entries=100)),
        lambda: beneath.stat(path),
    ):
        try:
            got = attempt()
        except ToolError:
            continue
        assert CANARY not in repr(got).encode()
        assert "only-outside" not in repr(got)
    assert tree(outside) == OUTSIDE
    assert sorted(each.name for each in world.iterdir()) == ["outside", "ws"]


@pytest.fixture
def swapped(world: Path) -> Iterator[Path]:
    """A folder that somebody keeps swapping for a link to the outside."""
    root = world / "ws"
    (root / "real").mkdir()
    (root / "real" / "secret").write_text("inside")
    (root / "trap").symlink_to(world / "outside")
    (root / "race").symlink_to("real")
    done = threading.Event()

    def move(old: str, new: str) -> None:
        while True:
            try:
                (root / old).rename(root / new)
            except OSError:  # a writer made the folder anew while it was away
                shutil.rmtree(root / "race", ignore_errors=True)
            else:
                return

    def swap() -> None:
        (root / "race").unlink()
        move("real", "race")
        while not done.is_set():
            move("race", "real")
            move("trap", "race")
            move("race", "trap")
            move("real", "race")

    thread = threading.Thread(target=swap)
    thread.start()
    yield root
    done.set()
    thread.join()


@by_descriptor
def test_rooted_fs_directory_swapped_for_link_leaks_no_read(swapped: Path) -> None:
    good = refused = 0
    for _ in range(5000):
        try:
            assert read(swapped, "race/secret") == b"inside"
            good += 1
        except ToolError:
            refused += 1
    assert good and refused, "both sides of the race must have been seen"


@by_descriptor
def test_rooted_fs_directory_swapped_for_link_takes_no_write(swapped: Path) -> None:
    beneath = RootedFs(swapped)
    outside = swapped.parent / "outside"
    good = refused = 0
    for _ in range(1000):
        try:
            beneath.write_atomic("race/new", b"x")
            good += 1
        except ToolError:
            refused += 1
    assert good and refused, "both sides of the race must have been seen"
    assert tree(outside) == OUTSIDE
