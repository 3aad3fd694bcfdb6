"""The commands of dev.py, which checks the version of Python before it imports this."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("HOMARUS_VENV", ROOT / ".venv"))
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
# The digests of what is installed; an environment without it was not completed.
STAMP = VENV / ".homarus-stamp"
# Two workers more than cores: many tests wait for a process, a kill or a clock.
PARALLEL = ["-n", str((os.cpu_count() or 1) + 2), "--dist", "worksteal"]
LOOK_S = 0.2
# How long a program may take to end after Ctrl-C, which it gets as well.
END_S = 30.0


def run_command(name: str) -> None:
    """Run one of COMMANDS; Ctrl-C ends it with status 130 and no traceback."""
    try:
        COMMANDS[name]()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("\nStopped.\n")
        sys.exit(130)


def sh(*command: str | Path, **env: str) -> None:
    """Run a command in the repository; exit with its status when it fails."""
    with subprocess.Popen(
        [str(c) for c in command], cwd=ROOT, env={**os.environ, **env}
    ) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            end(process)
            raise
    if status:
        sys.exit(status if status > 0 else 128 - status)


def end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """Wait until a program that got Ctrl-C, too, has ended; end it if it does not."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


# Setting up the environment


class ProgressLine:
    """One line that says how far the set-up is; elsewhere than on a terminal, a line per step."""

    def __init__(self, what: str) -> None:
        self._what, self._is_live = what, sys.stdout.isatty()

    def show(self, text: str) -> None:
        """Replace the line on a terminal."""
        if self._is_live:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{f'{self._what}: {text}'[:width]}", end="", flush=True)

    def step(self, text: str) -> None:
        """Show what happens next."""
        if self._is_live:
            self.show(text)
        else:
            print(f"{self._what}: {text}", flush=True)

    def close(self, text: str) -> None:
        """Replace the line by a last one."""
        print(f"\r\x1b[K{text}" if self._is_live else text, flush=True)


class PipOutput:
    """Counts the packages that pip has collected and installed."""

    def __init__(self, lock: str) -> None:
        self.collected = set[str]()
        self.is_installing = False
        self._listed = len(re.findall(r"^[\w.-]+(?:\[.*\])?==", lock, re.MULTILINE))
        self._ignored = 0
        self._before = count_installed()

    @property
    def total(self) -> int:
        return max(self._listed - self._ignored, len(self.collected))

    def read(self, line: str) -> None:
        """Read one line that pip printed."""
        if found := re.match(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)", line):
            self.collected.add(re.sub(r"[-_.]+", "-", found[1]).lower())
        elif line.startswith("Ignoring "):
            self._ignored += 1
        elif line.startswith("Installing collected packages"):
            self.is_installing = True

    def __str__(self) -> str:
        if not self.is_installing:
            return f"{len(self.collected)} of {self.total} packages downloaded"
        installed = min(max(count_installed() - self._before, 0), self.total)
        return f"{installed} of {self.total} packages installed"


def count_installed() -> int:
    """Return how many packages .venv has."""
    return sum(1 for _ in VENV.glob("lib/python3.*/site-packages/*.dist-info/RECORD"))


def install(lock: str) -> None:
    """Install a lock file into .venv, unless the stamp says that it is installed."""
    needed = stamp(lock)
    if PYTHON.exists() and needed in read_stamps():
        return
    started, line = time.monotonic(), ProgressLine(f"Setting up {shown(VENV)}")
    prepare_venv(line)
    # pip, not uv: every Python has it, and it uses the index of this machine.
    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--compile"]
    pip: list[str | Path] = [PYTHON, "-m", "pip", "install", *quiet]
    file = ROOT / "requirements" / lock
    pip_output = PipOutput(file.read_text(encoding="utf-8"))
    line.step("downloading packages")
    # A lock is complete. pip's resolver fails on `name[extra]` once a newer release than the
    # pinned one exists.
    run_step(
        [*pip, "--require-hashes", "--no-deps", "-r", file],
        on_line=pip_output.read,
        on_tick=lambda: line.show(str(pip_output)),
        fix="check the network and the index of pip (`pip config list`), then repeat",
    )
    line.step("building homarus")
    run_step([*pip, "--no-deps", "--no-build-isolation", "-e", ROOT])
    # An environment may forbid writing bytecode; start-up time depends on having it.
    compile_all: list[str | Path] = [PYTHON, "-m", "compileall", "-q", ROOT / "src"]
    run_step(compile_all, PYTHONDONTWRITEBYTECODE="")
    lines = [*sorted({needed, stamp("run.lock")}), f"at {VENV}"]
    STAMP.write_text("\n".join(lines), encoding="utf-8")
    seconds = round(time.monotonic() - started)
    line.close(f"{shown(VENV)} is ready: {pip_output.total} packages in {seconds} s.")


