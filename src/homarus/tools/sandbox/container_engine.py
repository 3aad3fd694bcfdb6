"""Find a container engine of this machine, `docker` or `podman`, and run its command line.

Variables such as DOCKER_HOST never reach it: they could aim it at another machine, whose folders
are not ours. The engine is the one of this machine, by its own socket or without any.
"""

import asyncio
import logging
import os
import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from homarus.core.errors import SandboxError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.tools.sandbox.container_rules import ContainerUser

log = logging.getLogger(__name__)

_ENGINE_S: Final = 60.0
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/homebrew/bin"
_INHERITED: Final = ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "USER", "LANG")
_SESSION_BUS: Final = "DBUS_SESSION_BUS_ADDRESS"  # rootless podman asks systemd for cgroups
_IGNORED: Final = (
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "CONTAINER_CONNECTION",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
)
_UNIFIED: Final = Path("/sys/fs/cgroup/cgroup.controllers")
_PID_MAX: Final = Path("/proc/sys/kernel/pid_max")
INSTALL: Final = "install podman (apt-get install podman) or docker"
_INSIDE: Final = ContainerUser(1000, 1000)
_MAX_ID: Final = 65_536


@dataclass(frozen=True, slots=True)
class EngineOutput:
    """How a call of the engine ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def problem(self) -> str:
        """The last line of the engine's messages."""
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        return one_line(lines[-1], 400) if lines else f"exit status {self.status}"


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """An engine that works: `argv` starts its command line, with exactly `env`.

    `is_rootless` when its root is not the root of this machine. `has_limits` says whether it can
    limit the memory and the processes of a container: podman as an ordinary user needs cgroup v2.
    """

    kind: str  # "podman" or "docker"
    argv: tuple[str, ...]
    env: Mapping[str, str]
    is_rootless: bool
    has_limits: bool

    @property
    def is_podman(self) -> bool:
        return self.kind == "podman"

    async def run(self, *words: str) -> EngineOutput:
        """Run a command of the engine. Raises SandboxError when it does not end in time."""
        return await run_engine((*self.argv, *words), self.env)

    async def has_image(self, image: str) -> bool:
        """Return whether an image is on this machine."""
        return (await self.run("image", "inspect", "--format", "ok", image)).status == 0

    def user_words(self, user: ContainerUser | None, *, has_namespace: bool) -> tuple[str, ...]:
        """Return the options by which files in the workspace belong to the gateway's user.

        With a user namespace the gateway's user has a harmless number inside. Without one, which
        is always so with docker, the command has the gateway's own number, and no capabilities.
        """
        uid, gid = os.geteuid(), os.getegid()
        if not self.is_podman:
            own = ContainerUser(0, 0) if self.is_rootless else ContainerUser(uid, gid)
            if user is not None and user != own:
                raise SandboxError(
                    f"docker.user {user.uid}:{user.gid} would own the files of the workspace",
                    fix="remove docker.user, or install podman, which can map users",
                )
            return ("--user", f"{own.uid}:{own.gid}")
        if self.is_rootless and has_namespace:
            inside = user or _INSIDE
            return (
                f"--userns=keep-id:uid={inside.uid},gid={inside.gid}",
                *("--user", f"{inside.uid}:{inside.gid}"),
            )
        if self.is_rootless:
            return ("--userns=keep-id", "--user", f"{uid}:{gid}")
        if has_namespace:
            return _mapped_user(user or _INSIDE)
        return ("--user", f"{uid}:{gid}")


def _mapped_user(inside: ContainerUser) -> tuple[str, ...]:
    """Return a mapping in which the user inside is root outside, and root inside is not."""
    if max(inside.uid, inside.gid) > _MAX_ID - 2:
        raise SandboxError(
            f"docker.user {inside.uid}:{inside.gid} is outside the user ids of a container",
            fix=f"use numbers up to {_MAX_ID - 2}, or remove docker.user",
        )
    words: list[str] = []
    for option, number in (("--uidmap", inside.uid), ("--gidmap", inside.gid)):
        maps = [f"0:1:{number}"] if number else []
        maps += [f"{number}:0:1", f"{number + 1}:{number + 1}:{_MAX_ID - number - 1}"]
        for each in maps:
            words += (option, each)
    return (*words, "--user", f"{inside.uid}:{inside.gid}")


