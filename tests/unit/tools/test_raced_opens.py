"""10,000 opens while another process swaps files, folders and links: none leaves its root."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from homarus.core.errors import ToolError
from homarus.policy.workspace_access import FileScope, WorkspaceAccess
from homarus.tools.file_scope import folder_to_read
from homarus.tools.folder import BY_DESCRIPTOR
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.tool import ToolContext
from tests.attacks.races import swapped_files

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not BY_DESCRIPTOR, reason="needs descriptors")]
CANARY = b"TOPSECRET"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A workspace under attack."""
    root, outside = tmp_path / "ws", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
    (outside / "secret").write_bytes(CANARY)
    with swapped_files(root, outside):
        yield root


def test_raced_opens_never_leave_their_root(root: Path) -> None:
    beneath, outside = RootedFs(root), root.parent / "outside"
    media = frozenset({f"{root}/plain"})
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
        (2000, read("plain")),
        (2000, read("twin")),
        (2000, read("swapped/secret")),
        (1200, lambda: beneath.listdir("swapped", 100)),
        (800, lambda: [entry.path for entry in beneath.walk(".")]),
        (700, read_scoped(f"{root}/plain")),  # as a file that was sent
        (700, read_scoped(f"{root}/swapped/secret")),  # on the whole machine
        (300, lambda: beneath.write_atomic("swapped/new", b"x")),
        (300, lambda: beneath.write_atomic("plain", b"inside")),
    ]
    assert sum(count for count, _ in attempts) == 10_000
    for count, attempt in attempts:
        good, tries, latest_s = 0, 0, time.monotonic() + 60
        # Where the machine is loaded, all tries may fall between two exchanges.
        while tries < count or (not good and time.monotonic() < latest_s):
            tries += 1
            try:
                found = attempt()
            except ToolError:
                continue
            good += 1
            assert CANARY.decode() not in repr(found)
        assert good, "some attempts must succeed"
    assert [each.name for each in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == CANARY
