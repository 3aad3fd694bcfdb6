#!/usr/bin/env python3
"""Run a developer's command with nothing but Python: `python3 dev.py COMMAND`.

setup       create .venv with the developer's dependencies, from the hashed lock files
run         install what a chat needs, fetch the demo model, open the chat
test        run every test that needs no root, no Node and no server
test-newest run the unit and style tests on the newest Python of this machine
test-peers  run the tests against third-party servers and clients
check       check lint, types, layers, style and documents
bench       measure, and compare the figures with bench/limits.toml
bench-memory  measure the recall of memory: `dev.py bench-memory DATA`, or DATA=…
crash       kill the gateway at random moments, N times for each row of docs/reliability.md
crash-syscalls  fail every write, sync and rename of a turn, one after the other (needs strace)
scale       run a thousand sessions at once, three turns each
live        hold a short conversation with a real key: `dev.py live PROVIDER`, or PROVIDER=…
fmt         format the code
lock        resolve pyproject.toml into the lock files
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("HOMARUS_VENV", ROOT / ".venv"))
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
STAMP = VENV / ".homarus-stamp"
# One worker more than cores: many tests wait for a process, a kill or a clock.
PARALLEL = ["-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal"]


def sh(*command: str | Path, **env: str) -> None:
    """Run a command in the repository; exit with its status when it fails."""
    done = subprocess.run(
        [str(c) for c in command], cwd=ROOT, env={**os.environ, **env}, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)


def install(lock: str) -> None:
    """Install a lock file into .venv, unless the stamp says that it is installed."""
    if sys.version_info < (3, 11):
        sys.exit(f"Homarus needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    needed = stamp(lock)
    if STAMP.exists() and needed in STAMP.read_text(encoding="utf-8").split():
        return
    print(f"Setting up {VENV} …", flush=True)
    if not PYTHON.exists():
        sh(sys.executable, "-m", "venv", VENV)
    # pip, not uv: every Python has it, and it uses the index that the machine is configured for.
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
    both = {needed, stamp("run.lock")}
    STAMP.write_text("\n".join(sorted(both)), encoding="utf-8")


def stamp(lock: str) -> str:
    """Return a digest that identifies the install of a lock file."""
    parts = [(ROOT / "requirements" / lock).read_bytes(), (ROOT / "pyproject.toml").read_bytes()]
    return hashlib.sha256(b"\0".join([*parts, sys.version.encode()])).hexdigest()


def setup() -> None:
    """Create the developer's environment."""
    install("dev.lock")


def run() -> None:
    """Open a chat, installing what it needs first."""
    install("run.lock")
    sh(BIN / "homarus", "models", "pull", "demo", "--if-needed")
    os.execv(BIN / "homarus", ["homarus", "chat", *sys.argv[2:]])  # noqa: S606 - our own program


def test() -> None:
    """Run every test but the peers."""
    setup()
    args = sys.argv[2:]
    workers = [] if any(not arg.startswith("--") for arg in args) else PARALLEL
    # With bytecode forbidden, every worker would compile all tests again: a quarter minute each.
    sh(PYTHON, "-m", "pytest", "-m", "not peers", *workers, *args, PYTHONDONTWRITEBYTECODE="")


def test_newest() -> None:
    """Run the fast tiers on the newest Python, in an environment of its own."""
    python, version = newest_python()
    if version <= sys.version_info[:2]:
        print(f"No Python newer than {sys.version.split()[0]} is installed: nothing to run.")
        return
    number = ".".join(str(part) for part in version)
    print(f"The unit and style tests on Python {number} ({python}):", flush=True)
    tests = ["tests/unit", "tests/style", *(sys.argv[2:] or PARALLEL)]
    sh(python, ROOT / "dev.py", "test", *tests, HOMARUS_VENV=str(ROOT / f".venv-{number}"))


def newest_python() -> tuple[str, tuple[int, int]]:
    """Return the newest CPython release on PATH or under pyenv, and its version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(sys.version_info[1] + 1, sys.version_info[1] + 10):
        name = f"python3.{minor}"
        on_path = shutil.which(name)
        managed = sorted(pyenv.glob(f"3.{minor}.*/bin/{name}"))
        for python in [*([on_path] if on_path else []), *map(str, managed)]:
            # A shim of pyenv exists for versions that are not active, and fails.
            command = [python, "-c", "import venv, ensurepip"]
            if not subprocess.run(command, capture_output=True, check=False).returncode:
                found[3, minor] = python
                break
    return found[max(found)], max(found)


def test_peers() -> None:
    """Run only the peers; it is an error when there are none."""
    setup()
    sh(PYTHON, "-m", "pytest", "-m", "peers", *sys.argv[2:])


def check() -> None:
    """Check what must be clean before a commit."""
    setup()
    sh(BIN / "ruff", "format", "--check", ".")
    sh(BIN / "ruff", "check", ".")
    sh(BIN / "mypy")
    sh(BIN / "lint-imports")
    sh(PYTHON, "-m", "pytest", "tests/style", "tests/docs")


def bench() -> None:
    """Measure CPU, memory and latency."""
    setup()
    sh(PYTHON, "-m", "bench", *sys.argv[2:])


def bench_memory() -> None:
    """Measure the recall of memory on conversations outside this repository."""
    setup()
    sh(BIN / "homarus", "models", "pull", "minilm", "--if-needed")
    sh(PYTHON, "-m", "bench.recall", *sys.argv[2:])


def crash() -> None:
    """Kill the gateway at random moments."""
    setup()
    sh(PYTHON, "-m", "tests.crash", *sys.argv[2:])


def crash_syscalls() -> None:
    """Fail one system call of a turn after the other."""
    setup()
    sh(PYTHON, "-m", "tests.crash.syscalls", *sys.argv[2:])


def scale() -> None:
    """Run many sessions at once."""
    setup()
    sh(PYTHON, "-m", "tests.crash.scale", *sys.argv[2:])


def live() -> None:
    """Talk to a real provider, if there is a key."""
    setup()
    sh(PYTHON, "-m", "tests.live", *sys.argv[2:])


def fmt() -> None:
    """Format the code and fix what ruff can fix."""
    setup()
    sh(BIN / "ruff", "format", ".")
    sh(BIN / "ruff", "check", "--fix", ".")


def lock() -> None:
    """Resolve the dependencies into the lock files."""
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
    # hatchling and editables build this package without a second, unpinned environment.
    build = ROOT / "requirements" / "build.in"
    sh(*base, build, "-o", "requirements/run.lock")
    sh(*base, build, "--group", "dev", "-o", "requirements/dev.lock")
    # The third-party programs of the peers' tests have environments of their own.
    for peer in sorted((ROOT / "requirements").glob("*.in")):
        if peer != build:
            sh(*compile_, *plain, peer, "-o", f"requirements/{peer.stem}.lock")


COMMANDS = {
    "setup": setup,
    "run": run,
    "test": test,
    "test-newest": test_newest,
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
