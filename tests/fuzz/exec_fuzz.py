"""`python -m tests.fuzz.exec_fuzz [TRIES] [SEED]`: no changed command runs unasked and does harm.

Two oracles, neither of which reads the code under test:
- what an allowlist lets run is run, in a workspace where harm shows (a new or changed file, the
  secret, the token of the environment);
- a sample of what the grammar understands is given to bash with programs that only write down
  their arguments: these have to be the words of the plan.
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from homarus.tools.exec.allowlist import AllowEntry, read_entry
from homarus.tools.exec.evaluate import evaluate_plan
from homarus.tools.exec.grammar import NotUnderstood, ParsedChain, parse_command
from homarus.tools.exec.plan import ExecPlan, make_plan
from tests.attacks.cases import read_cases
from tests.attacks.exec_workspace import SECRET, TOKEN, build_workspace
from tests.fuzz.exec_mutations import mutate

_CASES: Final = Path(__file__).parents[1] / "data" / "attack-cases.json"
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_BASH_EVERY: Final = 10  # of the commands that are understood
_RUN_TIMEOUT_S: Final = 10
_WITHOUT_BUILTINS: Final = "enable -n echo printf test true false pwd kill"
# Harmless commands that an allowlist has; a change must not make more of them.
_ALLOWED: Final = (
    "git status",
    "git diff",
    "git log --oneline -n 5",
    "ls -la .",
    "cat notes.md",
    "echo hello",
    "find . -name notes.md",
    "grep -rn hello .",
    "sort a.txt",
    "sed -n 1,2p a.txt",
    "wc -l",
    "awk '{print $1}' a.txt",
    "tar -tf x.tar",
    "head -n 1",
    "diff a.txt notes.md",
    "python3 safe.py",
)
_WIDE: Final = (
    "git status",
    "git diff *",
    "git log *",
    "ls -la *",
    "cat *.md",
    "echo *",
    "python3 safe.py",
    {"pattern": "git"},
    {"pattern": "find"},
    {"pattern": "grep"},
    {"pattern": "sort"},
    {"pattern": "sed"},
    {"pattern": "awk"},
    {"pattern": "tar"},
    {"pattern": "diff"},
    {"pattern": "env"},
    {"pattern": "timeout"},
    {"pattern": "xargs"},
    {"pattern": "sh"},
)


@dataclass(slots=True)
class FuzzReport:
    """What a run of the fuzzer found."""

    tries: int = 0
    understood: int = 0
    allowed: int = 0
    compared: int = 0
    escapes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.tries} tries, {self.understood} understood, {self.allowed} allowed and run,"
            f" {self.compared} compared with bash, {len(self.escapes)} escapes"
        )


def fuzz(tries: int, seed: int) -> FuzzReport:
    """Try changed commands, and return what was found."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "ws"
        root.mkdir()
        build_workspace(root)
        return asyncio.run(_Fuzzer(root, Path(folder).resolve() / "stubs").run(tries, seed))


