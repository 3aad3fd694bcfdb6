"""The examples in a SKILL.md: which blocks run, what they print, which programs they call.

The fenced blocks with the language `sh` run in their order, in a folder that is empty at first:

- `sh` and `sh setup` run and must end with status 0. `setup` creates the files that the others use.
- `sh account`: every line is run by itself where no account exists; the program must understand the
  line and only miss the account.
- `sh not-run` is shown and not run: it needs the public network, or a machine that no test has.

A comment `# → text` is a line that the block prints, after those of the comments before it. `…` in
it stands for any text.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

BLOCK_S = 180
_FENCE = re.compile(r"^```(sh[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"(?:^|\s)# → (.*)$", re.MULTILINE)
_HEREDOC = re.compile(r"<<-?'?(\w+)'?[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_KEYWORDS = frozenset(["if", "then", "else", "elif", "while", "until", "do", "{", "!", "exec"])
_NO_COMMAND_FOLLOWS = frozenset(["for", "case", "done", "fi", "esac", "}"])
_SEPARATORS = frozenset([";", "&", "&&", "|", "||", "(", ")", ";;"])


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced block of shell commands."""

    kind: str
    script: str

    @property
    def runs(self) -> bool:
        return self.kind in {"", "setup"}

    def expected(self) -> list[str]:
        """Return the lines that the block says it prints."""
        return [text.strip() for text in _SHOWN.findall(self.script)]

    def programs(self) -> set[str]:
        """Return the names that stand where a command's name stands."""
        return set(_command_names(self.script))

    def missing_line(self, printed: str) -> str | None:
        """Return the first expected line that is not printed after the one before it."""
        lines = iter([line.strip() for line in printed.splitlines()])
        for text in self.expected():
            pattern = re.compile(".*".join(map(re.escape, text.split("…"))))
            if not any(pattern.fullmatch(line) for line in lines):
                return text
        return None


def examples_of(text: str) -> list[Example]:
    """Return the shell blocks of a SKILL.md in their order."""
    return [
        Example(info.removeprefix("sh").strip(), script) for info, script in _FENCE.findall(text)
    ]


def new_env(home: Path) -> dict[str, str]:
    """Return the environment of a new user, whose home is created."""
    home.mkdir(parents=True)
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "USER": "ann",
        "TMUX_TMPDIR": str(home),
    }


class ExampleRunner:
    """Runs the blocks of one skill in one folder; ends the processes that they left running."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder, self._env = folder, env
        folder.mkdir(parents=True)
        self._output = folder.with_name(f"{folder.name}-output.txt")

    def __enter__(self) -> Self:
        # Its process group receives the processes of every block.
        self._leader = subprocess.Popen(["sleep", "3600"], process_group=0)
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._leader.pid, signal.SIGKILL)
        self._leader.wait()

    def run(self, script: str) -> tuple[int, str]:
        """Run commands by `sh -eu`; return their status and what they printed."""
        # A file: a background process would keep a pipe open.
        with self._output.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["sh", "-eu", "-c", script],
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=self._leader.pid,
            )
            try:
                status = process.wait(timeout=BLOCK_S)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        return status, self._output.read_text(encoding="utf-8", errors="replace")

    def check(self, example: Example) -> None:
        """Run a block: its status must be 0, and it must print what its comments say."""
        status, printed = self.run(example.script)
        shown = f"\n{example.script}\nprinted\n{printed}"
        assert status == 0, f"status {status}:{shown}"
        missing = example.missing_line(printed)
        assert missing is None, f"{missing!r} is not in the output:{shown}"


def _command_names(script: str) -> Iterator[str]:
    plain = _HEREDOC.sub("", script).replace("\\\n", " ")
    for inner in re.findall(r"\$\(([^()]*)\)", plain):
        yield from _command_names(inner)
    wants_name = True
    for word in _words(plain):
        if word in _SEPARATORS:
            wants_name = True
        elif wants_name and word in _NO_COMMAND_FOLLOWS:
            wants_name = False
        elif wants_name and word not in _KEYWORDS and not re.match(r"\w+=", word):
            wants_name = False
            yield word


def _words(script: str) -> Iterator[str]:
    """Split a script into words and separators; a line's end is `;`."""
    pattern = re.compile(
        r"""(?P<comment>(?<!\S)\#[^\n]*)|(?P<separator>\n|;;|&&|\|\||(?<!>)&(?!>)|[;|()])
        |(?P<word>(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|>&|&>|[^\s;|&()'"\\])+)""",
        re.VERBOSE | re.DOTALL,
    )
    for found in pattern.finditer(script):
        if found["separator"]:
            yield ";" if found["separator"] == "\n" else found["separator"]
        elif found["word"]:
            yield found["word"]
