"""A bubblewrap sandbox with a network, as small as it can be, and the servers it connects to."""

import functools
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from homarus.net.guard import NetworkPolicy
from homarus.tools.exec.run import CommandResult, run_plan
from homarus.tools.exec.sandboxed_plan import make_sandboxed_plan
from homarus.tools.sandbox.base import SandboxLaunch
from homarus.tools.sandbox.network import interpreter_mounts, open_proxy_pair, wrap_command

BWRAP: Final = "/usr/bin/bwrap"
_RULES: Final = (
    "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--disable-userns",
    "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "sandbox",
    "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--ro-bind", "/usr", "/usr",
    "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp",
)  # fmt: skip


@functools.lru_cache(1)
def find_problem() -> str:
    """Return why no sandbox can be made on this machine, "" if one can."""
    if not Path(BWRAP).exists():
        return "bubblewrap is not installed"
    argv = [BWRAP, *_RULES, *_system_links(), "/bin/true"]
    result = subprocess.run(argv, capture_output=True, check=False, timeout=60)
    return result.stderr.decode() if result.returncode else ""


def require_bwrap() -> None:
    """Skip the test where no sandbox can be made."""
    if problem := find_problem():
        pytest.skip(problem)


def _system_links() -> list[str]:
    words: list[str] = []
    for name in ("bin", "sbin", "lib", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    return words


def make_launch(
    text: str, *hosts: str, policy: NetworkPolicy | None = None, has_stage: bool = True
) -> SandboxLaunch:
    """Return how a command starts in a sandbox whose proxy allows these hosts."""
    ours, theirs = open_proxy_pair()
    command = ("/bin/sh", "-c", text)
    argv = [BWRAP, *_RULES, *_system_links()]
    for mount in interpreter_mounts():
        argv += ["--ro-bind", str(mount.source), mount.target]
    argv += wrap_command(command, theirs) if has_stage else command

    def close() -> None:
        os.close(ours)
        os.close(theirs)

    return SandboxLaunch(
        argv=tuple(argv),
        env={},
        fds=(theirs,),
        proxy=ours,
        allowed_hosts=hosts,
        network_policy=policy,
        close=close,
    )


async def run_launch(folder: Path, launch: SandboxLaunch) -> CommandResult:
    """Run a launch to its end, by its supervisor."""
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        plan = make_sandboxed_plan(
            "a command",
            launch,
            folder=str(folder),
            folder_fd=folder_fd,
            workspace=folder,
            env={},
            requested_env={},
            timeout_s=60.0,
        )
    finally:
        os.close(folder_fd)
    try:
        return await run_plan(plan)
    finally:
        plan.close()
