"""Change `openclaw.json` on disk: edit, check, back up, and replace atomically.

The change is applied to the file's own text, not to the resolved settings, so that `${NAME}`,
includes and comments are preserved. If anything fails, the old file remains.
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
from homarus.config.config_files import hash_text, read_text
from homarus.config.json5_document import KeyPath, Value, parse_json5, to_plain
from homarus.config.known_keys import join_path
from homarus.config.load import ConfigExamination, examine_config
from homarus.config.paths import Paths
from homarus.config.redaction import restore_redacted
from homarus.config.rewrite import RewriteResult, rewrite, serialize
from homarus.config.tree_edit import differing_paths, format_path, get_path, json_equal
from homarus.core.atomic_file import sync_folder, write_synced
from homarus.core.errors import ConfigError, ConflictError, DiskFullError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_lock import try_lock
from homarus.core.private_files import make_private_dir

BACKUPS = 5
_LOCK_WAIT_S = 5.0
_RELOAD = "read the config again and repeat the change"


@dataclass(frozen=True, slots=True)
class ConfigWrite:
    """The result of a write; without changes, there is no new file and no backup."""

    file: Path
    hash: str
    changed: tuple[str, ...]
    kept_layout: bool
    unbuilt: tuple[str, ...]  # groups of changed settings that have no effect yet


def write_config(
    paths: Paths,
    env: Mapping[str, str],
    change: Callable[[dict[str, Value]], Value],
    *,
    if_hash: str | None = None,
    at_ms: int | None = None,
    check: Callable[[str], None] = lambda _text: None,
) -> ConfigWrite:
    """Apply `change` to the file's own tree; with `if_hash`, only if the text has this hash.

    `check` is called with the new text before it is written, and may raise. Raises ConfigError
    for invalid changes, ConflictError if the file was changed meanwhile, and StoreError.
    """
    target = Path(os.path.realpath(paths.config))  # a linked config stays a link
    with _locked(target):
        text = read_text(paths.config)
        old_hash = hash_text(text or "")
        if if_hash is not None and if_hash != old_hash:
            raise ConflictError(f"{paths.config} was changed meanwhile", fix=_RELOAD)
        own = _own_tree(paths, text)
        new = restore_redacted(change(own), own)
        if not isinstance(new, dict):
            raise ConfigError("the config must be one object", file=str(paths.config))
        changed = differing_paths(own, new)
        if not changed:
            return ConfigWrite(target, old_hash, (), kept_layout=True, unbuilt=())
        rewritten = _rewritten(text, _with_meta(new, at_ms))
        examined = examine_config(paths, env, rewritten.text, need_variables=False)
        _check_not_overridden(paths, examined, new, changed)
        _check_new_errors(paths, env, text, examined)
        check(rewritten.text)
        _replace(target, rewritten.text, text)
    return ConfigWrite(
        file=target,
        hash=hash_text(rewritten.text),
        changed=tuple(format_path(path) for path in changed),
        kept_layout=rewritten.kept_layout,
        unbuilt=tuple(group for group in examined.unbuilt if _touches(group, changed)),
    )


def _own_tree(paths: Paths, text: str | None) -> dict[str, Value]:
    own = to_plain(parse_json5("{}" if text is None else text, str(paths.config)))
    if not isinstance(own, dict):
        raise ConfigError("the file must be one object", file=str(paths.config), line=1)
    return own


def _rewritten(text: str | None, tree: Value) -> RewriteResult:
    return RewriteResult(serialize(tree), kept_layout=True) if text is None else rewrite(text, tree)


def _with_meta(tree: dict[str, Value], at_ms: int | None) -> dict[str, Value]:
    if not isinstance(tree.get("meta", {}), dict):
        return tree
    at = datetime.fromtimestamp((at_ms or time.time_ns() // 1_000_000) / 1000, UTC)
    at_text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    stamp = {"lastTouchedVersion": __version__, "lastTouchedAt": at_text}
    return {**tree, "meta": {**tree.get("meta", {}), **stamp}}


def _check_new_errors(
    paths: Paths, env: Mapping[str, str], old: str | None, examined: ConfigExamination
) -> None:
    """Raise ConfigError for an error that the old text did not have."""
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
