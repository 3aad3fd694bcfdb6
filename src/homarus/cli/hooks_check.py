"""The checks of `homarus doctor` about internal hooks."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from homarus.config.load import ConfigExamination, LoadedConfig
from homarus.config.paths import Paths, shorten
from homarus.core.text import closest_names, one_line

# What it is about, the state, the text and the fix, as of a finding of doctor.
HookFinding: TypeAlias = tuple[str, Literal["ok", "note"], str, str]
_EXPECTED = frozenset({"not enabled", "not runnable", "missing", "suspended"})


def check_internal_hooks(paths: Paths, examined: ConfigExamination) -> Iterator[HookFinding]:
    """Yield the hooks that do not run although the config switches hooks on, and unknown names."""
    config = examined.config
    if config is None:
        return
    settings = config.hooks.internal
    if not settings.enabled:
        if settings.handlers or any(entry.enabled for entry in settings.entries.values()):
            text = "hooks are set, and hooks.internal.enabled is not true: they do not run"
            yield "hooks", "note", text, "homarus config set hooks.internal.enabled true"
        return
    from homarus.agent.internal_hooks.catalog import HookCatalog

    loaded = LoadedConfig(config, examined.raw, "", "", exists=examined.exists, env=examined.env)
    found = HookCatalog(lambda: loaded, paths).load()
    count = 0
    for problem in found.problems:
        count += 1
        text = f"{shorten(problem.path, paths.home)}: {problem.message}"
        yield "hooks", "note", one_line(text, 300), problem.fix
    for status in found.hooks:
        if status.state in _EXPECTED:
            count += 1
            first = status.reasons[0]
            yield "hooks", "note", f"{status.hook.name} does not run: {first.message}", first.fix
    known = {name for each in found.hooks for name in (each.hook.name, each.hook.key)}
    for key in settings.entries:
        if key not in known:
            count += 1
            near = closest_names(key, sorted(known))
            fix = f"did you mean {' or '.join(near)}?" if near else "homarus hooks list"
            text = f"hooks.internal.entries: there is no hook {one_line(key, 60)}"
            yield "hooks", "note", text, fix
    if not count:
        ready = sum(each.is_ready for each in found.hooks)
        yield "hooks", "ok", f"{ready} hooks run", ""
