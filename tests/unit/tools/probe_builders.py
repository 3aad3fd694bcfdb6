"""Sandbox backends for tests that leave out a part of the isolation on purpose."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from homarus.tools.sandbox.base import (
    Mount,
    SandboxCommand,
    SandboxLaunch,
    SandboxReport,
    SandboxSpec,
)

_ENV = {"PATH": "/usr/bin:/bin"}
_BWRAP = (
    *("--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--disable-userns"),
    *("--cap-drop", "ALL", "--die-with-parent", "--new-session"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
    *("--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--remount-ro", "/proc"),
    *("--dev", "/dev"),
)


@cache
def bwrap_problem() -> str:
    """Return why bubblewrap cannot be used on this machine, "" when it can."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    words = ["bwrap", *_BWRAP, "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return "" if done.returncode == 0 else f"bwrap does not work here: {done.stderr.strip()}"


def require_bwrap() -> None:
    """Skip the test where bubblewrap cannot be used."""
    if problem := bwrap_problem():
        pytest.skip(problem)


class WeakSandbox:
    """A backend without limits and filters, with bwrap or, without it, on this machine.

    `without` are arguments of bwrap to leave out, `extra` are further ones.
    """

    def __init__(
        self,
        *,
        uses_bwrap: bool = True,
        without: Sequence[str] = (),
        extra: Sequence[str] = (),
        fds: tuple[int, ...] = (),
    ) -> None:
        self._uses_bwrap, self._fds, self._extra = uses_bwrap, fds, tuple(extra)
        self._words = tuple(each for each in _BWRAP if each not in without)
        self.destroyed: list[str] = []

    @property
    def name(self) -> str:
        return "weak"

    async def prepare(self, spec: SandboxSpec) -> None:
        assert spec.workspace.is_dir()
        assert spec.tmp.is_dir()

    def mounts(self, spec: SandboxSpec) -> tuple[Mount, ...]:
        own = (Mount(spec.workspace, "/workspace", is_writable=True),)
        return (*own, Mount(Path("/usr"), "/usr"))

    async def measure(self, options: Mapping[str, object] | None = None) -> SandboxReport:
        raise AssertionError

    async def destroy(self, name: str) -> None:
        self.destroyed.append(name)

    def spawn(self, spec: SandboxSpec, command: SandboxCommand) -> SandboxLaunch:
        workspace = str(spec.workspace)
        if not self._uses_bwrap:
            argv: tuple[str, ...] = (
                "/bin/sh",
                "-c",
                f'cd "$1" && {{\n{command.text}\n}}',
                "sh",
                workspace,
            )
            return SandboxLaunch(argv, _ENV, fds=self._fds)
        folders = ("--bind", workspace, "/workspace", "--bind", str(spec.tmp), "/tmp")
        words = (shutil.which("bwrap") or "", *self._words, *folders, *self._extra)
        argv = (*words, "--chdir", "/workspace", "/bin/sh", "-c", command.text)
        return SandboxLaunch(argv, _ENV, fds=self._fds)


async def run_directly(launch: SandboxLaunch, folder: Path, timeout_s: float) -> str:
    """Run a launch without a supervisor, for a user who cannot execute the interpreter."""
    process = await asyncio.create_subprocess_exec(
        *launch.argv,
        env=dict(launch.env),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        pass_fds=launch.fds,
    )
    async with asyncio.timeout(timeout_s):
        output, _ = await process.communicate()
    return output.decode(errors="replace")


def is_root() -> bool:
    return os.geteuid() == 0
