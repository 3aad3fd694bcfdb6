"""Compare JSON by shape: the same keys and types wherever both have a value."""

from collections.abc import Collection, Iterator
from typing import Any


def kind(value: Any) -> str:
    """Return the JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def differences(
    ours: Any, theirs: list[Any], optional: Collection[str], extra: Collection[str], at: str = ""
) -> Iterator[str]:
    """What is not the same. `theirs` are examples; what only some of them have may be absent.

    `optional` and `extra` name keys, by path, that may be absent or added; a path that ends in
    `?` may be null.
    """
    kinds = {kind(one) for one in theirs}
    if kind(ours) == "null" and f"{at}?" in optional:
        return
    if kinds and kind(ours) not in kinds:
        yield f"{at or 'root'}: {kind(ours)} instead of {' or '.join(sorted(kinds))}"
    elif isinstance(ours, dict):
        yield from _objects(
            ours, [one for one in theirs if isinstance(one, dict)], optional, extra, at
        )
    elif isinstance(ours, list):
        items = [item for one in theirs if isinstance(one, list) for item in one]
        for item in ours if items else ():
            yield from differences(item, items, optional, extra, f"{at}[]")


def _objects(
    ours: dict[str, Any],
    theirs: list[dict[str, Any]],
    optional: Collection[str],
    extra: Collection[str],
    at: str,
) -> Iterator[str]:
    for key in sorted({*ours, *(key for one in theirs for key in one)}):
        path = f"{at}.{key}".lstrip(".")
        examples = [one[key] for one in theirs if key in one]
        if key not in ours:
            if len(examples) == len(theirs) and path not in optional:
                yield f"{path}: missing"
        elif not examples:
            if path not in extra:
                yield f"{path}: not in the original"
        else:
            yield from differences(ours[key], examples, optional, extra, path)
