"""Load `openclaw.json` and `homarus.json`: text → JSON5 → includes → variables → checked Config.

Every error is a ConfigError that names the file, the line, the key and the fix. A missing file is
an empty config.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from homarus.config.config_files import (
    ConfigFile,
    ConfigFiles,
    ConfigTexts,
    parse_object,
    read_config_files,
    read_config_texts,
    read_text,
)
from homarus.config.json5_document import Value
from homarus.config.legacy_keys import (
    KEYS_VERSION,
    is_newer_config,
    is_unknown_version,
    newer_version,
)
from homarus.config.own_config import overlay_own
from homarus.config.paths import Paths, shorten
from homarus.config.variables import (
    config_variables,
    missing_variable_error,
    missing_variables,
    read_env_file,
    substitute,
)
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from homarus.config.check import ConfigCheck
    from homarus.config.known_keys import KeyProblem
    from homarus.config.schema import Config


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A valid config, and what it was loaded from."""

    config: "Config"
    raw: dict[str, Value] = field(repr=False)  # both files, `${…}` not substituted
    source: str = field(repr=False)
    hash: str
    exists: bool
    has_own: bool = False  # whether `homarus.json` exists
    warnings: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # with `.env` and the config's


@dataclass(frozen=True, slots=True)
class ConfigExamination:
    """The result of examining a config text, with all of its errors."""

    raw: dict[str, Value] = field(repr=False)
    shared: dict[str, Value] = field(repr=False)  # `raw` without the values of `homarus.json`
    texts: ConfigTexts = field(repr=False)
    exists: bool
    config: "Config | None"
    errors: tuple[ConfigError, ...]
    warnings: tuple[str, ...]
    unbuilt: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


def load_config(paths: Paths, env: Mapping[str, str]) -> LoadedConfig:
    """Load the config. Raises ConfigError for the first error."""
    return load_text(paths, env, read_config_texts(paths))


def load_text(paths: Paths, env: Mapping[str, str], text: str | ConfigTexts | None) -> LoadedConfig:
    """Load a text as the config; see examine_config. Raises ConfigError."""
    examined = examine_config(paths, env, text)
    if examined.errors or examined.config is None:
        raise _first(examined.errors)
    return LoadedConfig(
        config=examined.config,
        raw=examined.raw,
        source=examined.texts.shared or "",
        hash=examined.texts.hash,
        exists=examined.exists,
        has_own=examined.texts.own is not None,
        warnings=examined.warnings,
        env=examined.env,
    )


def examine_config(
    paths: Paths,
    env: Mapping[str, str],
    text: str | ConfigTexts | None,
    *,
    need_variables: bool = True,
) -> ConfigExamination:
    """Examine a text as `openclaw.json`, or texts as both files; None is a missing file.

    With one text, `homarus.json` is read from disk.
    With `need_variables` False an unset variable is no error: the process that edits the file may
    lack the secrets of the process that uses it.
    """
    texts = text if isinstance(text, ConfigTexts) else _with_own_text(paths, text)
    sources = _gather(paths, texts)
    foreign = _check_own(sources) if sources.own else []
    env, warnings = resolve_env(paths, env, sources.tree)
    used = sources.shared if foreign else sources.tree
    if sources.is_newer:
        from homarus.config.newer_config import translate

        used, refused = translate(used)
        foreign += refused
    unset = list(missing_variables(used, env)) if need_variables else []
    checked = _check(substitute(used, env), is_newer=sources.is_newer)
    errors = [
        sources.error(path, (e := missing_variable_error(path, name)).reason, e.fix)
        for path, name in unset
    ]
    unset_paths = {path for path, _ in unset}
    newer = newer_version(sources.tree)
    errors += [
        sources.error(
            _as_written(problem.path, sources.tree),
            problem.message,
            _fix(problem, newer) if newer else problem.fix,
        )
        for problem in (*foreign, *checked.problems)
        if problem.path not in unset_paths
    ]
    if newer and is_unknown_version(sources.tree):
        warnings += (_describe_newer(newer),)
    if checked.unbuilt:
        from homarus.config.ignored_settings import describe_ignored

        groups = ", ".join(map(describe_ignored, checked.unbuilt))
        warnings += (f"settings that are known but not built yet have no effect: {groups}",)
    return ConfigExamination(
        raw=sources.tree,
        shared=sources.shared,
        texts=texts,
        exists=texts.shared is not None,
        config=checked.config,
        errors=tuple(errors),
        warnings=warnings,
        unbuilt=checked.unbuilt,
        env=env,
    )


