"""An agent's workspace: a folder of markdown that people and the agent both edit.

Seeding makes what is missing and never touches what is there. BOOTSTRAP.md, the first-run
ritual, is only ever put into a workspace that had none of the files before.
"""

import json
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from stat import S_ISLNK, S_ISREG

from homarus.core.errors import ToolError, UserError
from homarus.core.text import clip_middle, one_line
from homarus.core.value import dataclass
from homarus.tools.guard import Beneath

# The order in which files enter the prompt; a file not on disk is left out.
INJECTED = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "BOOTSTRAP.md")
SEEDED = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md")
RITUAL = "BOOTSTRAP.md"
MEMORY = ("MEMORY.md", "memory.md")  # one of them, whichever is there
# What clients may see and change from afar.
SHARED = (*SEEDED, RITUAL, *MEMORY)
MAX_BYTES = 4_000_000  # more of one file is never read into a prompt
STATE = Path(".openclaw") / "workspace-state.json"
IGNORED = "# What the agent keeps for itself\n.openclaw/\n.env\n*.pem\n*.key\n"


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A file of the workspace as the prompt shows it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class FileState:
    """A file of the workspace as it is on disk. `updated_ms` 0: it is not there."""

    name: str
    path: Path
    size: int = 0
    updated_ms: int = 0
    content: str = ""

    @property
    def missing(self) -> bool:
        return not self.updated_ms


def list_files(workspace: Path) -> tuple[FileState, ...]:
    """The files a client may see, without what is in them."""
    found = [_look(workspace, name) for name in SHARED]
    memory = [file for file in found if file.name in MEMORY]
    kept = next((file for file in memory if not file.missing), memory[0])
    return tuple(file for file in found if file.name not in MEMORY or file is kept)


def get_file(workspace: Path, name: str) -> FileState:
    """One of them, with its text."""
    file = _look(workspace, _shared(name))
    return file if file.missing else replace(file, content=_read(workspace, name))


def set_file(workspace: Path, name: str, content: str) -> FileState:
    """Replace one of them, whole or not at all."""
    data = content.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        raise UserError(f"{name}: {len(data)} bytes; a file here holds at most {MAX_BYTES}")
    try:
        Beneath(workspace).write_atomic(_shared(name), data)
    except ToolError as exc:
        raise UserError(exc.message, fix=exc.fix) from None
    return get_file(workspace, name)


def _shared(name: str) -> str:
    if name not in SHARED:
        raise UserError(f"unsupported file {one_line(name)!r}", fix=f"one of {', '.join(SHARED)}")
    return name


def _look(workspace: Path, name: str) -> FileState:
    """A file as it is; a link that leads out is as good as none."""
    try:
        status = Beneath(workspace).stat(name)
    except ToolError:
        return FileState(name, workspace / name)
    if not S_ISREG(status.st_mode):
        return FileState(name, workspace / name)
    return FileState(name, workspace / name, status.st_size, status.st_mtime_ns // 1_000_000)


def seed(workspace: Path, *, ritual: bool = True) -> tuple[str, ...]:
    """Make the folder and its template files; returns the names of what was made."""
    try:
        workspace.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise unusable(workspace, exc) from exc
    brand_new = not any((workspace / name).exists() for name in (*SEEDED, RITUAL, STATE))
    wanted = [*SEEDED, RITUAL] if brand_new and ritual else list(SEEDED)
    try:
        made = [name for name in wanted if _put(workspace / name, _template(name))]
        if _put(workspace / ".gitignore", IGNORED):
            made.append(".gitignore")
        if brand_new:
            _put(workspace / STATE, _state())
    except OSError as exc:
        raise unusable(workspace, exc) from exc
    if not (workspace / ".git").exists() and _git_init(workspace):
        made.append(".git")
    return tuple(made)


class Reader:
    """Reads the files for the prompt, again only when they changed."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[tuple[int, ...], str]] = {}

    def load(self, workspace: Path, max_chars: int, total_chars: int) -> tuple[WorkspaceFile, ...]:
        """The files, each and together cut to their budgets; blank ones left out."""
        if not workspace.is_dir():
            raise unusable(workspace, None)
        found: list[WorkspaceFile] = []
        left = total_chars
        for name in INJECTED:
            text = self._text(workspace, name)
            if text and left > 0:
                text = clip_middle(text, min(max_chars, left))
                found.append(WorkspaceFile(name, text))
                left -= len(text)
        return tuple(found)

    def _text(self, workspace: Path, name: str) -> str:
        path = workspace / name
        try:
            status = path.lstat()
        except OSError:
            return ""
        stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        kept = self._read.get(path)
        # What a link leads to can change without the link: it is read every time.
        if kept and kept[0] == stamp and not S_ISLNK(status.st_mode):
            return kept[1]
        text = _read(workspace, name).strip()
        self._read[path] = (stamp, text)
        return text


def unusable(workspace: Path, exc: OSError | None) -> UserError:
    """The workspace cannot be used: why, and what to do."""
    why = exc.strerror if exc else "there is no such folder"
    return UserError(
        f"cannot use the workspace {workspace}: {why}",
        fix="run `homarus setup`, or set agents.defaults.workspace to a folder you can write to",
    )


def _read(workspace: Path, name: str) -> str:
    """A file's text, or a line that says why it could not be read."""
    try:
        with Beneath(workspace).open_read(name) as opened:
            return opened.file.read(MAX_BYTES).decode(errors="replace")
    except (OSError, ToolError) as exc:
        return f"[{name} could not be read: {exc}]"


def _template(name: str) -> str:
    return (files("homarus.agent") / "templates" / name).read_text(encoding="utf-8")


def _put(path: Path, text: str) -> bool:
    """Write a new file; one that exists stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _state() -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"version": 1, "bootstrapSeededAt": now}, indent=2) + "\n"


def _git_init(workspace: Path) -> bool:
    """A repository, so that every change can be seen and undone; without git, none."""
    git = shutil.which("git")
    if git is None:
        return False
    # Templates and hooks of the machine's git set-up are not ours to run.
    command = [git, "init", "--quiet", "--template=", "--initial-branch=main", str(workspace)]
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 - fixed argv
    return done.returncode == 0
