"""Redact secrets in config trees for display, and restore them when a tree is written back."""

import json
import re

from homarus.config.json5_document import KeyPath, Value
from homarus.config.tree_edit import format_path
from homarus.core.errors import UserError

REDACTED = "__OPENCLAW_REDACTED__"  # the placeholder that clients know

_NAMES = re.compile(
    r"(token|password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|service[_-]?account"
    r"|credentials?|authorization|cookie)$",
    re.IGNORECASE,
)
# Maps with keys of the user's choice: every value in them may be a secret.
_MAPS = {"env", "vars", "headers"}
_REFERENCE = re.compile(r"\$\{[A-Z_][A-Z0-9_]*\}")
_URL_WITH_SECRET = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[^/@\s]*:[^/@\s]+@"
    r"|\S*[?&#;][a-z0-9_.-]*(?:token|key|secret|password|passwd|sig|signature|auth)=[^&\s])",
    re.IGNORECASE,
)


def is_secret(path: KeyPath, value: Value) -> bool:
    """Return whether a value must be redacted; `${NAME}` is not a secret."""
    if not isinstance(value, str) or not value or _REFERENCE.fullmatch(value):
        return False
    keys = [step for step in path if isinstance(step, str)]
    return (
        any(_NAMES.search(key) for key in keys)
        or any(key in _MAPS for key in keys[:-1])
        or _URL_WITH_SECRET.search(value) is not None
    )


def redact_tree(tree: Value, path: KeyPath = ()) -> Value:
    """Return the tree with its secrets replaced by the placeholder."""
    if isinstance(tree, dict):
        return {key: redact_tree(value, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [redact_tree(value, (*path, at)) for at, value in enumerate(tree)]
    return REDACTED if is_secret(path, tree) else tree


def restore_redacted(new: Value, old: Value, path: KeyPath = ()) -> Value:
    """Return the new tree with each placeholder replaced by the value of the old tree.

    Raises UserError for a placeholder without an old value.
    """
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
            f"{format_path(path)}: {REDACTED} only stands for a value that is hidden",
            fix="give the value itself",
        )
    return old


def _entries(new: list[Value], old: list[Value], path: KeyPath) -> list[Value]:
    """Return for each new list entry the old entry that it corresponds to, or None.

    An entry is matched by its redacted text, if as many entries have that text as before; else by
    its id; else by its index, if the list has the same length as before.
    """
    old_indexes, matched = _indexes_by_text(redact_tree(old, path)), dict[int, int]()
    for text, indexes in _indexes_by_text(new).items():
        if len(old_indexes.get(text, ())) == len(indexes):
            matched.update(zip(indexes, old_indexes[text], strict=True))
    ids = {item["id"]: index for index, item in reversed([*enumerate(old)]) if _has_id(item)}
    unmatched = set(range(len(old))) - set(matched.values()) if len(new) == len(old) else set[int]()
    for index, item in enumerate(new):
        other = ids.get(item["id"]) if _has_id(item) else index if index in unmatched else None
        if index not in matched and other is not None:
            matched[index] = other
    return [old[matched[index]] if index in matched else None for index in range(len(new))]


def _indexes_by_text(entries: list[Value]) -> dict[str, list[int]]:
    """Return the indexes of equal entries, by their text."""
    indexes: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        indexes.setdefault(json.dumps(entry, sort_keys=True), []).append(index)
    return indexes


def _has_id(entry: Value) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("id"), str)