class _Fuzzer:
    def __init__(self, root: Path, stubs: Path) -> None:
        self._root, self._stubs, self._log = root, stubs, stubs.with_name("log")
        self._env = {"PATH": _PATH, "HOME": str(root), "SECRET_TOKEN": TOKEN}
        self._files = _list_files(root)
        self._seeds = list(_read_seeds(root))
        self._report = FuzzReport()
        self._stub_names: frozenset[str] = frozenset()

    async def run(self, tries: int, seed: int) -> FuzzReport:
        rng = random.Random(seed)
        self._make_stubs()
        folder_fd = os.open(self._root, os.O_RDONLY)
        try:
            for _ in range(tries):
                command, entries, safe_bins = rng.choice(self._seeds)
                await self._try(mutate(rng, command), entries, safe_bins, folder_fd)
        finally:
            os.close(folder_fd)
        return self._report

    async def _try(
        self, command: str, entries: Sequence[AllowEntry], safe_bins: Sequence[str], folder_fd: int
    ) -> None:
        report = self._report
        report.tries += 1
        parsed = parse_command(command)
        if isinstance(parsed, NotUnderstood):
            return
        report.understood += 1
        if report.understood % _BASH_EVERY == 0:
            self._compare(command, parsed)
        plan = await make_plan(
            command,
            folder=str(self._root),
            folder_fd=folder_fd,
            workspace=self._root,
            env=self._env,
            requested_env={},
            timeout_s=60,
        )
        with _closing(plan):
            if evaluate_plan(plan, entries, safe_bins=safe_bins).is_satisfied:
                report.allowed += 1
                if harm := self._find_harm(plan):
                    report.escapes.append(f"{command!r}: {harm}")

    def _find_harm(self, plan: ExecPlan) -> str:
        output = b""
        for command in plan.commands():
            try:
                done = subprocess.run(
                    command.argv,
                    executable=command.executable.path,
                    cwd=self._root,
                    env=dict(plan.env),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_RUN_TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                continue
            output += done.stdout + done.stderr
        changed = [
            name
            for name, stamp in _list_files(self._root).items()
            if self._files.get(name) != stamp
        ]
        if changed:
            (self._root / "pwned").unlink(missing_ok=True)
            self._files = _list_files(self._root)
            return f"changed {changed}"
        words = {word for command in plan.commands() for word in command.words}
        is_named = any("secret.txt" in word for word in words) and not any(
            word.startswith("-") and "secret.txt" in word for word in words
        )
        if TOKEN.encode() in output or (SECRET.encode() in output and not is_named):
            return "printed a secret"
        return ""

    def _make_stubs(self) -> None:
        """Write programs that only note their arguments, for every name that seeds use."""
        self._stubs.mkdir()
        self._log.mkdir()
        names = {
            word.rpartition("/")[2] for command, _, _ in self._seeds for word in command.split()
        }
        note = """printf '%s\\0' "${0##*/}" "$@" $'\\n' >> """
        text = f"#!/bin/bash\n{note}{self._log}/$$\n"
        for name in names:
            if name.isalnum() and name.isascii():
                (self._stubs / name).write_text(text)
                (self._stubs / name).chmod(0o755)
        self._stub_names = frozenset(path.name for path in self._stubs.iterdir())

    def _compare(self, command: str, parsed: ParsedChain) -> None:
        """Compare the words with what bash passes to the programs."""
        expected = [list(words) for op, pipeline in parsed if op != "||" for words in pipeline]
        if any(op == "||" for op, _ in parsed) or not all(
            words[0] in self._stub_names for words in expected
        ):
            return
        for each in self._log.iterdir():
            each.unlink()
        subprocess.run(
            ["/bin/bash", "--norc", "--noprofile", "-c", f"{_WITHOUT_BUILTINS}\n{command}"],
            cwd=self._root,
            env={"PATH": str(self._stubs)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_RUN_TIMEOUT_S,
            check=False,
        )
        texts = [
            each.read_bytes().decode("utf-8", "surrogateescape") for each in self._log.iterdir()
        ]
        found = [text.split("\0")[:-2] for text in texts]
        self._report.compared += 1
        if sorted(found) != sorted(expected):
            self._report.escapes.append(f"{command!r}: bash runs {found}")


@contextmanager
def _closing(plan: ExecPlan) -> Iterator[None]:
    try:
        yield
    finally:
        plan.close()


def _list_files(root: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for folder in (root, root / "sub", root / "bin", root / "evilbin"):
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name != ".git":
                    stat = entry.stat(follow_symlinks=False)
                    found[entry.path] = stat.st_size, stat.st_mtime_ns if entry.is_file() else 0
    return found


def _read_seeds(root: Path) -> Iterator[tuple[str, list[AllowEntry], Sequence[str]]]:
    """Yield commands that are asked about, with an allowlist, and those that are allowed."""
    for case in read_cases(_CASES)["exec_allowlist"]:
        if case.get("skip_run") or "allow" in case["acceptable"]:
            continue
        entries = [_fill(each, root) for each in case["allowlist"]]
        yield case["command"].replace("{ws}", str(root)), entries, case["safe_bins"]
        yield (
            case["command"].replace("{ws}", str(root)),
            [_fill(each, root) for each in _WIDE],
            ("head", "wc"),
        )
    for command in _ALLOWED:
        for _ in range(5):
            yield command, [_fill(each, root) for each in _WIDE], ("head", "wc")


def _fill(entry: str | dict[str, str], root: Path) -> AllowEntry:
    if isinstance(entry, str):
        found = read_entry(entry.replace("{ws}", str(root)))
    else:
        found = read_entry({key: value.replace("{ws}", str(root)) for key, value in entry.items()})
    assert found is not None
    return found


def main(argv: list[str]) -> int:
    """Print the report; exit 1 on an escape."""
    report = fuzz(int(argv[0]) if argv else 100_000, int(argv[1]) if argv[1:] else 18)
    print(report)
    for escape in report.escapes[:50]:
        print(f"ESCAPE {escape}")
    return 1 if report.escapes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
