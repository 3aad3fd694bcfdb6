"""The sandboxes of the contract suite: every backend, with folders of its own for each test."""

import asyncio
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from homarus.tools.exec.plan import ExecPlan
from homarus.tools.exec.run import CommandResult, RunningCommand, run_plan
from homarus.tools.exec.sandboxed_plan import make_sandboxed_plan
from homarus.tools.sandbox.base import SANDBOXES, Sandbox, SandboxCommand, SandboxSpec
from tests.peers.install import debian

IMAGE = "localhost/homarus-sandbox-test:1"
GUARD_S = 60.0
OUTER = {"PATH": "/usr/bin:/bin"}
OPTIONS: Mapping[str, Mapping[str, object]] = {"oci": {"image": IMAGE}}


@dataclass
class SandboxStage:
    """A backend on this machine, and the folders of one test."""

    backend: Sandbox
    folder: Path
    options: Mapping[str, object] = field(default_factory=dict)

    def spec(self, name: str = "one", **changes: Any) -> SandboxSpec:
        """Return a sandbox whose folders exist."""
        home = self.folder / name
        for each in ("workspace", "tmp"):
            (home / each).mkdir(parents=True, exist_ok=True)
        given = replace(SandboxSpec(name, home / "workspace", home / "tmp"), **changes)
        return replace(given, options={**self.options, **(given.options or {})})

    async def run(
        self,
        text: str,
        spec: SandboxSpec | None = None,
        *,
        stdin: str = "",
        timeout_s: float = GUARD_S,
        **command: Any,
    ) -> CommandResult:
        """Run a command to its end, as the tool does it."""
        async with self.plan(text, spec, stdin=stdin, timeout_s=timeout_s, **command) as plan:
            return await run_plan(plan)

    @asynccontextmanager
    async def start(self, text: str, spec: SandboxSpec) -> AsyncIterator[RunningCommand]:
        """Yield a command that runs, and end it."""
        async with self.plan(text, spec) as plan, asyncio.TaskGroup() as group:
            command = RunningCommand(plan, group)
            try:
                yield command
            finally:
                await command.end()

    @asynccontextmanager
    async def plan(
        self,
        text: str,
        spec: SandboxSpec | None = None,
        *,
        stdin: str = "",
        timeout_s: float = GUARD_S,
        **command: Any,
    ) -> AsyncIterator[ExecPlan]:
        spec = spec or self.spec()
        await self.backend.prepare(spec)
        given = SandboxCommand(text, **{"workdir": spec.workdir, **command})
        launch = self.backend.spawn(spec, given)
        folder_fd = os.open("/", os.O_RDONLY)
        try:
            plan = make_sandboxed_plan(
                text,
                launch,
                folder="/",
                folder_fd=folder_fd,
                workspace=spec.workspace,
                env=OUTER,
                requested_env=given.env or {},
                timeout_s=timeout_s,
                stdin=stdin,
                pty=given.pty,
            )
        finally:
            os.close(folder_fd)
        try:
            yield plan
        finally:
            plan.close()


def sandbox_params() -> Iterator[Any]:
    """Yield every backend; containers need an engine, which the peers' tier installs."""
    for name in SANDBOXES.names():
        yield pytest.param(name, marks=pytest.mark.peers if name == "oci" else ())


def open_stage(name: str, folder: Path, common: Path) -> SandboxStage:
    """Return a backend that works on this machine; skip the test, with the reason, if none does.

    The backend is common to all tests of this process: it looks for its engine once.
    """
    if problem := _PROBLEMS.get(name, lambda: "")():
        pytest.skip(problem)
    return SandboxStage(open_backend(name, common), folder, OPTIONS.get(name, {}))


@cache
def open_backend(name: str, common: Path) -> Sandbox:
    """Return a backend with its scratch folder in `common`, the same one for each call."""
    scratch = common / f"sandbox-{name}"
    scratch.mkdir()
    return SANDBOXES.load(name).create(scratch)


@cache
def bubblewrap_problem() -> str:
    """Return why bubblewrap makes no sandbox on this machine, "" if it does."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bwrap is not installed (apt-get install bubblewrap)"
    words = ("--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "true")
    done = subprocess.run([bwrap, *words], capture_output=True, text=True, check=False)
    return f"bwrap makes no sandbox here: {done.stderr.strip()}" if done.returncode else ""


@cache
def container_problem() -> str:
    """Install podman and make the image; return why no container starts, "" if one does."""
    debian(podman="podman", runc="runc", busybox="busybox-static")
    podman = _podman()
    if _call(*podman, "image", "inspect", IMAGE).returncode:
        done = _call(*podman, "import", "-", IMAGE, data=_image())
        if done.returncode:
            return f"podman stores no image here: {_last(done.stderr)}"
    limits = ("--ulimit", "nproc=256:256", "--ulimit", "nofile=256:256")
    done = _call(*podman, "run", "--rm", "--network", "none", *limits, IMAGE, "true")
    return f"podman starts no container here: {_last(done.stderr)}" if done.returncode else ""


_PROBLEMS: Mapping[str, Callable[[], str]] = {
    "bubblewrap": bubblewrap_problem,
    "oci": container_problem,
}


def containers(*filters: str, field: str = "Names") -> list[str]:
    """Return the names, or another field, of the containers that exist, by filters of podman."""
    chosen = [word for each in filters for word in ("--filter", each)]
    done = _call(*_podman(), "ps", "--all", "--format", f"{{{{.{field}}}}}", *chosen)
    return done.stdout.decode().split()


def _podman() -> tuple[str, ...]:
    # crun cannot work where both versions of cgroups are mounted.
    return ("podman", "--runtime", str(shutil.which("runc")))


def _call(*words: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(words, input=data, capture_output=True, check=False, timeout=GUARD_S)


def _last(text: bytes) -> str:
    return (text.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]


def _image() -> bytes:
    """Return the root of an image: busybox, under the names of all its programs."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    names = _call(busybox, "--list").stdout.decode().split()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in names:
            if re.fullmatch(r"[\w.\[\]-]+", name) and name != "busybox":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
    return made.getvalue()
