"""Commands that a person has allowed for good, each exactly as it was shown.

An entry of `exec-approvals.json` allows one command line in one folder for one agent. Its pattern
is `=`, the program's path and its arguments: OpenClaw, which takes a pattern for the path of a
program with any arguments, finds no program by it. A command gets an entry only when its words mean
the same each time: no shell syntax, and no program whose code the agent can change.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from homarus.config.approvals_file import add_allowed, allowed_entries, read_approvals
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.tools.exec.approval import escape_deceptive_chars

_PLAIN_WORD = r"(?:[A-Za-z0-9_@%+=:,./-]|'[^']*'|\"[^\"$`\\!]*\")+"
_PLAIN_COMMAND = re.compile(rf"[ \t]*{_PLAIN_WORD}(?:[ \t]+{_PLAIN_WORD})*[ \t]*", re.ASCII)
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\!]*\"")
_SYNTAX = re.compile(r"[|&;<>()$`\\*?\[\]{}~!#^\n]")
_VERSION = re.compile(r"[\d.]+\Z")
# Programs that run other programs, or code from files that the agent may write.
_RUNNER_NAMES = (
    "ash bash busybox csh dash fish ksh sh tcsh zsh env xargs parallel sudo doas su ssh nohup nice"
    " timeout time watch setsid script make gmake cmake ninja just ant gradle mvn tox nox pytest"
    " npm npx pnpm yarn node nodejs deno bun uv uvx pip pipx poetry hatch cargo go dotnet java"
    " python pypy perl ruby rake bundle php lua luajit tclsh awk gawk mawk ed vi vim emacs"
    " docker podman git-lfs pre-commit ansible-playbook terraform"
)
_RUNNERS: Final = frozenset(_RUNNER_NAMES.split())


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command in a folder, with the environment that it would get."""

    command: str
    folder: str
    env: Mapping[str, str]  # complete
    requested: Mapping[str, str]  # what of it the model sets


@dataclass(frozen=True, slots=True)
class ExactCommand:
    """What an entry allows: a program, found at a path, with these arguments in this folder."""

    pattern: str
    folder: str
    resolved: str

    def is_allowed_by(self, entry: Mapping[str, Json]) -> bool:
        found = (entry.get("pattern"), entry.get("cwd"), entry.get("lastResolvedPath"))
        return found == (self.pattern, self.folder, self.resolved)


def exact_command(line: CommandLine, workspace: Path) -> ExactCommand | str:
    """Return what an entry would allow, or the reason why there can be none."""
    if found := _SYNTAX.search(_QUOTED.sub("", line.command)):
        return f"it has shell syntax ({'a line break' if found[0] == chr(10) else found[0]})"
    if not _PLAIN_COMMAND.fullmatch(line.command):
        return "it has shell syntax"
    if line.requested:
        return "it sets variables"
    if escape_deceptive_chars(line.command) != line.command:
        return "it has characters that can be mistaken"
    name, *args = shlex.split(line.command)
    if "=" in name:
        return "it sets variables"
    path = (
        str(Path(line.folder, name)) if "/" in name else shutil.which(name, path=line.env["PATH"])
    )
    if path is None or not os.access(path, os.X_OK) or not Path(path).is_file():
        return f"there is no program {name}"
    resolved = Path(path).resolve()
    if {_VERSION.sub("", each) for each in (Path(path).name, resolved.name)} & _RUNNERS:
        return f"{Path(path).name} runs what other files say, and the agent can change them"
    if resolved.is_relative_to(workspace.resolve()) or Path(path).is_relative_to(workspace):
        return "the agent can change that program"
    return ExactCommand("=" + shlex.join([path, *args]), line.folder, str(resolved))


class CommandAllowlist:
    """The entries of one agent. `asks_always` returns whether the settings want every question."""

    def __init__(self, state: Path, agent_id: str, asks_always: Callable[[], bool]) -> None:
        self._state, self._agent_id, self._asks_always = state, agent_id, asks_always

    def contains(self, command: ExactCommand) -> bool:
        """Return whether a person has allowed exactly this command for good."""
        if self._asks_always():
            return False
        entries = allowed_entries(read_approvals(self._state), self._agent_id)
        return any(command.is_allowed_by(entry) for entry in entries)

    def refusal(self) -> str:
        """Return why no command can be allowed for good; "" when it can."""
        return "the settings say that every command is asked about" if self._asks_always() else ""

    def add(self, line: CommandLine, command: ExactCommand) -> None:
        """Save that this command needs no further approval. Raises OSError."""
        entry: dict[str, Json] = {
            "pattern": command.pattern,
            "cwd": command.folder,
            "lastUsedCommand": line.command,
            "lastResolvedPath": command.resolved,
        }
        add_allowed(self._state, self._agent_id, entry)
