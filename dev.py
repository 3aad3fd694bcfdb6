#!/usr/bin/env python3
"""Everything a developer does, with nothing but Python: `python3 dev.py COMMAND`.

setup       make .venv with all a developer needs, from the hashed lock files
run         set up what a chat needs, fetch the demo model, open the chat
test        set up and run every test that needs no root, no Node and no server
test-peers  the tests against servers and clients nobody here wrote
check       types, lint, layers, sizes
bench       the figures, and whether they stay inside bench/limits.toml
bench-memory  how much of what is asked is found: `dev.py bench-memory DATA`, or DATA=…
crash       kill the gateway at random moments, N times for each row of docs/reliability.md
crash-syscalls  fail every write, sync and rename of a turn, one after the other (needs strace)
scale       a thousand sessions at once, three turns each
live        a short conversation with a real key: `dev.py live PROVIDER`, or PROVIDER=…
fmt         format the code
lock        write the lock files anew from pyproject.toml
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("HOMARUS_VENV", ROOT / ".venv"))
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
STAMP = VENV / ".homarus-stamp"


def sh(*command: str | Path, **env: str) -> None:
    """Run a command; its failure is ours."""
    done = subprocess.run(
        [str(c) for c in command], cwd=ROOT, env={**os.environ, **env}, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)


def install(lock: str) -> None:
    """Bring .venv to what a lock file says; does nothing when it is there already."""
    if sys.version_info < (3, 11):
        sys.exit(f"Homarus needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    wanted = stamp(lock)
    if STAMP.exists() and wanted in STAMP.read_text(encoding="utf-8").split():
        return
    print(f"Setting up {VENV} …", flush=True)
    if not PYTHON.exists():
        sh(sys.executable, "-m", "venv", VENV)
    # pip, not uv: it is there, and it knows the index the machine is set up for.
    pip: list[str | Path] = [
        PYTHON,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--compile",
    ]
    sh(*pip, "--require-hashes", "-r", ROOT / "requirements" / lock)
    sh(*pip, "--no-deps", "--no-build-isolation", "-e", ROOT)
    # An environment may forbid writing bytecode; start-up time depends on having it.
    sh(PYTHON, "-m", "compileall", "-q", ROOT / "src", PYTHONDONTWRITEBYTECODE="")
    both = {wanted, stamp("run.lock")}
    STAMP.write_text("\n".join(sorted(both)), encoding="utf-8")


def stamp(lock: str) -> str:
    """What a finished install of a lock file is known by."""
    parts = [(ROOT / "requirements" / lock).read_bytes(), (ROOT / "pyproject.toml").read_bytes()]
    return hashlib.sha256(b"\0".join([*parts, sys.version.encode()])).hexdigest()


def setup() -> None:
    """Make the developer's environment."""
    install("dev.lock")


def run() -> None:
    """A chat, from nothing."""
    install("run.lock")
    sh(BIN / "homarus", "models", "pull", "demo", "--if-needed")
    os.execv(BIN / "homarus", ["homarus", "chat", *sys.argv[2:]])  # noqa: S606 - our own program


def test() -> None:
    """Everything but the peers."""
    setup()
    # With bytecode forbidden, every worker would compile all tests again: a quarter minute each.
    workers = sys.argv[2:] or ["-n", "auto"]
    sh(PYTHON, "-m", "pytest", "-m", "not peers", *workers, PYTHONDONTWRITEBYTECODE="")


def test_peers() -> None:
    """Only the peers."""
    setup()
    command = [str(PYTHON), "-m", "pytest", "-m", "peers", *sys.argv[2:]]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status not in (0, 5):  # 5: no test was chosen
        sys.exit(status)


def check() -> None:
    """What must be clean before a commit."""
    setup()
    sh(BIN / "ruff", "format", "--check", ".")
    sh(BIN / "ruff", "check", ".")
    sh(BIN / "mypy")
    sh(BIN / "lint-imports")
    sh(PYTHON, "-m", "pytest", "tests/style", "tests/docs")


def bench() -> None:
    """Measure."""
    setup()
    sh(PYTHON, "-m", "bench", *sys.argv[2:])


def bench_memory() -> None:
    """Measure recall on conversations that are not in this repository."""
    setup()
    sh(BIN / "homarus", "models", "pull", "minilm", "--if-needed")
    sh(PYTHON, "-m", "bench.recall", *sys.argv[2:])


def crash() -> None:
    """Kill it, often."""
    setup()
    sh(PYTHON, "-m", "tests.crash", *sys.argv[2:])


def crash_syscalls() -> None:
    """Fail one system call after the other."""
    setup()
    sh(PYTHON, "-m", "tests.crash.syscalls", *sys.argv[2:])


def scale() -> None:
    """Many at once."""
    setup()
    sh(PYTHON, "-m", "tests.crash.scale", *sys.argv[2:])


def live() -> None:
    """A real provider, if there is a key."""
    setup()
    sh(PYTHON, "-m", "tests.live", *sys.argv[2:])


def fmt() -> None:
    """Format."""
    setup()
    sh(BIN / "ruff", "format", ".")
    sh(BIN / "ruff", "check", "--fix", ".")


def lock() -> None:
    """Resolve anew."""
    setup()
    compile_: list[str | Path] = [
        BIN / "uv",
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--python-version",
        "3.11",
    ]
    plain = ["--generate-hashes", "--no-emit-index-url", "--no-annotate", "--no-header"]
    base: list[str | Path] = [*compile_, *plain, "--extra", "local", "pyproject.toml"]
    # hatchling and editables build our own package without a second, unpinned environment.
    build = ROOT / "requirements" / "build.in"
    sh(*base, build, "-o", "requirements/run.lock")
    sh(*base, build, "--group", "dev", "-o", "requirements/dev.lock")
    # What plays the other side in the peers' tests has environments of its own.
    for peer in sorted((ROOT / "requirements").glob("*.in")):
        if peer != build:
            sh(*compile_, *plain, peer, "-o", f"requirements/{peer.stem}.lock")


COMMANDS = {
    "setup": setup,
    "run": run,
    "test": test,
    "test-peers": test_peers,
    "check": check,
    "bench": bench,
    "bench-memory": bench_memory,
    "crash": crash,
    "crash-syscalls": crash_syscalls,
    "scale": scale,
    "live": live,
    "fmt": fmt,
    "lock": lock,
}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        COMMANDS[sys.argv[1]]()
    else:
        sys.exit(__doc__)
