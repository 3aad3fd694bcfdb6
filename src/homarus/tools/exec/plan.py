"""The plan of a command: what is evaluated, shown, approved and then executed, exactly.

A command that the grammar understands becomes argument lists of programs that were found, opened
and hashed; they are executed without a shell. Any other command has no chain and is executed
verbatim with `sh -c`, after approval of exactly that text.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from homarus.core.errors import ToolDeniedError
from homarus.core.fast_dataclass import dataclass
from homarus.tools.exec.executable import (
    Executable,
    HashedFile,
    cached_hash,
    find_program,
    find_script,
    hash_file,
    is_beneath,
    is_trusted_dir,
    open_file,
    program_name,
    real_path,
)
from homarus.tools.exec.git import GIT_ENV, hardened_git_words
from homarus.tools.exec.grammar import ChainOperator, NotUnderstood, Words, parse_command
from homarus.tools.exec.wrappers import find_inner, unwrap_shell

if TYPE_CHECKING:
    from homarus.tools.sandbox.base import SandboxLaunch


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program and its arguments.

    `argv` is what is executed, `words` what was written: they differ where git is hardened.
    `inner` is the command that a program like `timeout` runs, found and hashed in the same way.
    """

    argv: tuple[str, ...]
    words: tuple[str, ...]
    executable: Executable
    inner: "SimpleCommand | None" = None

    @property
    def files(self) -> tuple[HashedFile, ...]:
        """The files that decide what runs."""
        return self.executable.files + (self.inner.files if self.inner else ())


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands of which each reads the output of the one before."""

    commands: tuple[SimpleCommand, ...]


Chain: TypeAlias = tuple[tuple[ChainOperator, Pipeline], ...]


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """The folder that a command runs in: its path, an open descriptor of it, and its inode."""

    path: str
    fd: int
    inode: int


@dataclass(frozen=True, slots=True)
class ExecPlan:
    """Exactly what would run.

    `chain` is None when the command is not understood (`reason` says why): then `command` is run
    verbatim by a shell. `env` is the complete environment, `requested_env` what the model sets of
    it. `digest` is over everything that decides what runs, and is the same for an equal plan after
    a restart. `launch` starts the command in a sandbox; then there is no chain. `close` closes the
    descriptors.
    """

    command: str
    chain: Chain | None
    reason: str
    folder: PlanFolder
    workspace: str
    env: Mapping[str, str]
    requested_env: Mapping[str, str]
    stdin: str
    timeout_s: float
    pty: bool
    background: bool
    digest: str
    launch: "SandboxLaunch | None" = None

    def commands(self) -> Iterator[SimpleCommand]:
        """Yield the simple commands in order; none when the command is not understood."""
        for _, pipeline in self.chain or ():
            yield from pipeline.commands

    def close(self) -> None:
        """Close the folder, the files and what belongs to the launch."""
        if self.launch:
            self.launch.close()
        for command in self.commands():
            for each in command.files:
                with suppress(OSError):
                    os.close(each.fd)
        with suppress(OSError):
            os.close(self.folder.fd)


async def make_plan(
    command: str,
    *,
    folder: str,
    folder_fd: int,
    workspace: Path,
    env: Mapping[str, str],
    requested_env: Mapping[str, str],
    timeout_s: float,
    stdin: str = "",
    pty: bool = False,
    background: bool = False,
) -> ExecPlan:
    """Parse the command, find, open and hash its programs, and return the plan.

    `env` is the complete environment. The descriptor of the folder is duplicated: the plan has its
    own, which its `close` closes.
    """
    root = real_path(str(workspace))
    parsed = parse_command(command)
    chain: Chain | None = None
    reason = parsed.reason if isinstance(parsed, NotUnderstood) else ""
    own_fd = os.dup(folder_fd)
    try:
        place = PlanFolder(folder, own_fd, os.fstat(own_fd).st_ino)
        if not isinstance(parsed, NotUnderstood):
            finder = _ProgramFinder(place, root, env.get("PATH", ""))
            try:
                chain = await finder.find_all(unwrap_shell(parsed))
            except ToolDeniedError as exc:
                finder.close()
                reason = str(exc)
            except BaseException:
                finder.close()
                raise
    except BaseException:
        os.close(own_fd)
        raise
    complete = dict(env)
    if any(_runs_git(each) for each in _commands(chain)):
        complete |= GIT_ENV
    given = (complete, dict(requested_env), stdin, timeout_s, pty, background)
    digest = _digest(chain, place, command, *given)
    return ExecPlan(command, chain, reason, place, root, *given, digest)


def _commands(chain: Chain | None) -> Iterator[SimpleCommand]:
    for _, pipeline in chain or ():
        yield from pipeline.commands


def _runs_git(command: SimpleCommand) -> bool:
    inner = command.inner or command
    return inner.argv != inner.words or (inner is not command and _runs_git(inner))


class _ProgramFinder:
    """Finds the programs of a chain; `close` closes what it opened."""

    def __init__(self, folder: PlanFolder, workspace: str, path: str) -> None:
        self._folder, self._workspace, self._path = folder, workspace, path
        self._fds: list[int] = []

    async def find_all(
        self, parsed: "tuple[tuple[ChainOperator, tuple[Words, ...]], ...]"
    ) -> Chain:
        """Return the chain. Raises ToolDeniedError with the reason when a program is not found."""
        chain: list[tuple[ChainOperator, Pipeline]] = []
        for operator, pipeline in parsed:
            commands = [await self._command(words) for words in pipeline]
            chain.append((operator, Pipeline(tuple(commands))))
        return tuple(chain)

    def close(self) -> None:
        for fd in self._fds:
            with suppress(OSError):
                os.close(fd)

    async def _command(self, words: Words) -> SimpleCommand:
        name = words[0]
        path = find_program(name, self._folder.path, self._path)
        if path is None:
            raise ToolDeniedError(f"there is no program {name}")
        real = real_path(path)
        file = await self._hash(real, None)
        names = frozenset(program_name(each) for each in (path, real))
        script_path = find_script(names, words[1:])
        script = None
        if script_path is not None:
            with suppress(OSError, ValueError, ToolDeniedError):
                script = await self._hash(script_path, self._folder.fd)
        in_workspace = any(is_beneath(each, self._workspace) for each in (path, real))
        folder = path.rpartition("/")[0] or "/"
        looked_up = "/" not in name and is_trusted_dir(folder, self._workspace)
        executable = Executable(
            name, path, file, looked_up and not in_workspace, in_workspace, script
        )
        argv = hardened_git_words(words) if "git" in names else words
        start = find_inner(name, words[1:])
        if start is None:
            return SimpleCommand(argv, words, executable)
        inner = await self._command(words[start + 1 :])
        argv = (*words[: start + 1], inner.executable.path, *inner.argv[1:])
        return SimpleCommand(argv, words, executable, inner)

    async def _hash(self, path: str, dir_fd: int | None) -> HashedFile:
        try:
            fd = open_file(path, dir_fd=dir_fd)
            self._fds.append(fd)
            if (found := cached_hash(fd)) is None:
                found = await asyncio.to_thread(hash_file, fd)
            key, known = found
        except OSError as exc:
            raise ToolDeniedError(f"{path} cannot be read: {exc.strerror or exc}") from exc
        if dir_fd is not None and not path.startswith("/"):
            path = f"{self._folder.path}/{path}"
        return HashedFile(path, fd, key, *known)


def _digest(chain: Chain | None, folder: PlanFolder, *given: object) -> str:
    commands = [
        [
            operator,
            [
                [each.argv, [(file.path, file.sha256) for file in each.files]]
                for each in pipeline.commands
            ],
        ]
        for operator, pipeline in chain or ()
    ]
    values = [commands, chain is None, folder.path, folder.inode, *given]
    data = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(data.encode()).hexdigest()
