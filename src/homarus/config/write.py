"""Change `openclaw.json` and `homarus.json` on disk: edit, check, back up, and replace atomically.

The change is applied to the files' own texts, not to the resolved settings, so that `${NAME}`,
includes and comments are preserved. Settings that OpenClaw does not know are written to
`homarus.json`. If anything fails, the old files remain.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from homarus import __version__
from homarus.config.change_log import log_change
from homarus.config.config_files import (
    ConfigTexts,
    parse_object,
    read_config_texts,
    read_text,
)
from homarus.config.json5_document import KeyPath, Value
from homarus.config.known_keys import join_path
from homarus.config.legacy_keys import is_newer_config, newer_version
from homarus.config.load import ConfigExamination, examine_config
from homarus.config.own_config import overlay_own
from homarus.config.own_keys import describe_openclaw_problems, find_openclaw_problems, split_own
from homarus.config.paths import Paths
from homarus.config.redaction import redact_tree, restore_redacted
from homarus.config.rewrite import rewrite, serialize
from homarus.config.tree_edit import differing_paths, format_path, get_path, json_equal
from homarus.core.atomic_file import sync_folder, write_synced
from homarus.core.errors import ConfigError, ConflictError, DiskFullError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_lock import try_lock
from homarus.core.private_files import make_private_dir
from homarus.core.text import one_line

BACKUPS = 5
_LOCK_WAIT_S = 5.0
_RELOAD = "read the config again and repeat the change"


@dataclass(frozen=True, slots=True)
class ConfigWrite:
    """The result of a write; without changes, there is no new file and no backup."""

    file: Path  # homarus.json if only that was changed, else openclaw.json
    hash: str
    changed: tuple[str, ...]
    kept_layout: bool
    unbuilt: tuple[str, ...]  # groups of changed settings that have no effect yet
    unreadable: tuple[str, ...] = ()  # what OpenClaw cannot read of the changed settings


def write_config(
    paths: Paths,
    env: Mapping[str, str],
    change: Callable[[dict[str, Value]], Value],
    *,
    if_hash: str | None = None,
    at_ms: int | None = None,
    check: Callable[[ConfigTexts], None] = lambda _texts: None,
    move_own: bool = False,
    dry_run: bool = False,
) -> ConfigWrite:
    """Apply `change` to the files' own tree; with `if_hash`, only if the texts have this hash.

    `check` is called with the new texts before they are written, and may raise. `move_own` moves
    settings of our own out of `openclaw.json`. With `dry_run`, nothing is written. Raises
    ConfigError for invalid changes, ConflictError if a file was changed meanwhile, and StoreError.
    """
    target = Path(os.path.realpath(paths.config))  # a linked config stays a link
    own_target = Path(os.path.realpath(paths.own_config))
    with _locked(target):
        texts = read_config_texts(paths)
        if if_hash is not None and if_hash != texts.hash:
            raise ConflictError(f"{paths.config} was changed meanwhile", fix=_RELOAD)
        shared, own, is_newer = _trees(paths, texts)
        merged = overlay_own(shared, own)
        new = restore_redacted(change(merged), merged)
        if not isinstance(new, dict):
            raise ConfigError("the config must be one object", file=str(paths.config))
        new = _to_known_keys(new)
        parts = split_own(new, shared, own, move=move_own)
        is_shared_changed = not json_equal(parts.shared, shared)
        is_own_changed = not json_equal(parts.own, own)
        if not is_shared_changed and not is_own_changed:
            return ConfigWrite(target, texts.hash, (), kept_layout=True, unbuilt=())
        rewritten = _rewrite_if(
            texts.shared,
            _to_newer_keys(parts.shared) if is_newer else _with_meta(parts.shared, at_ms),
            is_changed=is_shared_changed,
        )
        own_rewritten = _rewrite_if(texts.own, parts.own, is_changed=is_own_changed)
        written = ConfigTexts(rewritten.text, own_rewritten.text)
        changed = differing_paths(merged, new)
        examined = examine_config(paths, env, written, need_variables=False)
        _check_not_overridden(paths, examined, new, changed)
        _check_new_errors(paths, env, texts, examined)
        check(written)
        # In this order a setting that moves to homarus.json is in both files meanwhile.
        if is_own_changed and not dry_run:
            _replace(own_target, written.own or "", texts.own)
        if is_shared_changed and not dry_run:
            _replace(target, written.shared or "", texts.shared)
    if not dry_run:
        shown = [_format_change(path, merged, new) for path in changed]
        log_change(paths.state, "config", action="write", changed=shown, hash=written.hash)
    return ConfigWrite(
        file=target if is_shared_changed else own_target,
        hash=written.hash,
        changed=tuple(format_path(path) for path in changed),
        kept_layout=rewritten.kept_layout and own_rewritten.kept_layout,
        unbuilt=tuple(group for group in examined.unbuilt if _touches(group, changed)),
        unreadable=_unreadable(parts.shared, changed),
    )


def _format_change(path: KeyPath, old: Value, new: Value) -> str:
    """Describe a changed setting as `key: old → new`, without secrets."""
    before, after = (
        "unset" if value is None else one_line(serialize(redact_tree(value, path)))
        for value in (_at(old, path), _at(new, path))
    )
    return f"{format_path(path)}: {before} → {after}"


def undo_write(paths: Paths, before: ConfigTexts, written: ConfigTexts) -> None:
    """Restore the files before a write. Raises ConflictError if they were changed since."""
    for file, old, new in (
        (paths.config, before.shared, written.shared),
        (paths.own_config, before.own, written.own),
    ):
        target = Path(os.path.realpath(file))
        if old == new:
            continue
        if old is not None:
            _replace(target, old, new)
        elif read_text(target) == new:
            target.unlink()
            sync_folder(target.parent)
    log_change(paths.state, "config", action="undo", hash=before.hash)


def move_own_settings(paths: Paths, env: Mapping[str, str]) -> list[str]:
    """Move settings that OpenClaw does not know to `homarus.json`; returns their paths."""

    def find_unread() -> list[str]:
        shared, _, _ = _trees(paths, read_config_texts(paths))
        return [format_path(problem.path) for problem in find_openclaw_problems(shared)]

    before = find_unread()
    write_config(paths, env, lambda tree: tree, move_own=True)
    after = find_unread()
    return [path for path in before if path not in after]


def read_own_tree(paths: Paths) -> tuple[dict[str, Value], ConfigTexts]:
    """Return the tree that write_config changes, and the texts it is made of."""
    texts = read_config_texts(paths)
    shared, own, _ = _trees(paths, texts)
    return overlay_own(shared, own), texts


def _trees(paths: Paths, texts: ConfigTexts) -> tuple[dict[str, Value], dict[str, Value], bool]:
    """Return both files with known keys, and whether the first has those of OpenClaw 2026.9."""
    _, shared = parse_object(paths.config, texts.shared)
    _, own = parse_object(paths.own_config, texts.own)
    return _to_known_keys(shared), own, is_newer_config(shared)


def _to_known_keys(tree: dict[str, Value]) -> dict[str, Value]:
    if not is_newer_config(tree):
        return tree
    from homarus.config.newer_config import to_known_keys  # only for such a config

    return to_known_keys(tree)


def _to_newer_keys(tree: dict[str, Value]) -> dict[str, Value]:
    from homarus.config.newer_config import to_newer_keys

    return to_newer_keys(tree)


def _unreadable(shared: Mapping[str, Value], changed: Sequence[KeyPath]) -> tuple[str, ...]:
    """Describe what OpenClaw cannot read of the changed settings."""

    def is_changed(at: KeyPath) -> bool:
        return any(_is_within(at, path) or _is_within(path, at) for path in changed)

    return describe_openclaw_problems(shared, is_changed)


def _is_within(path: KeyPath, parent: KeyPath) -> bool:
    return path[: len(parent)] == parent


@dataclass(frozen=True, slots=True)
class _NewText:
    """The text of a file after a change; None is a file that does not exist."""

    text: str | None
    kept_layout: bool


def _rewrite_if(text: str | None, tree: Value, *, is_changed: bool) -> _NewText:
    if not is_changed:
        return _NewText(text, kept_layout=True)
    if text is None:
        return _NewText(serialize(tree), kept_layout=True)
    rewritten = rewrite(text, tree)
    return _NewText(rewritten.text, rewritten.kept_layout)


def _with_meta(tree: dict[str, Value], at_ms: int | None) -> dict[str, Value]:
    if not isinstance(tree.get("meta", {}), dict):
        return tree
    at = datetime.fromtimestamp((at_ms or time.time_ns() // 1_000_000) / 1000, UTC)
    at_text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    # The version of a newer OpenClaw stays: by it, its settings are recognised.
    stamp = {} if newer_version(tree) else {"lastTouchedVersion": __version__}
    return {**tree, "meta": {**tree.get("meta", {}), **stamp, "lastTouchedAt": at_text}}


def _check_new_errors(
    paths: Paths, env: Mapping[str, str], old: ConfigTexts, examined: ConfigExamination
) -> None:
    """Raise ConfigError for an error that the old texts did not have."""
    if not examined.errors:
        return
    before: set[tuple[str, str]] = set()
    with suppress(ConfigError):
        old_errors = examine_config(paths, env, old, need_variables=False).errors
        before = {(error.key, error.reason) for error in old_errors}
    for error in examined.errors:
        if (error.key, error.reason) not in before:
            raise ConfigError(error.reason, key=error.key, fix=error.fix)


def _check_not_overridden(
    paths: Paths, examined: ConfigExamination, new: Value, changed: Sequence[KeyPath]
) -> None:
    """Raise ConfigError for a change that an included file overrides."""
    for path in changed:
        if "$include" in path:
            continue
        wanted, actual = _at(new, path), _at(examined.raw, path)
        if _has_include(wanted) or json_equal(wanted, actual):
            continue
        raise ConfigError(
            "a file that the config includes sets this too",
            file=str(paths.config),
            key=format_path(path),
            fix="change it in that file",
        )


def _touches(group: str, changed: Sequence[KeyPath]) -> bool:
    """Return whether a changed path is inside a group, or contains it."""
    for path in changed:
        text = ""
        for step in path:
            text = join_path(text, step)
        if f"{text}.".startswith((f"{group}.", f"{group}[")) or f"{group}.".startswith(f"{text}."):
            return True
    return False


def _at(tree: Value, path: KeyPath) -> Value:
    try:
        return get_path(tree, path)
    except LookupError:
        return None


def _has_include(value: Value) -> bool:
    if isinstance(value, list):
        return any(map(_has_include, value))
    return isinstance(value, dict) and (
        "$include" in value or any(map(_has_include, value.values()))
    )


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Lock the file against other writers; a file that does not exist is not locked."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:  # nothing to lock; reading it reports the error
            yield
            return
        try:
            # Without locks on the file system, the comparison before the replacement still guards.
            if try_lock(descriptor, is_optional=True) and _is_current(target, descriptor):
                yield
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > deadline:
            raise ConflictError(f"another process keeps {target} locked", fix="try again")
        time.sleep(0.01)


def _is_current(target: Path, descriptor: int) -> bool:
    """Return whether the locked file still has its name, and was not replaced."""
    try:
        return os.path.samestat(target.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _replace(target: Path, text: str, old: str | None) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        make_private_dir(target.parent)
        write_synced(temporary, text.encode())
        if read_text(target) != old:
            raise ConflictError(f"{target} was changed meanwhile", fix=_RELOAD)
        if old is None:
            os.link(temporary, target)  # unlike a rename, it fails if the file exists
        else:
            _rotate(target)
            temporary.replace(target)
        sync_folder(target.parent)
    except FileExistsError:
        raise ConflictError(f"{target} was made meanwhile", fix=_RELOAD) from None
    except OSError as exc:
        raise _to_store_error(exc, target) from exc
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def backup_paths(config: Path) -> list[Path]:
    """Return the paths of the backups, from `.bak`, the newest, to `.bak.4`."""
    target = Path(os.path.realpath(config))
    return [target.with_name(f"{target.name}.bak{f'.{n}' if n else ''}") for n in range(BACKUPS)]


def _rotate(target: Path) -> None:
    names = backup_paths(target)
    for newer, older in reversed(list(pairwise(names))):
        with suppress(FileNotFoundError):
            newer.replace(older)
    try:
        os.link(target, names[0])
    except OSError:  # a file system without hard links
        write_synced(names[0], target.read_bytes())
    names[0].chmod(0o600)


def _to_store_error(exc: OSError, target: Path) -> StoreError:
    reason = exc.strerror or str(exc)
    if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFullError(f"{target} was not changed: {reason}", fix="make room and repeat")
    return StoreError(f"{target} was not changed: {reason}", fix="check who owns its directory")
