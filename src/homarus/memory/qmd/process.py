"""Run qmd with a minimal environment, its own folders and a timeout, and leave nothing behind.

qmd looks for a `.qmd` folder from its working directory upwards, and executes what such a file
says. It always gets the name of its index, which disables that search, and runs in a folder of
ours.
"""

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from homarus.core.errors import ConfigError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir
from homarus.core.text import one_line
from homarus.memory.spec import MemorySpec

MAX_OUTPUT_BYTES: Final = 16 << 20
_MAX_SAID_BYTES = 64 << 10  # of stderr
_TICK_S = 0.2  # how soon the end of the process is seen when a child keeps the pipe open
_READ_BYTES = 1 << 16
_INDEX: Final = ("--index", "index")
_INSTALL = "npm install -g @tobilu/qmd, or set memory.qmd.command; it needs Node 22 or newer"
_NO_MODEL = "run qmd by hand to see why, or set memory.qmd.searchMode to search: it needs no model"
_FIXES: Final = {"query": _NO_MODEL, "vsearch": _NO_MODEL, "embed": _NO_MODEL}
# What a program needs to run at all, and to download a model; none of our keys is among it.
_PASSED = frozenset(
    (
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "LD_LIBRARY_PATH", "CUDA_PATH",
    )
)  # fmt: skip
# These would move its files, or run another program in its name.
_KEPT_BACK = frozenset(("QMD_CONFIG_DIR", "QMD_SOURCE_MODE"))


@dataclass(frozen=True, slots=True)
class QmdFolders:
    """The folders of one agent's qmd."""

    base: Path

    @property
    def config(self) -> Path:
        return self.base / "xdg-config"

    @property
    def cache(self) -> Path:
        return self.base / "xdg-cache"

    @property
    def index(self) -> Path:
        return self.cache / "qmd" / "index.sqlite"

    def create(self) -> None:
        """Create them, with access for their owner alone."""
        for folder in (self.base, self.config, self.cache, self.index.parent):
            make_private_dir(folder)


def folders_of(spec: MemorySpec) -> QmdFolders:
    """Return the folders of an agent's qmd."""
    return QmdFolders(spec.agent_folder / "qmd")


def environment(spec: MemorySpec) -> dict[str, str]:
    """Return the environment of qmd, without our own variables."""
    own = folders_of(spec)
    passed = {
        name: value
        for name, value in spec.env.items()
        if name in _PASSED or (name.startswith("QMD_") and name not in _KEPT_BACK)
    }
    return {
        "HOME": str(spec.home),
        "PATH": os.defpath,
        **passed,
        "XDG_CONFIG_HOME": str(own.config),
        "XDG_CACHE_HOME": str(own.cache),
        "NO_COLOR": "1",
    }


def find_command(spec: MemorySpec) -> str:
    """Return the path of the program: a name is looked up in PATH, a path is absolute."""
    written = spec.settings.qmd.command
    path = str(spec.home / written[2:]) if written.startswith("~/") else written
    if "/" in path and not path.startswith("/"):
        raise ConfigError("must be a name or an absolute path", key="memory.qmd.command")
    found = shutil.which(path, path=spec.env.get("PATH", os.defpath))
    if found is None:
        raise StoreError(f"{one_line(written)} is not installed", fix=_INSTALL)
    return found


class QmdProcess:
    """Runs the commands of one agent's qmd. `stop` may be called from any thread."""

    def __init__(self, spec: MemorySpec) -> None:
        self._spec = spec
        self._folders = folders_of(spec)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(self, *args: str, timeout_ms: int) -> str:
        """Return what a command prints. Raises StoreError. `timeout_ms` 0 is no timeout."""
        command = find_command(self._spec)
        name = f"qmd {args[0]}"
        try:
            self._folders.create()
            _share_models(self._folders, self._spec.home, self._spec.env)
            process = self._start([command, args[0], *_INDEX, *args[1:]])
        except (OSError, ValueError) as exc:
            why = getattr(exc, "strerror", None) or "that is no command"
            raise StoreError(f"{name} could not be started: {why}", fix=_INSTALL) from exc
        try:
            out, said = _communicate(process, name, timeout_ms)
        finally:
            self._end(process)
        if self._is_stopped:
            raise StoreError(f"{name} was stopped")
        if process.returncode:
            ended = f"{name} ended with status {process.returncode}"
            raise StoreError(f"{ended}: {error_line(said)}", fix=_FIXES.get(args[0], ""))
        return out.decode("utf-8", "replace")

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def stop(self) -> None:
        """Kill what is running, and start nothing more."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                _kill_group(process)

    def _start(self, argv: list[str]) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_stopped:
                raise StoreError("qmd was stopped")
            process = subprocess.Popen(  # noqa: S603 - the program that the config names
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(self._spec),
                cwd=self._folders.base,
                start_new_session=True,
                umask=0o077,
            )
            self._running.add(process)
            return process

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill the process group and close its pipes, however the process ended."""
        with self._lock:
            _kill_group(process)
            process.wait()
            self._running.discard(process)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _communicate(
    process: "subprocess.Popen[bytes]", name: str, timeout_ms: int
) -> tuple[bytes, bytes]:
    """Read both streams until the program ends; its children may keep them open longer."""
    deadline = time.monotonic() + timeout_ms / 1000 if timeout_ms else float("inf")
    out, said = bytearray(), bytearray()
    with _reading(process) as (selector, sinks):
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise StoreError(f"{name} took longer than {timeout_ms / 1000:g} s")
            ready = selector.select(min(left, _TICK_S))
            for key, _ in ready:
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                elif sinks[key.fd] == "out":
                    out += data
                elif len(said) < _MAX_SAID_BYTES:
                    said += data
            if len(out) > MAX_OUTPUT_BYTES:
                raise StoreError(f"{name} printed more than {MAX_OUTPUT_BYTES >> 20} MB")
            if not ready and process.poll() is not None:
                break
    try:  # a process that closed its output may still be running
        process.wait(max(0.0, deadline - time.monotonic()) if timeout_ms else None)
    except subprocess.TimeoutExpired:
        raise StoreError(f"{name} took longer than {timeout_ms / 1000:g} s") from None
    return bytes(out), bytes(said)


@contextlib.contextmanager
def _reading(
    process: "subprocess.Popen[bytes]",
) -> Iterator[tuple[selectors.DefaultSelector, dict[int, str]]]:
    pipes: list[tuple[IO[bytes] | None, str]] = [(process.stdout, "out"), (process.stderr, "said")]
    with selectors.DefaultSelector() as selector:
        sinks: dict[int, str] = {}
        for pipe, sink in pipes:
            if pipe:
                selector.register(pipe, selectors.EVENT_READ)
                sinks[pipe.fileno()] = sink
        yield selector, sinks


def error_line(said: bytes) -> str:
    """Return the most informative line of stderr: the last that names an error, else the last."""
    lines = [line for raw in said.decode("utf-8", "replace").splitlines() if (line := raw.strip())]
    told = [line for line in lines if not line.startswith(("at ", "If qmd still", "Node.js v"))]
    errors = [line for line in told if "rror" in line and "throw " not in line]
    return one_line((errors or told or ["it said nothing"])[-1], 200)


def _share_models(own: QmdFolders, home: Path, env: Mapping[str, str]) -> None:
    """Link the weights that the user's own qmd has downloaded: they are gigabytes."""
    models = own.index.parent / "models"
    if models.is_symlink() or models.exists():
        return
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    theirs = cache / "qmd" / "models"
    if cache.is_absolute() and theirs.is_dir():
        with contextlib.suppress(OSError):
            models.symlink_to(theirs, target_is_directory=True)
