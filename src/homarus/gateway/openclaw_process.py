"""Find a gateway of OpenClaw that serves the same state directory.

Two gateways would answer every message twice and overwrite each other's sessions. OpenClaw's keeps
a lock file in the temporary folder, with its process id and the path of its config; newer versions
keep theirs elsewhere, so on Linux its processes are also found by their title and environment.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from homarus.config.paths import Paths
from homarus.core.errors import StateInUseError, UserError

_TITLE: Final = b"openclaw-gateway"
_MAX_BYTES: Final = 65_536


def check_no_openclaw_gateway(paths: Paths, env: Mapping[str, str]) -> None:
    """Raise StateInUseError when a gateway of OpenClaw uses the state directory."""
    if pid := find_openclaw_gateway(paths, env):
        raise StateInUseError(
            f"a gateway of OpenClaw (process {pid}) uses the state directory {paths.state}",
            fix="stop it first: `openclaw gateway stop`, or end that process",
        )


def find_openclaw_gateway(paths: Paths, env: Mapping[str, str]) -> int:
    """Return the id of its process; 0 when there is none."""
    return next(_by_lock(paths, env), 0) or next(_by_title(paths), 0)


def _by_lock(paths: Paths, env: Mapping[str, str]) -> Iterator[int]:
    folders = dict.fromkeys([env.get("TMPDIR") or "/tmp", "/tmp", tempfile.gettempdir()])  # noqa: S108 - read only
    for folder in folders:
        for file in Path(folder, f"openclaw-{os.getuid()}").glob("gateway.*.lock"):
            with suppress(OSError, ValueError, TypeError, KeyError):
                if file.stat().st_uid != os.getuid():
                    continue
                with file.open("rb") as lock:
                    holder = json.loads(lock.read(_MAX_BYTES))
                is_same = Path(holder["configPath"]).resolve() == paths.config.resolve()
                if is_same and _is_running(int(holder["pid"]), holder.get("startTime")):
                    yield int(holder["pid"])


def _is_running(pid: int, started: object) -> bool:
    """Return whether the process that took a lock runs; another may have its id by now."""
    try:
        os.kill(pid, 0)
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return True  # a system without /proc
    except OSError:
        return False
    return not isinstance(started, int) or fields.rpartition(")")[2].split()[19] == str(started)


def _by_title(paths: Paths) -> Iterator[int]:
    if sys.platform != "linux":
        return
    for process in Path("/proc").iterdir():
        with suppress(OSError, UserError):
            if not process.name.isdigit() or process.stat().st_uid != os.getuid():
                continue
            if _read(process / "cmdline").rstrip(b"\0 ") == _TITLE:
                pairs = (pair.partition(b"=") for pair in _read(process / "environ").split(b"\0"))
                env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
                if env.get("HOME") and Paths.find(env).state.resolve() == paths.state.resolve():
                    yield int(process.name)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES)