async def run_engine(argv: Sequence[str], env: Mapping[str, str]) -> EngineOutput:
    """Run a program to its end without input. Raises SandboxError when it cannot or hangs."""
    return await asyncio.to_thread(_run_engine, argv, env)


def _run_engine(argv: Sequence[str], env: Mapping[str, str]) -> EngineOutput:
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(env),
            cwd="/",
            start_new_session=True,
            check=False,
            timeout=_ENGINE_S,
        )
    except OSError as exc:
        raise SandboxError(f"{argv[0]} cannot be started: {exc.strerror}", fix=INSTALL) from exc
    except subprocess.TimeoutExpired as exc:
        raise SandboxError(
            f"{argv[0]} did not answer within {_ENGINE_S:.0f} seconds",
            fix="look at it with `podman info` or `docker info`",
        ) from exc
    out, err = (data.decode("utf-8", "replace") for data in (done.stdout, done.stderr))
    return EngineOutput(done.returncode, out, err)


async def find_engines(outer: Mapping[str, str]) -> tuple[ContainerEngine, ...]:
    """Return the engines that work, docker first if its daemon answers.

    Raises SandboxError with what is wrong with each when none does.
    """
    _warn_ignored(outer)
    env = {name: outer[name] for name in (*_INHERITED, _SESSION_BUS) if name in outer}
    env["PATH"] = _PATH
    found: list[ContainerEngine] = []
    problems: list[str] = []
    for find in (_find_docker, _find_podman):
        engine = await find(env)
        if isinstance(engine, ContainerEngine):
            found.append(engine)
        else:
            problems.append(engine)
    if not found:
        raise SandboxError(f"no container engine works: {'; '.join(problems)}", fix=INSTALL)
    return tuple(found)


async def _find_docker(env: Mapping[str, str]) -> ContainerEngine | str:
    program = shutil.which("docker", path=env["PATH"])
    if program is None:
        return "docker is not installed"
    if (socket := _docker_socket(env)) is None:
        return "docker's daemon does not run"
    argv = (program, "--host", f"unix://{socket}")
    done = await run_engine((*argv, "info", "--format", "{{json .SecurityOptions}}"), env)
    if done.status:
        return f"docker: {done.problem}"
    if "name=userns" in done.stdout:
        return "docker maps users (userns-remap), so that it cannot write to the workspace"
    is_rootless = "name=rootless" in done.stdout
    return ContainerEngine("docker", argv, env, is_rootless, has_limits=True)


def _docker_socket(env: Mapping[str, str]) -> str | None:
    runtime, home = env.get("XDG_RUNTIME_DIR", ""), env.get("HOME", "")
    sockets = ["/var/run/docker.sock"]
    sockets += [f"{runtime}/docker.sock"] if runtime.startswith("/") else []
    sockets += [f"{home}/.docker/run/docker.sock"] if home.startswith("/") else []
    return next((each for each in sockets if _is_socket(each)), None)


def _is_socket(path: str) -> bool:
    """Return whether there is a socket; a folder of another user may not be readable."""
    try:
        return Path(path).is_socket()
    except OSError:
        return False


async def _find_podman(env: Mapping[str, str]) -> ContainerEngine | str:
    program = shutil.which("podman", path=env["PATH"])
    if program is None:
        return "podman is not installed"
    argv: tuple[str, ...] = (program, "--remote=false")
    is_unified = _UNIFIED.exists()
    if not is_unified and (runc := shutil.which("runc", path=env["PATH"])):
        argv += ("--runtime", runc)  # crun cannot work with both versions of cgroups mounted
    done = await run_engine((*argv, "info", "--format", "{{.Host.Security.Rootless}}"), env)
    if done.status:
        return f"podman: {done.problem}"
    is_rootless = os.geteuid() != 0
    has_limits = not is_rootless or is_unified
    return ContainerEngine("podman", argv, env, is_rootless, has_limits)


def max_processes() -> int:
    """Return the greatest limit of processes that podman can set.

    It lowers its own limit to that of process ids, and fails to give more without a privilege.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    try:
        ids = int(_PID_MAX.read_text(encoding="ascii"))
    except (OSError, ValueError):
        ids = 32_768
    return ids if hard == resource.RLIM_INFINITY else min(hard, ids)


def _warn_ignored(outer: Mapping[str, str]) -> None:
    if names := [name for name in _IGNORED if outer.get(name)]:
        log.warning(
            "%s is set, and ignored: sandboxes use the engine of this machine", ", ".join(names)
        )
