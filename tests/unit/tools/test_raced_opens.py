"""10,000 opens while another process swaps files, folders and links: none leaves its root."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from homarus.core.errors import ToolError
from homarus.policy.workspace_access import FileScope, WorkspaceAccess
from homarus.tools.file_scope import folder_to_read
from homarus.tools.folder import BY_DESCRIPTOR
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.tool import ToolContext

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not BY_DESCRIPTOR, reason="needs descriptors")]
CANARY = b"TOPSECRET"
# Swaps each name for a link to the outside and back, until its input ends.
ATTACKER = """
import os, select, sys
root, outside = sys.argv[1:]
def quiet(call, *args):
    try:
        call(*args)
    except OSError:
        pass
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    # A folder, for a link to the folder outside.
    quiet(os.rename, f"{root}/dir", f"{root}/away")
    quiet(os.symlink, outside, f"{root}/dir")
    quiet(os.unlink, f"{root}/dir")
    quiet(os.rename, f"{root}/away", f"{root}/dir")
    # A file, for a link to the file outside.
    quiet(os.symlink, f"{outside}/secret", f"{root}/link")
    quiet(os.rename, f"{root}/link", f"{root}/file")
    with open(f"{root}/fresh", "w") as file:
        file.write("inside")
    quiet(os.rename, f"{root}/fresh", f"{root}/file")
    # A second name of the file outside, for a moment.
    quiet(os.link, f"{outside}/secret", f"{root}/second")
    quiet(os.rename, f"{root}/second", f"{root}/hard")
    quiet(os.unlink, f"{root}/hard")
    with open(f"{root}/fresh", "w") as file:
        file.write("inside")
    quiet(os.rename, f"{root}/fresh", f"{root}/hard")
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A workspace under attack."""
    root, outside = tmp_path / "ws", tmp_path / "outside"
    for folder in (root / "dir", outside):
        folder.mkdir(parents=True)
    (outside / "secret").write_bytes(CANARY)
    for name in ("file", "hard", "dir/secret"):
        (root / name).write_bytes(b"inside")
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", ATTACKER, str(root), str(outside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as attacker:
        assert attacker.stdout and attacker.stdin
        attacker.stdout.readline()
        try:
            yield root
        finally:
            attacker.stdin.close()
            attacker.wait(30)


def test_raced_opens_never_leave_their_root(root: Path) -> None:
    beneath, outside = RootedFs(root), root.parent / "outside"
    media = frozenset({f"{root}/file"})
    ctx = ToolContext(
        "agent:main:main",
        "main",
        root.parent / "elsewhere",
        run_access=WorkspaceAccess(get_media=lambda: media, is_owner=True),
        scope=FileScope(protected=(outside,)),
    )

    def read(name: str) -> Callable[[], object]:
        def attempt() -> object:
            with beneath.open_read(name) as opened:
                return opened.file.read()

        return attempt

    def read_scoped(path: str) -> Callable[[], object]:
        def attempt() -> object:
            with folder_to_read(ctx, path)[0].open_read(path) as opened:
                return opened.file.read()

        return attempt

    attempts: list[tuple[int, Callable[[], object]]] = [
        (2000, read("file")),
        (2000, read("hard")),
        (2000, read("dir/secret")),
        (1200, lambda: beneath.listdir("dir", 100)),
        (800, lambda: [entry.path for entry in beneath.walk(".")]),
        (700, read_scoped(f"{root}/file")),  # as a file that was sent
        (700, read_scoped(f"{root}/dir/secret")),  # on the whole machine
        (300, lambda: beneath.write_atomic("dir/new", b"x")),
        (300, lambda: beneath.write_atomic("file", b"inside")),
    ]
    assert sum(count for count, _ in attempts) == 10_000
    for count, attempt in attempts:
        good = 0
        for _ in range(count):
            try:
                found = attempt()
            except ToolError:
                continue
            good += 1
            assert CANARY.decode() not in repr(found)
        assert good, "some attempts must succeed"
    assert [each.name for each in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == CANARY