def shown(path: Path) -> str:
    """Return a path as it is read in the repository."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def stamp(lock: str) -> str:
    """Return a digest that identifies the install of a lock file."""
    parts = [(ROOT / "requirements" / lock).read_bytes(), (ROOT / "pyproject.toml").read_bytes()]
    return hashlib.sha256(b"\0".join([*parts, sys.version.encode()])).hexdigest()


def read_stamps() -> list[str]:
    """Return what the stamp says; nothing for an environment that was moved or not completed."""
    try:
        lines = STAMP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    place = [line for line in lines if line.startswith("at ")]
    return lines if place in ([], [f"at {VENV}"]) else []


def prepare_venv(line: ProgressLine) -> None:
    """Create .venv; one that is incomplete, moved or of another Python is created again."""
    is_there, was_complete = VENV.exists(), bool(read_stamps())
    if was_complete:
        STAMP.unlink()  # whatever stops this set-up, the next one starts from the beginning
    if was_complete and is_usable():
        return
    has_files = any(names for _, _, names in os.walk(VENV))
    if has_files and not (VENV / "pyvenv.cfg").exists():
        sys.exit(
            f"{VENV} has files and is no virtual environment, so it is left as it is.\n"
            "  -> move it away, or set HOMARUS_VENV to another folder"
        )
    line.step("incomplete, made again" if is_there else "the environment")
    run_step(
        [sys.executable, "-m", "venv", "--clear", VENV],
        fix="on Debian and Ubuntu, `apt install python3-venv` brings what venv needs",
    )


def is_usable() -> bool:
    """Return whether .venv is of this Python and has pip."""
    command = [str(PYTHON), "-c", "import sys, pip; print(sys.version)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # its Python was removed
        return False
    return done.returncode == 0 and done.stdout.strip() == sys.version.strip()


def run_step(
    command: Iterable[str | Path],
    *,
    on_line: Callable[[str], None] = lambda line: None,
    on_tick: Callable[[], None] = lambda: None,
    fix: str = "",
    **env: str,
) -> None:
    """Run a step of the set-up; its output is only shown when it fails."""
    output: list[str] = []
    with subprocess.Popen(
        [str(c) for c in command],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:

        def read() -> None:
            for line in process.stdout or ():
                output.append(line)
                on_line(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while reader.is_alive():
                reader.join(LOOK_S)
                on_tick()
            status = process.wait()
        except BaseException:
            process.terminate()
            end(process)
            raise
    if status:
        told = [line for line in output if line.startswith("ERROR")] or output[-20:]
        sys.stderr.write("\n" + "".join(told) + (f"  -> {fix}\n" if fix else ""))
        sys.exit(status if status > 0 else 128 - status)


# Commands


def setup() -> None:
    """Create the developer's environment."""
    install("dev.lock")


def run() -> None:
    """Open a chat, installing what it needs first."""
    install("run.lock")
    sh(BIN / "homarus", "models", "pull", "demo", "--if-needed")
    os.execv(BIN / "homarus", ["homarus", "chat", *sys.argv[2:]])  # noqa: S606 - our own program


def test() -> None:
    """Run every test but the peers and the slow ones."""
    setup()
    args = sys.argv[2:]
    workers = [] if any(not arg.startswith("--") for arg in args) else PARALLEL
    # With bytecode forbidden, every worker would compile all tests again: a quarter minute each.
    fast = "not peers and not slow"
    sh(PYTHON, "-m", "pytest", "-m", fast, *workers, *args, PYTHONDONTWRITEBYTECODE="")


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
    tested = {(3, sys.version_info[1]), version}
    if tested != (declared := declared_pythons()):
        sys.exit(
            f"Tested on Python {join_versions(tested)}; the classifiers in pyproject.toml name"
            f" {join_versions(declared)}.\n  -> name those that are tested, and no other"
        )


def declared_pythons() -> set[tuple[int, int]]:
    """Return the versions of Python that the package's classifiers name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = re.findall(r"Python :: 3\.(\d+)\b", "\n".join(project["classifiers"]))
    return {(3, int(minor)) for minor in found}


def join_versions(versions: set[tuple[int, int]]) -> str:
    """Format versions of Python."""
    return ", ".join(f"{major}.{minor}" for major, minor in sorted(versions))


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
    """Run the slow tests and the peers; it is an error when there are none."""
    setup()
    args = sys.argv[2:]
    if args:
        sh(PYTHON, "-m", "pytest", "-m", "peers or slow", *args)
        return
    sh(PYTHON, "-m", "pytest", "-m", "slow and not peers", *PARALLEL)
    # Each file of them has a gateway of its own, and waits for a browser or another program half
    # of the time. A file stays in one process: its peers are started once.
    three = ["-n", "3", "--dist", "loadfile"]
    sh(PYTHON, "-m", "pytest", "-m", "browser", *three)
    sh(PYTHON, "-m", "pytest", "-m", "peers and not browser", *three)


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


def fuzz_exec() -> None:
    """Try changed commands, and print how many developers' commands need no question."""
    sh(PYTHON, "-m", "tests.fuzz.exec_fuzz", *sys.argv[2:])
    sh(PYTHON, "-m", "tests.fuzz.exec_corpus")


def fuzz_http() -> None:
    """Send generated requests to the HTTP API."""
    setup()
    sh(PYTHON, "-m", "tests.fuzz.http_fuzz", *sys.argv[2:])


def scale() -> None:
    """Run many sessions at once."""
    setup()
    sh(PYTHON, "-m", "tests.crash.scale", *sys.argv[2:])


def live() -> None:
    """Talk to a real provider, if there is a key."""
    setup()
    sh(PYTHON, "-m", "tests.live", *sys.argv[2:])


def ui() -> None:
    """Build the control UI, with the Node of this machine."""
    sh(sys.executable, "web/build_ui.py", *sys.argv[2:])


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
    "fuzz-exec": fuzz_exec,
    "fuzz-http": fuzz_http,
    "scale": scale,
    "live": live,
    "ui": ui,
    "fmt": fmt,
    "lock": lock,
}
