"""Whether a hook runs: its state, and every reason why it does not, each with what helps."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from homarus.agent.internal_hooks.enabled_hooks import EnabledHooks
from homarus.agent.internal_hooks.hook import EVENTS, HookTier, InternalHook
from homarus.agent.internal_hooks.hook_files import (
    HookFileError,
    HookFiles,
    check_handler,
    load_hook_files,
)
from homarus.config.internal_hooks_schema import InternalHookEntryConfig, InternalHooksConfig
from homarus.config.tree_edit import format_path
from homarus.core.fast_dataclass import dataclass
from homarus.skills.requirements import Requirements, describe_unmet, find_unmet

HookState: TypeAlias = Literal[
    "ready", "disabled", "missing", "not enabled", "not runnable", "suspended"
]
BOOT_HOOK: Final = "boot-md"
NO_ENTRY: Final = InternalHookEntryConfig.model_construct()


@dataclass(frozen=True, slots=True)
class HookReason:
    """One reason why a hook does not run, and what would change that."""

    state: HookState
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class HookFacts:
    """What hooks are checked against: programs, the environment, the config and the enabled files.

    `is_writable` says whether the agent's tools may write to a folder.
    """

    has_bin: Callable[[str], bool]
    env: Mapping[str, str]
    config_tree: Mapping[str, Any]
    platform: str
    settings: InternalHooksConfig
    enabled: EnabledHooks
    is_writable: Callable[[InternalHook], bool]

    def entry(self, hook: InternalHook) -> InternalHookEntryConfig:
        """Return the settings of a hook; empty ones if the config has none."""
        return self.settings.entries.get(hook.key) or NO_ENTRY


@dataclass(frozen=True, slots=True)
class HookStatus:
    """A hook and whether it runs. `files` are those that were checked, None for a bundled one."""

    hook: InternalHook
    entry: InternalHookEntryConfig
    reasons: tuple[HookReason, ...] = ()
    missing: Requirements = Requirements()
    files: HookFiles | None = None
    overrides: tuple[HookTier, ...] = ()

    @property
    def is_ready(self) -> bool:
        return not self.reasons

    @property
    def state(self) -> HookState:
        """Whether it runs, or the first reason why not, in a word."""
        return self.reasons[0].state if self.reasons else "ready"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of a hook that runs all the same."""
        known = ", ".join(f"{kind}:{action}" for kind in EVENTS for action in EVENTS[kind])
        return tuple(
            f"the event {event} does not exist (there are {known})"
            for event in self.hook.unknown_events
        )


def check_hook(hook: InternalHook, facts: HookFacts) -> HookStatus:
    """Return the status of a hook. Its files are read; nothing of it is run."""
    entry = facts.entry(hook)
    reasons = [*_check_settings(hook, entry, facts.settings)]
    files: HookFiles | None = None
    if hook.tier is not HookTier.BUNDLED:
        try:
            files = _load_runnable(hook)
        except HookFileError as exc:
            reasons.append(HookReason("not runnable", exc.message, exc.fix))
    if files is not None:
        reasons += _check_enabled(hook, files, entry, facts)
    if len(hook.unknown_events) == len(hook.events):
        message = f"none of its events exists: {', '.join(hook.events)}"
        fix = f"name types or actions of {', '.join(EVENTS)}"
        reasons.append(HookReason("not runnable", message, fix))
    missing = find_unmet(
        hook.requires,
        hook.metadata.os,
        facts,
        lambda name: bool(facts.env.get(name) or entry.env.get(name)),
        is_always=bool(hook.metadata.always),
    )
    unmet = describe_unmet(missing, _INSTALL_FIX, lambda name: _variable_fix(hook, name))
    reasons += [HookReason("missing", each.message, each.fix) for each in unmet]
    return HookStatus(hook, entry, tuple(reasons), missing, files)


_INSTALL_FIX: Final = "install it, or add its folder to the PATH"
_RUN_FIX: Final = "write a handler.py with `def handle(event):` next to it"


def _check_settings(
    hook: InternalHook, entry: InternalHookEntryConfig, settings: InternalHooksConfig
) -> list[HookReason]:
    is_boot = hook.tier is HookTier.BUNDLED and hook.name == BOOT_HOOK
    if not (settings.enabled or (is_boot and settings.enabled is None)):
        message = "internal hooks are off: hooks.internal.enabled is not true"
        return [HookReason("disabled", message, f"homarus hooks enable {hook.name}")]
    if entry.enabled is False:
        message = "it is switched off in the config"
        return [HookReason("disabled", message, f"homarus hooks enable {hook.name}")]
    return []


def _load_runnable(hook: InternalHook) -> HookFiles:
    """Return the files of a hook that can be run. Raises HookFileError."""
    if not hook.handler.is_file():
        if hook.scripts:
            message = f"{hook.scripts[0]} is for Node.js, which is not started"
            raise HookFileError(message, _RUN_FIX)
        raise HookFileError("it has no handler.py", _RUN_FIX)
    files = load_hook_files(hook)
    check_handler(files.source, hook.export)
    return files


def _check_enabled(
    hook: InternalHook, files: HookFiles, entry: InternalHookEntryConfig, facts: HookFacts
) -> list[HookReason]:
    fix = f"read its files, then: homarus hooks enable {hook.name}"
    if hook.tier is HookTier.CONFIG and facts.is_writable(hook):
        message = "its file is in a folder that the agent may write"
        return [HookReason("not runnable", message, "move it into the folder hooks of the state")]
    reasons: list[HookReason] = []
    if facts.is_writable(hook):
        digest = facts.enabled.find_digest(hook.identity)
        if entry.enabled is not True or not digest:
            message = "the agent may write its files: it runs only after you enabled it"
            reasons.append(HookReason("not enabled", message, fix))
        elif digest != files.digest:
            message = "its files have changed since you enabled it"
            reasons.append(HookReason("not enabled", message, fix))
    suspended = facts.enabled.find_suspended(hook.identity)
    if suspended and suspended.digest == files.digest:
        again = f"correct it, then: homarus hooks enable {hook.name}"
        reasons.append(HookReason("suspended", suspended.reason, again))
    return reasons


def _variable_fix(hook: InternalHook, name: str) -> str:
    path = format_path(("hooks", "internal", "entries", hook.key, "env", name))
    return f"homarus config set {path} VALUE, or set the variable"
