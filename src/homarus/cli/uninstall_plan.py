"""Find everything that this program made, for `homarus uninstall`.

A state directory may also be OpenClaw's, and a workspace may be a folder of the user: what is
removed is chosen by name, links are never followed, and everything else is left.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from homarus.agent.prompt.injection import MEMORY, RITUAL
from homarus.agent.workspace import IGNORED, SEEDED, STATE, is_populated, read_state
from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.config.config_files import read_text
from homarus.config.load import examine_config
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.store.state_paths import LOCK

# What only this program makes in a state directory.
_OWN: Final = (
    "state.sqlite*", LOCK, "gateway.json", "gateway.token", "gateway-hosts.json", "homarus.json*",
    "audit-pending.jsonl*", "audit-anchor.json",
    ".homarus.json.*.tmp", "openclaw.last-good.json", "chat-history.jsonl", "wizard.json",
    "homarus", "skill-actions.json", "internal-hooks.json", ".internal-hooks.lock",
)  # fmt: skip
_OWN_BELOW: Final = {
    "memory": ("*.homarus.*",),
    "logs": ("openclaw-????-??-??.log", "launchd.log"),
}
# What OpenClaw makes under the same names, and what may have another origin.
_COMMON: Final = (
    "openclaw.json*", ".openclaw.json.*.tmp", ".*.tmp", ".env", ".repair-*", "agents",
    "credentials", "devices", "exec-approvals.json", "gateway", "identity", "logs", "media",
    "memory", "restored", "tools", "trash",
)  # fmt: skip
# What only OpenClaw makes.
_OPENCLAW: Final = (
    "browser", "canvas", "clawdbot.json*", "cron", "delivery-queue", "exec-approvals.sock",
    "extensions", "hooks", "moldbot.json*", "moltbot.json*", "nodes", "restart-sentinel.json",
    "sandbox", "sandboxes", "settings", "skills", "state", "subagents", "update-check.json",
)  # fmt: skip
_COMPLETION_SCRIPTS: Final = (
    ".config/fish/completions/homarus.fish", ".zfunc/_homarus",
    ".local/share/bash-completion/completions/homarus",
)  # fmt: skip
_SHELL_FILES: Final = (".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile")
_STATE_NAMES: Final = (".openclaw", ".clawdbot", ".moldbot", ".moltbot")
_OPENCLAW_VERSION: Final = re.compile(r"""lastTouchedVersion["']?\s*:\s*["']20\d\d\.""")
_MAX_READ_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Removal:
    """Files, folders and links that are removed together, and folders that go if empty."""

    scope: str  # service, state, models, shell or workspace
    place: Path
    what: str
    paths: tuple[Path, ...]
    folders: tuple[Path, ...] = ()

    def measure(self) -> tuple[int, int]:
        """Return the number of files and their bytes; links count as files."""
        found = [one for path in self.paths for one in _files(path)]
        return len(found), sum(found)


@dataclass(frozen=True, slots=True)
class Kept:
    """A path that is left, and why."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class UninstallPlan:
    """What can be removed, and what is left in any case."""

    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...]
    is_shared: bool  # with OpenClaw, or with other files of the user


def make_plan(paths: Paths, env: Mapping[str, str], *, foreign: bool) -> UninstallPlan:
    """Return what is there. With `foreign`, what OpenClaw made in the directory is removed, too."""
    config = _read_config(paths, env)
    workspaces = _workspaces(config or Config(), paths)
    is_shared = is_openclaws(paths) or not _is_dedicated(paths)
    names: tuple[str, ...] = _OWN if is_shared else (*_OWN, *_COMMON)
    if foreign and _is_dedicated(paths):
        names = (*_OWN, *_COMMON, *_OPENCLAW)
    kept: list[Kept] = []
    removals = [
        *_state(paths, config or Config(), names, is_alone=names != _OWN),
        *_models(paths, kept),
        *_completion(paths, kept),
        *(_workspace(paths, folder, kept) for folder in workspaces),
        *_earlier_states(paths),
    ]
    kept += _unknown(paths, names, workspaces)
    if config is None:
        kept.append(Kept(paths.config, "it is wrong, so that its workspaces are not known"))
    found = tuple(one for one in removals if one.paths or _is_empty(one.place))
    return UninstallPlan(found, tuple(kept), is_shared)


def _read_config(paths: Paths, env: Mapping[str, str]) -> Config | None:
    try:
        return examine_config(paths, env, read_text(paths.config)).config
    except (HomarusError, OSError):
        return None


def is_openclaws(paths: Paths) -> bool:
    """Return whether OpenClaw has used the state directory."""
    names = _names(paths.state)
    if any(_matches(name, _OPENCLAW) for name in names):
        return True
    if (paths.state / "identity" / "device-auth.json").exists():
        return True
    indexes = [name for name in _names(paths.state / "memory") if name.endswith(".sqlite")]
    if any(not name.endswith(".homarus.sqlite") for name in indexes):
        return True
    configs = [paths.state / name for name in names if fnmatchcase(name, "openclaw.json*")]
    return any(_OPENCLAW_VERSION.search(_head(file)) for file in configs)


def _is_dedicated(paths: Paths) -> bool:
    """Return whether the state directory is for nothing else, so that folders in it are ours.

    One that `OPENCLAW_STATE_DIR` names may be a home or another folder with files of the user.
    """
    state = paths.state.resolve()
    if paths.home.resolve().is_relative_to(state):
        return False
    if paths.state.parent == paths.home and paths.state.name.startswith(_STATE_NAMES):
        return True
    known = (*_OWN, *_COMMON, *_OPENCLAW, "workspace*")
    return all(_matches(name, known) for name in _names(paths.state))


# The state directory


def _state(
    paths: Paths, config: Config, names: Iterable[str], *, is_alone: bool
) -> Iterator[Removal]:
    state = paths.state
    found = [state / name for name in _names(state) if _matches(name, names)]
    for folder, patterns in _OWN_BELOW.items():
        below = state / folder
        if below not in found and not below.is_symlink():
            found += [below / name for name in _names(below) if _matches(name, patterns)]
    found += list(_outside(paths, config, is_alone=is_alone))
    found.sort(key=lambda path: path.name == LOCK)  # it is held meanwhile, and goes last
    contents = "configuration, credentials, conversations and logs"
    what = contents if is_alone else "what is Homarus's own: its database, settings and logs"
    emptied = {path.parent for path in found if path.parent.parent == state}
    yield Removal("state", state, what, tuple(found), (*sorted(emptied), state))


def _outside(paths: Paths, config: Config, *, is_alone: bool) -> Iterator[Path]:
    """Yield the files that the environment or the config keeps elsewhere."""
    files = [paths.own_config]
    if is_alone:
        files.append(paths.config)
    for file in files:
        if not file.is_relative_to(paths.state):
            same = [name for name in _names(file.parent) if fnmatchcase(name, f"{file.name}.bak*")]
            yield from (
                path for path in (file, *(file.parent / name for name in same)) if _is_there(path)
            )
    for agent in agent_ids(config):
        folder = resolve_agent_settings(config, paths, agent).agent_dir
        profiles = folder / "auth-profiles.json"
        if is_alone and not folder.is_relative_to(paths.state) and _is_there(profiles):
            yield profiles
    if config.logging.file:
        log = Path(config.logging.file).expanduser().absolute()
        if not log.is_relative_to(paths.state) and '"logger": "homarus' in _head(log):
            yield log
    yield from _indexes(paths, config)


def _indexes(paths: Paths, config: Config) -> Iterator[Path]:
    """Yield the files of memory indexes that `memorySearch.store.path` puts elsewhere."""
    from homarus.memory.spec import resolve_memory_spec

    for agent in agent_ids(config):
        index = resolve_memory_spec(config, paths, {}, agent).database
        if not index.is_relative_to(paths.state):
            same = [name for name in _names(index.parent) if name.startswith(index.name)]
            yield from (index.parent / name for name in same)


def _unknown(paths: Paths, names: Iterable[str], workspaces: Iterable[Path]) -> Iterator[Kept]:
    """Yield what is in the state directory and is left."""
    places = [*workspaces, *paths.state.glob("workspace*")]
    for name in _names(paths.state):
        path = paths.state / name
        if _matches(name, names) or any(one.is_relative_to(path) for one in places):
            continue
        if name in _OWN_BELOW and all(_matches(one, _OWN_BELOW[name]) for one in _names(path)):
            continue
        if _matches(name, (*_COMMON, *_OPENCLAW)):
            yield Kept(path, "OpenClaw uses it" if is_openclaws(paths) else "it may be yours")
        else:
            yield Kept(path, "Homarus did not make it")
    if paths.state.is_symlink():
        yield Kept(paths.state, "it is a link, which Homarus did not make")


def _earlier_states(paths: Paths) -> Iterator[Removal]:
    """Yield what `backup restore` replaced, which contains workspaces."""
    for mark in (".before-restore-", ".restoring-"):
        for path in sorted(paths.state.parent.glob(f"{paths.state.name}{mark}*")):
            yield Removal("workspace", path, "what a restored backup replaced", (path,))


# Downloads


def _models(paths: Paths, kept: list[Kept]) -> Iterator[Removal]:
    folder = paths.models_cache.parent
    others = list(_other_profiles(paths))
    if not _is_there(folder):
        return
    if others:
        kept.append(Kept(folder, f"{others[0].name} uses these models, too"))
        return
    yield Removal("models", folder, "downloaded models", (folder,), (paths.cache,))


def _completion(paths: Paths, kept: list[Kept]) -> Iterator[Removal]:
    """Yield the scripts that `homarus completion` was written to; lines of other files are left."""
    if list(_other_profiles(paths)):
        return
    for name in _COMPLETION_SCRIPTS:
        if "homarus" in _head(paths.home / name):
            yield Removal("shell", paths.home / name, "a completion script", (paths.home / name,))
    files = [paths.home / name for name in _SHELL_FILES]
    why = "delete the line with `homarus completion` in it"
    kept += [Kept(file, why) for file in files if "homarus completion" in _head(file)]


def _other_profiles(paths: Paths) -> Iterator[Path]:
    """Yield other state directories of this program in the home."""
    for name in _names(paths.home):
        folder = paths.home / name
        is_state = name == ".openclaw" or name.startswith(".openclaw-")
        if is_state and folder != paths.state and (folder / "state.sqlite").exists():
            yield folder


def describe_profiles(paths: Paths) -> list[Kept]:
    """Return the state directories of other profiles, and how to remove them."""
    found = []
    for folder in _other_profiles(paths):
        profile = folder.name.removeprefix(".openclaw").removeprefix("-")
        command = f"homarus --profile {profile} uninstall" if profile else "homarus uninstall"
        found.append(Kept(folder, f"another profile: {command}"))
    return found


# Workspaces


def _workspaces(config: Config, paths: Paths) -> list[Path]:
    folders = [
        resolve_agent_settings(config, paths, agent).workspace for agent in agent_ids(config)
    ]
    return list(dict.fromkeys(folder for folder in folders if _is_there(folder)))


def _workspace(paths: Paths, folder: Path, kept: list[Kept]) -> Removal:
    """Return what of a workspace can be removed: all of a default one, else the agent's files."""
    what = "the agent's files and notes"
    if folder.is_symlink():
        kept.append(Kept(folder, "it is a link, which Homarus did not make"))
        return Removal("workspace", folder, what, ())
    shared = paths.home / ".openclaw"
    is_default = folder.parent in {paths.state, shared} and folder.name.startswith("workspace")
    if is_default and _is_dedicated(paths) and is_populated(folder):
        parents = (shared,) if folder.parent == shared != paths.state else ()
        return Removal("workspace", folder, what, (folder,), (*parents, paths.state))
    if not read_state(folder).get("bootstrapSeededAt"):
        kept.append(Kept(folder, "its files were there before Homarus used it"))
        return Removal("workspace", folder, what, ())
    names = [*SEEDED, RITUAL, *MEMORY, "memory"]
    found = [folder / name for name in dict.fromkeys(names) if _is_there(folder / name)]
    # In a workspace that is the home, the folder of this file is the state directory.
    mark = folder / STATE
    if not mark.parent.is_symlink():
        found.append(mark)
    if _head(folder / ".gitignore") == IGNORED:
        found.append(folder / ".gitignore")
    if _is_empty_repository(folder / ".git"):
        found.append(folder / ".git")
    own = {path.relative_to(folder).parts[0] for path in found}
    others = [name for name in _names(folder) if name not in own]
    if others:
        why = (
            f"Homarus did not make all of it: {', '.join(others[:3])}{', …' if others[3:] else ''}"
        )
        kept.append(Kept(folder, why))
    emptied = (mark.parent, folder) if folder != paths.home else ()
    return Removal("workspace", folder, what, tuple(found), emptied)


def _is_empty_repository(git: Path) -> bool:
    """Return whether a repository has no commit, as the one that a workspace starts with."""
    if git.is_symlink() or not git.is_dir() or (git / "packed-refs").exists():
        return False
    return not any(names for _, _, names in os.walk(git / "refs"))


# Files


def remove_path(path: Path) -> str:
    """Remove a file, a link or a folder with all in it; return what went wrong, "" if nothing."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path)
    except OSError as exc:
        return f"{exc.strerror or exc}: {exc.filename or path}"
    return ""


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that are empty."""
    for folder in folders:
        with suppress(OSError):  # it is not empty, or a link
            folder.rmdir()


def _files(path: Path) -> Iterator[int]:
    """Yield the size of each file; links are not followed."""
    with suppress(OSError):
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            yield found.st_size
            return
    for parent, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                yield os.lstat(f"{parent}/{name}").st_size


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names
    except OSError:
        return []


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and not _names(folder)


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _head(file: Path) -> str:
    """Return the beginning of a regular file; "" when it cannot be read."""
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return opened.read(_MAX_READ_BYTES).decode("utf-8", "replace")
    return ""
