"""Build sandboxes and run commands in them; skip where the machine has no bubblewrap."""

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from homarus.tools.exec.plan import ExecPlan
from homarus.tools.exec.run import CommandResult, run_plan
from homarus.tools.exec.sandboxed_plan import make_sandboxed_plan
from homarus.tools.sandbox.base import SandboxCommand, SandboxSpec
from homarus.tools.sandbox.bubblewrap import BubblewrapSandbox

ORDINARY_ID = 65534
PR_SET_DUMPABLE = 4


@cache
def find_missing() -> str:
    """Return why sandboxes by bubblewrap cannot be tested here, "" when they can."""
    if sys.platform != "linux":
        return "bubblewrap needs Linux"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    words = ["bwrap", "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(words, capture_output=True, check=False, timeout=30)
    return "user namespaces are off" if done.returncode else ""


needs_bwrap = pytest.mark.skipif(bool(find_missing()), reason=find_missing() or "usable")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups and other users need root")


def make_spec(base: Path, name: str = "test", **values: Any) -> SandboxSpec:
    """Return a sandbox whose folders are in `base`."""
    workspace, tmp = base / name / "workspace", base / name / "tmp"
    for folder in (workspace, tmp):
        folder.mkdir(parents=True, exist_ok=True)
    return SandboxSpec(name, workspace, tmp, **values)


@contextmanager
def open_sandbox_plan(
    sandbox: BubblewrapSandbox, spec: SandboxSpec, text: str, **options: Any
) -> Iterator[ExecPlan]:
    """Yield the plan of a command in a sandbox."""
    env, lock_fd = options.pop("env", None), options.pop("lock_fd", -1)
    command = SandboxCommand(text, spec.workdir, env, pty=options.get("pty", False))
    launch = sandbox.spawn(spec, command)
    if lock_fd >= 0:
        launch = replace(launch, lock_fd=lock_fd)
    folder_fd = os.open(spec.workspace, os.O_RDONLY)
    plan = make_sandboxed_plan(
        text,
        launch,
        folder=str(spec.workspace),
        folder_fd=folder_fd,
        workspace=spec.workspace,
        env=env or {},
        requested_env={},
        timeout_s=options.pop("timeout_s", 60.0),
        **options,
    )
    os.close(folder_fd)
    try:
        yield plan
    finally:
        plan.close()


async def run_sandboxed(
    sandbox: BubblewrapSandbox, spec: SandboxSpec, text: str, **options: Any
) -> CommandResult:
    """Run a command in a sandbox by its supervisor."""
    await sandbox.prepare(spec)
    with open_sandbox_plan(sandbox, spec, text, **options) as plan:
        return await run_plan(plan)


def run_directly(sandbox: BubblewrapSandbox, spec: SandboxSpec, text: str) -> str:
    """Run a command without a supervisor, and return its output; for a process of another user."""
    launch = sandbox.spawn(spec, SandboxCommand(text, spec.workdir))

    def limit() -> None:
        for name, value in launch.rlimits:
            resource.setrlimit(getattr(resource, name), (value, value))

    try:
        done = subprocess.run(
            launch.argv,
            env=dict(launch.env),
            pass_fds=launch.fds,
            preexec_fn=limit,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=50,
        )
    finally:
        launch.close()
    return done.stdout.decode()


def call_as_ordinary_user(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a child that has no privileges; it must be JSON."""
    if os.geteuid() != 0:
        return function()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(ORDINARY_ID, ORDINARY_ID, ORDINARY_ID)
            os.setresuid(ORDINARY_ID, ORDINARY_ID, ORDINARY_ID)
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self is root's
            os.chdir("/")
            answer = [True, function()]
        except BaseException as exc:  # noqa: BLE001 - reported to the parent
            answer = [False, repr(exc)]
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    is_done, value = json.loads(data)
    assert is_done, value
    return value
