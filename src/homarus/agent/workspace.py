"""An agent's workspace: a folder of Markdown files that the user and the agent edit.

Seeding creates missing files and never changes existing ones. BOOTSTRAP.md, the first-run
instructions, is only added to a workspace that had none of the files. A session creates a
workspace that does not exist; a populated one is left as it is.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from homarus.agent.prompt.injection import CHECKLIST, MEMORY, RITUAL
from homarus.agent.prompt.workspace_files import read_text, unusable_workspace_error
from homarus.config.paths import Paths
from homarus.core.atomic_file import write_atomic
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.private_files import make_private_dir, open_private
from homarus.core.silent_reply import SILENT_WORD, is_blank_checklist

SEEDED: Final = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", CHECKLIST)
BOOT: Final = "BOOT.md"
STATE: Final = Path(".openclaw") / "workspace-state.json"
IGNORED = "# What the agent keeps for itself\n.openclaw/\n.env\n*.pem\n*.key\n"
_MAX_BOOT_CHARS = 8_000
_MAX_STATE_BYTES = 100_000
_REMOTE = re.compile(r"^\s*\[remote ", re.MULTILINE)


def seed_workspace(workspace: Path, *, ritual: bool = True) -> tuple[str, ...]:
    """Create the folder and its template files; return the names of what was created."""
    try:
        make_private_dir(workspace)
        brand_new = not is_populated(workspace)
        wanted = [*SEEDED, RITUAL] if brand_new and ritual else list(SEEDED)
        created = [name for name in wanted if _create_file(workspace / name, _template(name))]
        if _create_file(workspace / ".gitignore", IGNORED):
            created.append(".gitignore")
        if brand_new:
            _create_file(
                workspace / STATE, _format_state({"version": 1, "bootstrapSeededAt": _now()})
            )
    except OSError as exc:
        raise unusable_workspace_error(workspace, exc) from exc
    if not (workspace / ".git").exists() and _git_init(workspace):
        created.append(".git")
    return tuple(created)


def ensure_workspace(workspace: Path, *, templates: bool = True) -> None:
    """Create and seed a workspace that is not populated.

    Without `templates` (`skipBootstrap`), only the folder is created.
    """
    if not templates:
        try:
            make_private_dir(workspace)
        except OSError as exc:
            raise unusable_workspace_error(workspace, exc) from exc
    elif is_populated(workspace):
        record_bootstrap_done(workspace)
    else:
        seed_workspace(workspace)


def is_populated(workspace: Path) -> bool:
    """Return whether the folder has any of an agent's files or its state file."""
    names = (*SEEDED, RITUAL, *MEMORY, STATE)
    return any(_exists(workspace / name) for name in names)


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def record_bootstrap_done(workspace: Path) -> None:
    """Record when the first run was completed, once BOOTSTRAP.md is gone or empty."""
    if _exists(workspace / RITUAL) and read_text(workspace, RITUAL)[0]:
        return
    state = read_state(workspace)
    if not state.get("bootstrapSeededAt") or state.get("onboardingCompletedAt"):
        return
    updated = {**state, "onboardingCompletedAt": _now()}
    target = workspace / STATE
    with suppress(OSError):  # it can be recorded at the next start
        write_atomic(target, _format_state(updated).encode())


def read_state(workspace: Path) -> Mapping[str, Json]:
    """Return the workspace's state file; empty when it cannot be read."""
    try:
        with (workspace / STATE).open("rb") as file:
            state = json.loads(file.read(_MAX_STATE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


# --- when the gateway starts -------------------------------------------------------------------


def boot_prompt(workspace: Path) -> str:
    """Return the prompt for the start of the gateway; "" when BOOT.md is missing or blank."""
    if not _exists(workspace / BOOT):
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
        make_private_dir(trash)
        with suppress(OSError):
            shutil.move(folder, trash / folder.name)
    return trash if trash.is_dir() else None


# --- advice ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice about a workspace, and what to do."""

    text: str
    fix: str
    is_warning: bool = False


def workspace_advice(used: Iterable[Path], home: Path, state: Path) -> tuple[Advice, ...]:
    """Return advice about workspaces that no agent uses, and those without a backup."""
    in_use = list(dict.fromkeys(used))
    return (
        *_unused_advice(in_use, home, state),
        *(_backup_advice(folder) for folder in in_use if _has_no_remote(folder)),
    )


def _unused_advice(used: list[Path], home: Path, state: Path) -> list[Advice]:
    """Return advice about folders that look like workspaces and belong to no agent."""
    real = {path.resolve() for path in used}
    with suppress(OSError):
        siblings = sorted(path for path in state.iterdir() if path.name.startswith("workspace"))
        candidates = [home / "openclaw", home / "clawd", *siblings]
        found = [path for path in candidates if path.is_dir() and path.resolve() not in real]
        return [
            Advice(
                f"{path} looks like a workspace, and no agent uses it",
                "move it away, or name it in agents.list or agents.defaults.workspace",
                is_warning=True,
            )
            for path in found
            if is_populated(path) and not _belongs_to_profile(path, home)
        ]
    return []


def _belongs_to_profile(path: Path, home: Path) -> bool:
    """Whether a workspace belongs to another profile, which has a state folder of its own."""
    mark, _, name = path.name.partition("-")
    return bool(mark and name) and (home / f".openclaw-{name}").is_dir()


def _has_no_remote(workspace: Path) -> bool:
    """Whether a workspace has no git remote."""
    if not is_populated(workspace):
        return False
    try:
        config = (workspace / ".git" / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return not _REMOTE.search(config)


def _backup_advice(workspace: Path) -> Advice:
    return Advice(
        f"{workspace} is kept nowhere else",
        "commit it and push it to a private repository: it is your agent's memory",
    )


# --- on disk -----------------------------------------------------------------------------------


def _template(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _create_file(path: Path, text: str) -> bool:
    """Write a new file; return False when it exists."""
    make_private_dir(path.parent)
    try:
        with open_private(path, "x") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _format_state(state: Mapping[str, Json]) -> str:
    return json.dumps(state, indent=2) + "\n"


def _now() -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return now.replace("+00:00", "Z")


def _git_init(workspace: Path) -> bool:
    """Create a git repository, so that changes can be reviewed; False without git."""
    git = shutil.which("git")
    if git is None:
        return False
    # Do not run templates and hooks of the machine's git configuration.
    command = [git, "init", "--quiet", "--template=", "--initial-branch=main", str(workspace)]
    updated = subprocess.run(  # noqa: S603 - fixed argv
        command, check=False, capture_output=True, umask=0o077
    )
    return updated.returncode == 0