def _check(tree: dict[str, Value], *, is_newer: bool) -> "ConfigCheck":
    """Check a tree; of a config of OpenClaw 2026.9, unknown keys may have no effect."""
    from homarus.config.check import ConfigCheck, check_config  # imports pydantic

    checked = check_config(tree)
    if not is_newer or not checked.problems:
        return checked
    from homarus.config.newer_config import format_ignored, split_unknown, without_paths

    _, ignored = split_unknown(checked.problems, tree)
    again = check_config(without_paths(tree, [problem.path for problem in ignored]))
    problems, _ = split_unknown(again.problems, tree)
    unbuilt = sorted({*again.unbuilt, *map(format_ignored, ignored)})
    return ConfigCheck(again.config, tuple(problems), tuple(unbuilt))


def read_raw(paths: Paths) -> dict[str, Value]:
    """Return the tree with includes resolved, without substituting variables or checking it."""
    return _gather(paths, read_config_texts(paths)).tree


def resolve_env(
    paths: Paths, env: Mapping[str, str], tree: Mapping[str, Value]
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the environment extended by `.env` and the config, and warnings."""
    file = paths.state / ".env"
    listed, bad = read_env_file(read_text(file) or "")
    warnings = tuple(f"{shorten(file, paths.home)}:{line}: not NAME=value, skipped" for line in bad)
    env = {**listed, **env}
    return {**config_variables(tree, env), **env}, warnings


def _check_own(sources: ConfigFiles) -> "list[KeyProblem]":
    from homarus.config.own_keys import check_own_tree  # most homes have no `homarus.json`

    return list(check_own_tree(sources.own_tree))


def _with_own_text(paths: Paths, text: str | None) -> ConfigTexts:
    return ConfigTexts(text, read_text(paths.own_config))


def _gather(paths: Paths, texts: ConfigTexts) -> ConfigFiles:
    sources = read_config_files(paths.config, "{}" if texts.shared is None else texts.shared)
    if is_newer := is_newer_config(sources.tree):
        from homarus.config.newer_config import to_known_keys

        tree = to_known_keys(sources.tree)
        sources = ConfigFiles(tree, sources.files, shared=tree, is_newer=True)
    if texts.own is None:
        return sources
    root, own = parse_object(paths.own_config, texts.own)
    file = ConfigFile(paths.own_config, texts.own, root)
    merged = overlay_own(sources.tree, own)
    return ConfigFiles(merged, sources.files, file, sources.tree, is_newer)


def _as_written(path: tuple[str | int, ...], tree: Mapping[str, Value]) -> tuple[str | int, ...]:
    """Convert a path in `agents.defaults` back to the legacy `agent`, if the file has that."""
    if path[:2] != ("agents", "defaults") or not isinstance(tree.get("agent"), dict):
        return path
    newer = tree.get("agents", {})
    defaults = newer.get("defaults", {}) if isinstance(newer, dict) else {}
    return path if path[2:3] and path[2] in defaults else ("agent", *path[2:])


def _describe_newer(version: str) -> str:
    return (
        f"this config was last written by OpenClaw {version}, which is newer than {KEYS_VERSION}, "
        "whose settings are known"
    )


def _fix(problem: "KeyProblem", newer: str) -> str:
    """Return the fix of a problem in the config of a newer OpenClaw."""
    if problem.message != "unknown key":
        return problem.fix
    fix = f"if it is a setting of a later version, remove it: {_describe_newer(newer)}"
    return f"{problem.fix} {fix}" if problem.fix else fix


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
