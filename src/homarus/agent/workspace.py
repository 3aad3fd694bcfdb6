"""An agent's workspace: a folder of markdown that people and the agent both edit.

Seeding makes what is missing and never touches what is there. BOOTSTRAP.md, the first-run
ritual, is only ever put into a workspace that had none of the files before. A conversation makes
a workspace that is not there yet; one that somebody lives in it leaves alone, whatever it lacks.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

from homarus.agent.prompt.files import read_text, unusable
from homarus.agent.prompt.injection import CHECKLIST, MEMORY, RITUAL
from homarus.config.paths import Paths
from homarus.core.message import Json
from homarus.core.silence import SILENT_WORD, is_blank_checklist
from homarus.core.value import dataclass

SEEDED: Final = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", CHECKLIST)
BOOT: Final = "BOOT.md"
STATE: Final = Path(".openclaw") / "workspace-state.json"
IGNORED = "# What the agent keeps for itself\n.openclaw/\n.env\n*.pem\n*.key\n"
_MAX_BOOT_CHARS = 8_000
_MAX_STATE_BYTES = 100_000
_REMOTE = re.compile(r"^\s*\[remote ", re.MULTILINE)


def seed(workspace: Path, *, ritual: bool = True) -> tuple[str, ...]:
    """Make the folder and its template files; returns the names of what was made."""
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        brand_new = not is_lived_in(workspace)
        wanted = [*SEEDED, RITUAL] if brand_new and ritual else list(SEEDED)
        made = [name for name in wanted if _put(workspace / name, _template(name))]
        if _put(workspace / ".gitignore", IGNORED):
            made.append(".gitignore")
        if brand_new:
            _put(workspace / STATE, _written({"version": 1, "bootstrapSeededAt": _now()}))
    except OSError as exc:
        raise unusable(workspace, exc) from exc
    if not (workspace / ".git").exists() and _git_init(workspace):
        made.append(".git")
    return tuple(made)


def ensure(workspace: Path, *, templates: bool = True) -> None:
    """Have a folder to work in: a new one is seeded, one that is lived in stays as it is.

    Without `templates` (`skipBootstrap`), the folder alone is made.
    """
    if not templates:
        try:
            workspace.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise unusable(workspace, exc) from exc
    elif is_lived_in(workspace):
        note_ritual(workspace)
    else:
        seed(workspace)


def is_lived_in(workspace: Path) -> bool:
    """Whether the files of an agent, or traces of them, are there."""
    marks = (*SEEDED, RITUAL, *MEMORY, STATE)
    return any(_stands(workspace / name) for name in marks)


def _stands(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def note_ritual(workspace: Path) -> None:
    """Once the ritual's file is gone or empty, the workspace's state says since when."""
    if _stands(workspace / RITUAL) and read_text(workspace, RITUAL)[0]:
        return
    state = read_state(workspace)
    if not state.get("bootstrapSeededAt") or state.get("onboardingCompletedAt"):
        return
    done = {**state, "onboardingCompletedAt": _now()}
    target = workspace / STATE
    fresh = target.with_name(f"{target.name}.new")
    with suppress(OSError):  # a fact that can be noted another time
        fresh.write_text(_written(done), encoding="utf-8")
        fresh.replace(target)


def read_state(workspace: Path) -> Mapping[str, Json]:
    """What is known about the workspace itself; nothing when that cannot be read."""
    try:
        with (workspace / STATE).open("rb") as file:
            state = json.loads(file.read(_MAX_STATE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


# --- when the gateway starts -------------------------------------------------------------------


def boot_prompt(workspace: Path) -> str:
    """What an agent is asked when the gateway starts; nothing when it has no such list."""
    if not _stands(workspace / BOOT):
        return ""
    text, _ = read_text(workspace, BOOT)
    if is_blank_checklist(text):
        return ""
    if len(text) > _MAX_BOOT_CHARS:
        text = f"{text[:_MAX_BOOT_CHARS]}\n[… the rest of {BOOT} is left out: keep it short …]"
    return (
        f"The gateway has just started. Do what {BOOT} asks, once and in order. Nobody reads your "
        f"answer: use the message tool for what somebody should know, then answer {SILENT_WORD}."
        f"\n\n{BOOT}:\n{text}"
    )


# --- when an agent is deleted --------------------------------------------------------------------


def trash_agent_folders(paths: Paths, agent: str, at_ms: int, *folders: Path) -> Path | None:
    """Move an agent's folders to the trash; return the trash folder, None when nothing was moved.

    Only folders inside the state directory are moved: others belong to the user.
    """
    state = paths.state.resolve()
    trash = state / "trash" / f"{agent}-{at_ms}"
    for folder in folders:
        if folder.is_symlink() or not folder.resolve().is_relative_to(state) or not folder.is_dir():
            continue
        trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):
            shutil.move(folder, trash / folder.name)
    return trash if trash.is_dir() else None


# --- advice ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advice:
    """Something about the workspaces that is worth a thought, and what to do."""

    text: str
    fix: str


def advise(used: Iterable[Path], home: Path, state: Path) -> tuple[Advice, ...]:
    """Workspaces that nobody uses any more, and those in use that nothing backs up."""
    in_use = list(dict.fromkeys(used))
    return (*_extra(in_use, home, state), *(_backup(folder) for folder in in_use if _alone(folder)))


def _extra(used: list[Path], home: Path, state: Path) -> list[Advice]:
    """Folders that look like workspaces and belong to no agent."""
    real = {path.resolve() for path in used}
    with suppress(OSError):
        beside = sorted(path for path in state.iterdir() if path.name.startswith("workspace"))
        spare = [home / "openclaw", home / "clawd", *beside]
        found = [path for path in spare if path.is_dir() and path.resolve() not in real]
        return [
            Advice(
                f"{path} looks like a workspace, and no agent uses it",
                "move it away, or name it in agents.list or agents.defaults.workspace",
            )
            for path in found
            if is_lived_in(path) and not _is_of_a_profile(path, home)
        ]
    return []


def _is_of_a_profile(path: Path, home: Path) -> bool:
    """Another profile's workspace stands beside ours; that profile has a folder of its own."""
    mark, _, name = path.name.partition("-")
    return bool(mark and name) and (home / f".openclaw-{name}").is_dir()


def _alone(workspace: Path) -> bool:
    """Whether a workspace exists on this disk only, as far as git knows."""
    if not is_lived_in(workspace):
        return False
    try:
        config = (workspace / ".git" / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return not _REMOTE.search(config)


def _backup(workspace: Path) -> Advice:
    return Advice(
        f"{workspace} is kept nowhere else",
        "commit it and push it to a private repository: it is your agent's memory",
    )


# --- on disk -----------------------------------------------------------------------------------


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


def _written(state: Mapping[str, Json]) -> str:
    return json.dumps(state, indent=2) + "\n"


def _now() -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return now.replace("+00:00", "Z")


def _git_init(workspace: Path) -> bool:
    """A repository, so that every change can be seen and undone; without git, none."""
    git = shutil.which("git")
    if git is None:
        return False
    # Templates and hooks of the machine's git set-up are not ours to run.
    command = [git, "init", "--quiet", "--template=", "--initial-branch=main", str(workspace)]
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 - fixed argv
    return done.returncode == 0
