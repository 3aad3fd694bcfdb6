"""`openclaw.json`, from bytes to a checked Config.

Text → JSON5 → includes → variables → check. Every mistake is a ConfigError that says the file,
the line, the key and the fix. A missing file is an empty config.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from homarus.config.document import Value
from homarus.config.paths import Paths, shorten
from homarus.config.source import Sources, gather, hash_text, read_text
from homarus.config.variables import (
    config_variables,
    missing,
    missing_variables,
    read_env_file,
    substitute,
)
from homarus.core.errors import ConfigError
from homarus.core.value import dataclass

if TYPE_CHECKING:
    from homarus.config.schema import Config


@dataclass(frozen=True, slots=True)
class Loaded:
    """A config that can be used, and what it was made from."""

    config: "Config"
    raw: dict[str, Value] = field(repr=False)  # includes resolved, `${…}` as written
    source: str = field(repr=False)
    hash: str
    exists: bool
    warnings: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # the process's, completed


@dataclass(frozen=True, slots=True)
class Examined:
    """All that is wrong with a config, rather than the first thing."""

    raw: dict[str, Value] = field(repr=False)
    source: str = field(repr=False)
    exists: bool
    config: "Config | None"
    errors: tuple[ConfigError, ...]
    warnings: tuple[str, ...]
    unbuilt: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


def load(paths: Paths, env: Mapping[str, str]) -> Loaded:
    """Read the config; the first mistake is raised."""
    return load_text(paths, env, read_text(paths.config))


def load_text(paths: Paths, env: Mapping[str, str], text: str | None) -> Loaded:
    """The same of a text, as if it were the config; None is a missing file."""
    examined = examine(paths, env, text)
    if examined.errors or examined.config is None:
        raise _first(examined.errors)
    return Loaded(
        config=examined.config,
        raw=examined.raw,
        source=examined.source,
        hash=hash_text(examined.source),
        exists=examined.exists,
        warnings=examined.warnings,
        env=examined.env,
    )


def examine(
    paths: Paths, env: Mapping[str, str], text: str | None, *, need_variables: bool = True
) -> Examined:
    """Look at a text as if it were the config; None is a missing file.

    With `need_variables` False an unset variable is no mistake: someone who edits the file need
    not have the secrets of the process that runs by it.
    """
    from homarus.config.check import check  # pydantic: not for those who only read raw settings

    sources = _gather(paths, text)
    env, warnings = complete_env(paths, env, sources.tree)
    absent = list(missing_variables(sources.tree, env)) if need_variables else []
    checked = check(substitute(sources.tree, env))
    broken = [
        sources.error(path, (e := missing(path, name)).reason, e.fix) for path, name in absent
    ]
    blank = {path for path, _ in absent}
    broken += [
        sources.error(_as_written(problem.path, sources.tree), problem.message, problem.fix)
        for problem in checked.problems
        if problem.path not in blank
    ]
    if checked.unbuilt:
        groups = ", ".join(checked.unbuilt)
        warnings += (f"settings that are known but not built yet have no effect: {groups}",)
    return Examined(
        raw=sources.tree,
        source=text or "",
        exists=text is not None,
        config=checked.config,
        errors=tuple(broken),
        warnings=warnings,
        unbuilt=checked.unbuilt,
        env=env,
    )


def read_raw(paths: Paths) -> dict[str, Value]:
    """The settings as written, includes resolved, neither filled in nor checked."""
    return _gather(paths, read_text(paths.config)).tree


def complete_env(
    paths: Paths, env: Mapping[str, str], tree: Mapping[str, Value]
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The environment with what it lacks from `.env` and from the config, and warnings."""
    file = paths.state / ".env"
    listed, bad = read_env_file(read_text(file) or "")
    warnings = tuple(f"{shorten(file, paths.home)}:{line}: not NAME=value, skipped" for line in bad)
    env = {**listed, **env}
    return {**config_variables(tree, env), **env}, warnings


def _gather(paths: Paths, text: str | None) -> Sources:
    return gather(paths.config, "{}" if text is None else text)


def _as_written(path: tuple[str | int, ...], tree: Mapping[str, Value]) -> tuple[str | int, ...]:
    """Back from `agents.defaults` to `agent`, where the file says that."""
    if path[:2] != ("agents", "defaults") or not isinstance(tree.get("agent"), dict):
        return path
    newer = tree.get("agents", {})
    defaults = newer.get("defaults", {}) if isinstance(newer, dict) else {}
    return path if path[2:3] and path[2] in defaults else ("agent", *path[2:])


def _first(errors: tuple[ConfigError, ...]) -> ConfigError:
    first = errors[0]
    if len(errors) == 1:
        return first
    more = f"{len(errors) - 1} more: homarus config validate"
    return ConfigError(
        first.reason,
        file=first.file,
        line=first.line,
        key=first.key,
        fix="; ".join(part for part in (first.fix, more) if part),
    )
