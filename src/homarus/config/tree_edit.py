"""Read and edit config trees by key path, merge patch and difference; trees are not mutated."""

import re
from collections.abc import Sequence

from homarus.config.json5_document import MAX_DEPTH, KeyPath, PathStep, Value
from homarus.core.errors import UserError

_STEP = re.compile(
    r"""\.?(?:\[\s*(?P<index>[0-9]{1,6})\s*\]"""
    r"""|\[\s*"(?P<double>(?:[^"\\]|\\.)+)"\s*\]|\[\s*'(?P<single>(?:[^'\\]|\\.)+)'\s*\])"""
    r"""|(?P<dot>\.)?(?P<word>(?:[^.\[\]\\]|\\.)+)""",
    re.DOTALL,
)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$/@:*+<>-]+")


def parse_path(text: str) -> KeyPath:
    r"""Parse `agents.list[0].id`, `agents.defaults.models["openai/gpt-5.2"].alias` or `a\.b`."""
    steps: list[PathStep] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _STEP.match(text, at)
        # A dot separates words: none before the first, no two in a row.
        if not found or (found["word"] is not None and (at > 0) != (found["dot"] is not None)):
            break
        if found["index"] is not None:
            steps.append(int(found["index"]))
        else:
            key = found["double"] or found["single"] or found["word"]
            steps.append(re.sub(r"\\(.)", r"\1", key, flags=re.DOTALL))
        at = found.end()
    if at < len(text) or not steps or len(steps) > MAX_DEPTH:
        raise UserError(
            f"{text!r} is not a key path",
            fix='write for example agents.list[0].name or agents.defaults.models["a/b"].alias',
        )
    return tuple(steps)


def format_path(path: Sequence[PathStep]) -> str:
    """Format a key path as `parse_path` parses it."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            shown += f".{step}" if shown else step
        else:
            quoted = step.replace("\\", "\\\\").replace('"', '\\"')
            shown += f'["{quoted}"]'
    return shown


def get_path(tree: Value, path: Sequence[PathStep]) -> Value:
    """Return the value at a path. Raises LookupError if there is none."""
    for step in path:
        tree = tree[_own_step(tree, step)]
    return tree


def set_path(tree: Value, path: Sequence[PathStep], value: Value) -> Value:
    """Return the tree with a value at a path, creating missing containers."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if tree is None:
        tree = [] if isinstance(step, int) else {}
    if isinstance(tree, list):
        index = _index(step)
        if index is None or index > len(tree):
            raise UserError(
                f"[{step}] is not in a list of {len(tree)}", fix=f"[{len(tree)}] adds to its end"
            )
        inner = tree[index] if index < len(tree) else None
        return [*tree[:index], set_path(inner, rest, value), *tree[index + 1 :]]
    if not isinstance(tree, dict):
        raise UserError(f"cannot set {format_path(path)} inside {tree!r}, which is not an object")
    key = str(step)
    return {**tree, key: set_path(tree.get(key), rest, value)}


def unset_path(tree: Value, path: Sequence[PathStep]) -> Value:
    """Return the tree without the value at a path. Raises LookupError if there is none."""
    step = _own_step(tree, path[0])
    inner = tree[step]
    if len(path) > 1:
        return set_path(tree, (step,), unset_path(inner, path[1:]))
    if isinstance(tree, list):
        return [item for index, item in enumerate(tree) if index != step]
    return {key: item for key, item in tree.items() if key != step}


def apply_merge_patch(
    base: Value,
    patch: Value,
    merge_object_arrays_by_id: bool = False,  # noqa: FBT001, FBT002 - the vectors' argument order
) -> Value:
    """Apply a merge patch (RFC 7396): objects merge, null removes, anything else replaces.

    With `merge_object_arrays_by_id`, a list of objects that all have an id is merged entry by
    entry: the same id merges, another is added, none is removed.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(base) if isinstance(base, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
            continue
        old: Value = merged.get(key)
        if merge_object_arrays_by_id and _all_have_ids(old) and isinstance(change, list):
            merged[key] = _merge_by_id(old, change)
        else:
            merged[key] = apply_merge_patch(old, change, merge_object_arrays_by_id)
    return merged


def deep_merge(base: Value, over: Value) -> Value:
    """Merge included files: objects merge, lists are joined, otherwise the later wins."""
    if isinstance(base, dict) and isinstance(over, dict):
        merged = dict(base)
        for key, value in over.items():
            merged[key] = deep_merge(merged[key], value) if key in merged else value
        return merged
    if isinstance(base, list) and isinstance(over, list):
        return [*base, *over]
    return over


def differing_paths(prev: Value, next_: Value) -> list[KeyPath]:
    """Return the paths at which two trees differ; a list is one value."""
    if isinstance(prev, dict) and isinstance(next_, dict):
        found: list[KeyPath] = []
        for key in {**prev, **next_}:
            if key in prev and key in next_:
                found += [(key, *rest) for rest in differing_paths(prev[key], next_[key])]
            else:
                found.append((key,))
        return found
    return [] if json_equal(prev, next_) else [()]


def json_equal(left: Value, right: Value) -> bool:
    """Return whether two values are equal as JSON: true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            json_equal(left[key], right[key]) for key in left
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(json_equal, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _own_step(tree: Value, step: PathStep) -> PathStep:
    """Convert a step for this container: `.0` and `[0]` are equal for lists and objects."""
    if isinstance(tree, list):
        index = _index(step)
        if index is None:
            raise KeyError(step)
        return index
    if not isinstance(tree, dict):
        raise KeyError(step)
    return str(step)


def _index(step: PathStep) -> int | None:
    if isinstance(step, int):
        return step
    return int(step) if step.isascii() and step.isdigit() and len(step) <= 6 else None


def _all_have_ids(value: Value) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and isinstance(item.get("id"), str) for item in value)
    )


def _merge_by_id(base: list[Value], patch: list[Value]) -> list[Value]:
    merged = list(base)
    indexes = {item["id"]: index for index, item in enumerate(merged)}
    for item in patch:
        index = indexes.get(item.get("id")) if isinstance(item, dict) else None
        if index is None:
            merged.append(item)
        else:
            merged[index] = apply_merge_patch(merged[index], item, merge_object_arrays_by_id=True)
    return merged
