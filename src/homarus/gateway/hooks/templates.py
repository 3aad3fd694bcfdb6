"""Fill the placeholders of a mapping's texts: `{{issue.labels[0].name}}`. Pure.

A placeholder names a value of the request: of its body (`payload.…`, or without that word), of its
`headers.…` and `query.…`, or its `path`; `now` is the time. Values are looked up in JSON objects
and lists only, so a template reaches nothing else. What is missing is empty. Values are not
searched for placeholders, and the result has a maximum length.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

MAX_RENDERED_CHARS: Final = 100_000
MAX_STEPS: Final = 32  # of one path
MAX_DEPTH: Final = 32  # of a value that is written as JSON
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([^{}\s]{1,500})\s*\}\}")
_STEP: Final = re.compile(r"([^.\[\]]+)|\[([0-9]{1,6})\]")


@dataclass(frozen=True, slots=True)
class HookValues:
    """The values that placeholders and transforms get; headers have no secrets in them."""

    payload: Mapping[str, Json]
    headers: Mapping[str, str]
    query: Mapping[str, str]
    path: str
    at_ms: int

    def encode(self) -> dict[str, Json]:
        """Return it as JSON, for a transform."""
        return {
            "payload": dict(self.payload),
            "headers": dict(self.headers),
            "query": dict(self.query),
            "path": self.path,
        }


@dataclass(frozen=True, slots=True)
class RenderedText:
    """A text for the agent: `lead` is the owner's, `body` may be anyone's."""

    lead: str
    body: str

    @property
    def is_blank(self) -> bool:
        return not f"{self.lead}{self.body}".strip()


def has_placeholder(template: str) -> bool:
    """Return whether a text has a placeholder."""
    return _PLACEHOLDER.search(template) is not None


def render_template(template: str, context: HookValues) -> str:
    """Return the text with its placeholders filled; raises InvalidRequestError if it is long."""
    parts, end, size = list[str](), 0, 0
    for found in _PLACEHOLDER.finditer(template):
        piece = template[end : found.start()] + _write(_find(found[1], context))
        size += len(piece)
        _check_size(size)
        parts.append(piece)
        end = found.end()
    _check_size(size + len(template) - end)
    return "".join((*parts, template[end:]))


def render_message(template: str, context: HookValues) -> RenderedText:
    """Return a message: what stands before the first placeholder is the owner's."""
    first = _PLACEHOLDER.search(template)
    if first is None:
        return RenderedText(template, "")
    start = first.start()
    return RenderedText(template[:start], render_template(template[start:], context))


def _check_size(size: int) -> None:
    if size > MAX_RENDERED_CHARS:
        raise InvalidRequestError(
            f"the values of this request make a text of more than {MAX_RENDERED_CHARS} characters"
        )


def _find(name: str, context: HookValues) -> Json:
    """Return the value that a placeholder names; None if there is none."""
    if name == "path":
        return context.path
    if name == "now":
        return datetime.fromtimestamp(context.at_ms / 1000, UTC).isoformat(timespec="seconds")
    steps = _split(name)
    if steps is None:
        return None
    roots: dict[Json, Json] = {
        "payload": context.payload,
        "headers": {key.lower(): value for key, value in context.headers.items()},
        "query": context.query,
    }
    if steps[0] == "headers":
        steps = [step.lower() if isinstance(step, str) else step for step in steps]
    value: Json = context.payload
    if steps[0] in roots:
        value, steps = roots[steps[0]], steps[1:]
    for step in steps:
        value = _get(value, step)
    return value


def _split(name: str) -> list[str | int] | None:
    """Return the steps of a path; None if it is not one."""
    steps, at = list[str | int](), 0
    while at < len(name):
        if name[at] == "." and steps:
            at += 1
        found = _STEP.match(name, at)
        if found is None or len(steps) >= MAX_STEPS:
            return None
        steps.append(found[1] if found[1] is not None else int(found[2]))
        at = found.end()
    return steps or None


def _get(value: Json, step: str | int) -> Json:
    if isinstance(step, str):
        return value.get(step) if isinstance(value, Mapping) else None
    return value[step] if isinstance(value, list) and step < len(value) else None


def _write(value: Json) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if _depth(value, MAX_DEPTH) > MAX_DEPTH:
        raise InvalidRequestError(f"a value of this request is nested deeper than {MAX_DEPTH}")
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False)


def _depth(value: Json, limit: int) -> int:
    if limit < 0 or not isinstance(value, Mapping | list):
        return 0
    inner = value.values() if isinstance(value, Mapping) else value
    return 1 + max((_depth(each, limit - 1) for each in inner), default=0)
