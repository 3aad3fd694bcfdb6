"""Find the internal hooks in their folders, and decide which hook of a name is used.

The workspace is that of the default agent, as in OpenClaw. A hook that runs only after its owner
enabled it (its folder can be written by the agent) replaces no other hook before that.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from homarus.agent.internal_hooks.enabled_hooks import EnabledHooks
from homarus.agent.internal_hooks.hook import (
    DEFAULT_EXPORT,
    HOOK_FILE,
    HookTier,
    InternalHook,
    make_hook,
)
from homarus.agent.internal_hooks.hook_status import HookFacts, HookStatus, check_hook
from homarus.config.agent_settings import agent_ids, default_agent_id, resolve_agent_settings
from homarus.config.internal_hooks_schema import InternalHookHandlerConfig
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths, expand
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.skills.folder_search import FolderSearch, SearchKind, load_frontmatter
from homarus.skills.frontmatter import FrontmatterError
from homarus.skills.requirements import make_bin_lookup

BUNDLED_FOLDER: Final = Path(__file__).parent / "bundled"
HOOKS_FOLDER: Final = "hooks"  # of a workspace and of the state directory
MAX_HOOKS: Final = 64
_MAX_FOLDERS: Final = 300
_MAX_FILE_BYTES: Final = 256_000
_HOOKS: Final = SearchKind(
    noun="hook",
    file_name=HOOK_FILE,
    extra_dirs_key="hooks.internal.load.extraDirs",
    max_folders_fix="remove folders",
    levels=3,  # a package of OpenClaw has its hooks in a folder of its own
)
# Folders of the state directory that the agent's tools, or people in chats, may write to.
_SHARED_FOLDERS: Final = ("workspace", "media", "sandboxes", "canvas", "agents")


@dataclass(frozen=True, slots=True)
class HookProblem:
    """A file or folder that is not used as a hook: why, and what helps."""

    tier: HookTier
    path: Path
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class FoundHooks:
    """The hooks by name, and what is not used.

    `waiting` are those that replace a hook of the same name once they are enabled.
    """

    workspace: Path
    managed: Path
    hooks: tuple[HookStatus, ...]
    problems: tuple[HookProblem, ...]
    waiting: tuple[HookStatus, ...] = ()

    def find(self, name: str) -> HookStatus | None:
        """Return the hook with a name or a key."""
        named = (each for each in self.hooks if each.hook.name == name)
        keyed = (each for each in self.hooks if each.hook.key == name)
        return next(named, None) or next(keyed, None)


class HookCatalog:
    """Loads the hooks of this machine; `load` reads every file."""

    def __init__(
        self,
        get_loaded: Callable[[], LoadedConfig],
        paths: Paths,
        bundled: Path = BUNDLED_FOLDER,
    ) -> None:
        self.get_loaded, self._paths, self._bundled = get_loaded, paths, bundled
        self.enabled = EnabledHooks(paths.state)

    @property
    def managed(self) -> Path:
        """The folder of the hooks that are installed for all agents."""
        return self._paths.state / HOOKS_FOLDER

    def load(self) -> FoundHooks:
        """Return all hooks with their status."""
        loaded = self.get_loaded()
        workspaces = self._workspaces()
        own = workspaces[0]
        facts = HookFacts(
            has_bin=make_bin_lookup(loaded.env),
            env=loaded.env,
            config_tree=loaded.raw,
            platform=sys.platform,
            settings=loaded.config.hooks.internal,
            enabled=self.enabled,
            is_writable=lambda hook: self._is_writable(hook, workspaces),
        )
        problems: list[HookProblem] = []
        by_name, waiting = dict[str, HookStatus](), list[HookStatus]()
        for hook in [*self._read_folders(own, problems), *self._read_handlers(problems)]:
            status = check_hook(hook, facts)
            before = by_name.get(hook.name)
            if before is not None and status.state == "not enabled":
                message = f"the {before.hook.tier.value} hook of the same name is used"
                problems.append(HookProblem(hook.tier, hook.folder, message, status.reasons[0].fix))
                waiting.append(status)
                continue
            if before is not None:
                lower = (*before.overrides, before.hook.tier)
                status = replace(status, overrides=lower)
            by_name[hook.name] = status
        problems += _find_other_workspaces(workspaces)
        found = [by_name[name] for name in sorted(by_name)]
        if len(found) > MAX_HOOKS:
            message = f"there are more than {MAX_HOOKS} hooks: the rest is not used"
            problems.append(HookProblem(HookTier.MANAGED, self.managed, message, "remove some"))
        used = tuple(found[:MAX_HOOKS])
        return FoundHooks(own, self.managed, used, tuple(problems), tuple(waiting))

    def roots(self, workspace: Path) -> Iterator[tuple[HookTier, Path]]:
        """Yield the folders in which hooks are looked for, the lowest tier first."""
        for folder in self.get_loaded().config.hooks.internal.load.extra_dirs:
            yield HookTier.EXTRA, expand(folder.strip(), self._paths.home)
        yield HookTier.BUNDLED, self._bundled
        yield HookTier.MANAGED, self.managed
        yield HookTier.WORKSPACE, workspace / HOOKS_FOLDER

    def _workspaces(self) -> list[Path]:
        """Return the workspaces of all agents, that of the default agent first."""
        config = self.get_loaded().config
        first = default_agent_id(config)
        ids = [first, *(each for each in agent_ids(config) if each != first)]
        return [resolve_agent_settings(config, self._paths, each).workspace for each in ids]

    def _read_folders(self, workspace: Path, problems: list[HookProblem]) -> Iterator[InternalHook]:
        for tier, folder in self.roots(workspace):
            search = FolderSearch(
                _HOOKS,
                folder,
                _MAX_FOLDERS,
                lambda *problem, tier=tier: problems.append(HookProblem(tier, *problem)),
                must_exist=tier is HookTier.EXTRA,
            )
            for file in search.files():
                path = Path(file.path)
                try:
                    yield make_hook(load_frontmatter(file, _MAX_FILE_BYTES), tier, path)
                except FrontmatterError as exc:
                    fix = "correct the file, or remove its folder"
                    problems.append(HookProblem(tier, path, str(exc), fix))
                except OSError as exc:
                    message = f"it cannot be read: {one_line(str(exc), 120)}"
                    problems.append(HookProblem(tier, path, message))

    def _read_handlers(self, problems: list[HookProblem]) -> Iterator[InternalHook]:
        """Yield the handlers that the config names: Python files of the state directory."""
        for at, entry in enumerate(self.get_loaded().config.hooks.internal.handlers):
            hook = self._make_handler(at, entry)
            if isinstance(hook, HookProblem):
                problems.append(hook)
            else:
                yield hook

    def _make_handler(
        self, at: int, entry: InternalHookHandlerConfig
    ) -> InternalHook | HookProblem:
        name = f"handlers[{at}]"
        state = Path(os.path.realpath(self._paths.state))
        module = entry.module.strip()
        is_absolute = module.startswith(("/", "~"))
        named = expand(module, self._paths.home) if is_absolute else state / module
        path = Path(os.path.realpath(named))
        fix = f"put a Python file into {self.managed}, or remove hooks.internal.{name}"
        if path.suffix != ".py":
            message = f"hooks.internal.{name}: the module is not a Python file"
            return HookProblem(HookTier.CONFIG, path, message, fix)
        if not path.is_relative_to(state):
            message = f"hooks.internal.{name}: the module is outside of the state directory"
            return HookProblem(HookTier.CONFIG, path, message, fix)
        export = entry.export if entry.export not in {None, "default"} else DEFAULT_EXPORT
        return InternalHook(
            name=name,
            description=f"{entry.module} of the config",
            key=name,
            tier=HookTier.CONFIG,
            folder=path.parent,
            file=path,
            handler=path,
            events=(entry.event.strip(),),
            export=export or DEFAULT_EXPORT,
        )

    def _is_writable(self, hook: InternalHook, workspaces: Sequence[Path]) -> bool:
        """Return whether the agent's tools may reach the files of a hook.

        File tools do not reach the state directory, except for the workspaces in it.
        """
        if hook.tier is HookTier.BUNDLED:
            return False
        state = Path(os.path.realpath(self._paths.state))
        path = Path(os.path.realpath(hook.handler))
        if not path.is_relative_to(state):
            return True
        first = path.relative_to(state).parts[0]
        if first.startswith(_SHARED_FOLDERS):
            return True
        real = (Path(os.path.realpath(each)) for each in workspaces)
        return any(path.is_relative_to(each) for each in real)


def _find_other_workspaces(workspaces: Sequence[Path]) -> Iterator[HookProblem]:
    """Yield the folders with hooks of agents other than the default one: they are not used."""
    for workspace in workspaces[1:]:
        folder = workspace / HOOKS_FOLDER
        if workspace != workspaces[0] and any(folder.glob(f"*/{HOOK_FILE}")):
            message = "only the hooks of the default agent's workspace are used"
            yield HookProblem(HookTier.WORKSPACE, folder, message, "move them to that workspace")
