"""Secrets in settings: hidden when a section is shown, put back when it is written again."""

import json
import re

from homarus.config.document import KeyPath, Value
from homarus.config.edit import show_path
from homarus.core.errors import UserError

REDACTED = "__OPENCLAW_REDACTED__"  # the word clients know

_NAMES = re.compile(
    r"(token|password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|service[_-]?account"
    r"|credentials?|authorization|cookie)$",
    re.IGNORECASE,
)
# Maps whose names are the user's own: every value in them may be a secret.
_MAPS = {"env", "vars", "headers"}
_REFERENCE = re.compile(r"\$\{[A-Z_][A-Z0-9_]*\}")
_URL_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@", re.IGNORECASE)


def is_secret(path: KeyPath, value: Value) -> bool:
    """Whether a setting should not be shown by the way. `${NAME}` tells nothing, and stays."""
    if not isinstance(value, str) or not value or _REFERENCE.fullmatch(value):
        return False
    keys = [step for step in path if isinstance(step, str)]
    return (
        any(_NAMES.search(key) for key in keys)
        or any(key in _MAPS for key in keys[:-1])
        or _URL_WITH_PASSWORD.search(value) is not None
    )


def redact(tree: Value, path: KeyPath = ()) -> Value:
    """The tree with its secrets replaced by a placeholder."""
    if isinstance(tree, dict):
        return {key: redact(value, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [redact(value, (*path, at)) for at, value in enumerate(tree)]
    return REDACTED if is_secret(path, tree) else tree


def restore_redacted(new: Value, old: Value, path: KeyPath = ()) -> Value:
    """The new tree with each placeholder replaced by what stands there in the old one."""
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        return {
            key: restore_redacted(value, before.get(key), (*path, key))
            for key, value in new.items()
        }
    if isinstance(new, list):
        entries = _entries(new, old if isinstance(old, list) else [], path)
        return [restore_redacted(value, entries[at], (*path, at)) for at, value in enumerate(new)]
    if new != REDACTED:
        return new
    if not isinstance(old, str):
        raise UserError(
            f"{show_path(path)}: {REDACTED} only stands for a value that is hidden",
            fix="give the value itself",
        )
    return old


def _entries(new: list[Value], old: list[Value], path: KeyPath) -> list[Value]:
    """The old entry that each new one was; None when nobody can tell.

    It is known by its looks while as many look like it as before, else by its id, else by its
    place while none came or went.
    """
    were, known = _by_look(redact(old, path)), dict[int, int]()
    for look, places in _by_look(new).items():
        if len(were.get(look, ())) == len(places):
            known.update(zip(places, were[look], strict=True))
    ids = {item["id"]: at for at, item in reversed([*enumerate(old)]) if _has_id(item)}
    spare = set(range(len(old))) - set(known.values()) if len(new) == len(old) else set[int]()
    for at, item in enumerate(new):
        place = ids.get(item["id"]) if _has_id(item) else at if at in spare else None
        if at not in known and place is not None:
            known[at] = place
    return [old[known[at]] if at in known else None for at in range(len(new))]


def _by_look(entries: list[Value]) -> dict[str, list[int]]:
    """The places of entries that look the same."""
    found: dict[str, list[int]] = {}
    for at, entry in enumerate(entries):
        found.setdefault(json.dumps(entry, sort_keys=True), []).append(at)
    return found


def _has_id(entry: Value) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("id"), str)
