"""The network of a sandbox: a port inside it that leads to our proxy, and nothing else.

A sandbox has its own network namespace, in which only loopback exists. Where the config allows
hosts, the first program inside (`network_stage.py`) listens on a port there and sends the listening
socket out over a socket pair; the gateway serves the proxy (`net/allow_proxy.py`) on it for as long
as the command runs. Names are resolved by the proxy: there is no DNS inside.

For a backend:

    ours, theirs = open_proxy_pair()
    argv = wrap_command(("/bin/sh", "-c", text), theirs)  # runs inside, with `interpreter_mounts()`
    SandboxLaunch(argv, …, fds=(theirs,), proxy=ours, allowed_hosts=spec.allowed_hosts)
"""

import asyncio
import fcntl
import logging
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from homarus.core.errors import SandboxError
from homarus.core.tasks import run_contained
from homarus.net.allow_proxy import AllowProxy, ProxyAccess
from homarus.net.guard import PUBLIC_ONLY
from homarus.net.host_allowlist import HostAllowlist
from homarus.tools.sandbox.base import Mount, SandboxLaunch

log = logging.getLogger(__name__)

STAGE_TARGET: Final = "/.homarus/network_stage.py"
_STAGE: Final = Path(__file__).with_name("network_stage.py")
# Mounted in every sandbox, so what is there needs no mount of its own.
_SYSTEM_FOLDERS: Final = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
_MAX_DESCRIPTORS: Final = 4
_LIST_FILES: Final = (
    "import sys, os, _socket, _signal\n"
    "print(*[os.path.dirname(os.__file__), *sys.path], sep='\\n')\n"
    "print(*(line.split(None, 5)[5].strip() for line in open('/proc/self/maps')"
    " if len(line.split(None, 5)) > 5), sep='\\n')"
)
_PROBE_S: Final = 30.0
_GET_NETWORK_NAMESPACE: Final = 0x894C  # SIOCGSKNS


def open_proxy_pair() -> tuple[int, int]:
    """Return our end and the sandbox's end of a socket pair; the caller closes both."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def wrap_command(argv: Sequence[str], fd: int) -> tuple[str, ...]:
    """Return how a command is started inside, by absolute path, after the port was opened.

    `fd` is the sandbox's end of the pair.
    """
    return (_executable(), "-I", "-S", STAGE_TARGET, str(fd), *argv)


def interpreter_mounts() -> tuple[Mount, ...]:
    """Return what the first program inside needs: itself, and the interpreter without packages.

    These are single files and the folder of the standard library, never the prefix of the
    installation, which may be a home folder. Raises SandboxError when the interpreter does not run
    with an empty environment.
    """
    found: list[Mount] = []
    for path in sorted(path for path in _interpreter_files() if not _is_system(path)):
        if not any(path.startswith(f"{each.target}/") for each in found):
            found.append(Mount(Path(os.path.realpath(path)), path))
    return (*found, Mount(_STAGE, STAGE_TARGET))


@lru_cache(1)
def _executable() -> str:
    """Return the interpreter itself, not the link to it in a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


@lru_cache(1)
def _interpreter_files() -> frozenset[str]:
    """Return the files that the interpreter opens, asked of the interpreter itself."""
    argv = [_executable(), "-I", "-S", "-c", _LIST_FILES]
    try:
        result = subprocess.run(  # noqa: S603 - our own interpreter
            argv, env={}, capture_output=True, timeout=_PROBE_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise SandboxError(
            f"{argv[0]} does not run with an empty environment, so sandboxes have no network",
            fix="install Homarus with a Python that does, or empty sandbox.network.allow",
        ) from exc
    listed = result.stdout.decode("utf-8", "surrogateescape").splitlines()
    paths = {path for path in listed if path.startswith("/") and Path(path).exists()}
    return frozenset({_executable(), *paths, *_shared_library()})


def _shared_library() -> Iterator[str]:
    """Yield where the executable looks for its library, if that differs from where it is."""
    folder, name = map(sysconfig.get_config_var, ("LIBDIR", "INSTSONAME"))
    if folder and name and ".so" in name and Path(folder, name).exists():
        yield str(Path(folder, name))


def _is_system(path: str) -> bool:
    return any(path.startswith(f"{folder}/") for folder in _SYSTEM_FOLDERS)


class SandboxNetwork:
    """The proxy of one command, for a launch with a socket pair.

    `accesses` are the hosts that the command tried, each once.
    """

    def __init__(self, launch: SandboxLaunch) -> None:
        self._control = socket.socket(fileno=os.dup(launch.proxy))
        self._control.setblocking(False)  # noqa: FBT003 - the library's parameter
        self._proxy = AllowProxy(
            HostAllowlist(launch.allowed_hosts),
            launch.network_policy or PUBLIC_ONLY,
            on_access=_log_access,
        )

    @property
    def accesses(self) -> tuple[ProxyAccess, ...]:
        return self._proxy.accesses

    async def serve(self) -> None:
        """Serve the proxy on the port that the sandbox opens, until cancelled.

        Returns at once if the sandbox ends without one, or sends something else. A failure is
        logged and closes the port: the command goes on without network.
        """
        try:
            await run_contained("the proxy of a sandbox", self._serve, lambda _exc: None)
        finally:
            self._control.close()

    def close(self) -> None:
        """Close the socket pair of a network that is not served."""
        self._control.close()

    async def _serve(self) -> None:
        listener = await self._receive_listener()
        if listener is not None:
            await self._proxy.serve(listener)

    async def _receive_listener(self) -> socket.socket | None:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._control, _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(self._control)
        try:
            flags = socket.MSG_CMSG_CLOEXEC
            fds = socket.recv_fds(self._control, 1, _MAX_DESCRIPTORS, flags)[1]
        except OSError:
            return None
        sockets = [found for fd in fds if (found := _open_socket(fd)) is not None]
        if len(fds) == len(sockets) == 1 and _is_listener(sockets[0]):
            return sockets[0]
        for each in sockets:
            each.close()
        if fds:
            log.warning("a sandbox sent something else than the port of its proxy")
        return None


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _open_socket(fd: int) -> socket.socket | None:
    try:
        return socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        return None


def _is_listener(found: socket.socket) -> bool:
    """Return whether a socket listens on loopback in another network namespace than ours.

    A proxy on the loopback of this machine would serve every user of it.
    """
    with suppress(OSError):
        is_loopback = found.family == socket.AF_INET and found.getsockname()[0] == "127.0.0.1"
        is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        return is_loopback and is_listening and _is_foreign_network(found)
    return False


def _is_foreign_network(found: socket.socket) -> bool:
    namespace = fcntl.ioctl(found, _GET_NETWORK_NAMESPACE)
    try:
        return not os.path.samestat(os.fstat(namespace), Path("/proc/self/ns/net").stat())
    finally:
        os.close(namespace)


def _log_access(access: ProxyAccess) -> None:
    if access.refusal:
        log.warning("a sandboxed command was refused %s: %s", access.place, access.refusal)
    else:
        log.info("a sandboxed command connects to %s", access.place)
