"""A process that swaps files, folders and links of a workspace while they are opened."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    quiet(os.rename, f"{root}/swapped", f"{root}/away")
    quiet(os.symlink, outside, f"{root}/swapped")
    quiet(os.unlink, f"{root}/swapped")
    quiet(os.rename, f"{root}/away", f"{root}/swapped")
    # A file, for a link to the file outside.
    quiet(os.symlink, f"{outside}/secret", f"{root}/link")
    quiet(os.rename, f"{root}/link", f"{root}/plain")
    with open(f"{root}/fresh", "w") as file:
        file.write("inside")
    quiet(os.rename, f"{root}/fresh", f"{root}/plain")
    # A second name of the file outside, for a moment.
    quiet(os.link, f"{outside}/secret", f"{root}/second")
    quiet(os.rename, f"{root}/second", f"{root}/twin")
    quiet(os.unlink, f"{root}/twin")
    with open(f"{root}/fresh", "w") as file:
        file.write("inside")
    quiet(os.rename, f"{root}/fresh", f"{root}/twin")
"""


@contextmanager
def swapped_files(root: Path, outside: Path) -> Iterator[None]:
    """Swap `swapped`, `plain` and `twin` of a root for links to `outside/secret`, meanwhile."""
    (root / "swapped").mkdir()
    for name in ("plain", "twin", "swapped/secret"):
        (root / name).write_bytes(b"inside")
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", ATTACKER, str(root), str(outside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as attacker:
        assert attacker.stdout and attacker.stdin
        attacker.stdout.readline()
        try:
            yield
        finally:
            attacker.stdin.close()
            attacker.wait(30)
