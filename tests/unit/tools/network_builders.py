"""Run commands in a bubblewrap sandbox with a network."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from homarus.core.private_files import make_private_dir
from homarus.net.guard import NetworkPolicy
from homarus.tools.exec.run import CommandResult, run_plan
from homarus.tools.exec.sandboxed_plan import make_sandboxed_plan
from homarus.tools.sandbox.base import SandboxCommand, SandboxLaunch, SandboxSpec
from homarus.tools.sandbox.bubblewrap import create


@functools.lru_cache(1)
def find_problem() -> str:
    """Return why no sandbox can be made on this machine, "" if one can."""
    if not (path := shutil.which("bwrap")):
        return "bubblewrap is not installed"
    argv = [path, "--unshare-all", "--disable-userns", "--ro-bind", "/", "/", "/bin/true"]
    argv.insert(1, "--unshare-user")
    result = subprocess.run(argv, capture_output=True, check=False, timeout=60)
    return result.stderr.decode() if result.returncode else ""


def require_bwrap() -> None:
    """Skip the test where no sandbox can be made."""
    if problem := find_problem():
        pytest.skip(problem)


def make_spec(folder: Path, *hosts: str, policy: NetworkPolicy | None = None) -> SandboxSpec:
    """Return a sandbox with its folders beneath a folder, and these hosts allowed."""
    for name in ("workspace", "tmp"):
        make_private_dir(folder / name)
    return SandboxSpec(
        "network-test",
        folder / "workspace",
        folder / "tmp",
        allowed_hosts=hosts,
        network_policy=policy,
    )


async def make_launch(folder: Path, spec: SandboxSpec, text: str) -> SandboxLaunch:
    """Return how a command starts in a sandbox."""
    sandbox = create(folder / "scratch")
    await sandbox.prepare(spec)
    return sandbox.spawn(spec, SandboxCommand(text))


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


async def run_text(
    folder: Path, text: str, *hosts: str, policy: NetworkPolicy | None = None
) -> CommandResult:
    """Run a command in a sandbox whose proxy allows these hosts."""
    spec = make_spec(folder, *hosts, policy=policy)
    return await run_launch(folder, await make_launch(folder, spec, text))
