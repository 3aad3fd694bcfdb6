"""Describe events of GitHub in a few lines. Pure.

Every text in an event may be anyone's: titles, names of branches, commit messages.
"""

from collections.abc import Callable, Mapping
from typing import Final

from homarus.core.message import Json
from homarus.core.text import one_line

MAX_LINE_CHARS: Final = 300
MAX_BODY_CHARS: Final = 4_000
MAX_COMMITS: Final = 10
PING: Final = "ping"


def describe_event(event: str, payload: Mapping[str, Json]) -> str:
    """Return what happened, with the links to it."""
    describe = _EVENTS.get(event, _describe_other)
    head = _line(
        "GitHub", event, _get(payload, "action"), "in", _get(payload, "repository", "full_name")
    )
    sender = _get(payload, "sender", "login")
    parts = [head, f"By: {sender}" if sender else "", *describe(payload)]
    return "\n".join(part for part in parts if part)


def _describe_issue(payload: Mapping[str, Json]) -> list[str]:
    return _describe_item("Issue", payload.get("issue"))


def _describe_pull_request(payload: Mapping[str, Json]) -> list[str]:
    found = payload.get("pull_request")
    branch = _line(_get(found, "head", "ref"), "into", _get(found, "base", "ref"))
    return [*_describe_item("Pull request", found), f"Branch: {branch}"]


def _describe_comment(payload: Mapping[str, Json]) -> list[str]:
    comment = payload.get("comment")
    about = _line("On", _number(payload.get("issue")), _get(payload, "issue", "title"))
    return [about, _get(comment, "html_url"), _body(comment)]


def _describe_push(payload: Mapping[str, Json]) -> list[str]:
    commits = payload.get("commits")
    found = commits if isinstance(commits, list) else []
    lines = [
        f"- {_get(each, 'id')[:12]} {one_line(_get(each, 'message').partition(chr(10))[0], 200)}"
        for each in found[:MAX_COMMITS]
    ]
    more = len(found) - len(lines)
    return [
        _line("Ref:", _get(payload, "ref")),
        _get(payload, "compare"),
        *lines,
        f"and {more} more commits" if more > 0 else "",
    ]


def _describe_workflow_run(payload: Mapping[str, Json]) -> list[str]:
    run = payload.get("workflow_run")
    name = _line("Workflow:", _get(run, "name"), "on", _get(run, "head_branch"))
    state = _line("Result:", _get(run, "conclusion") or _get(run, "status"))
    return [name, state, _get(run, "html_url")]


def _describe_other(payload: Mapping[str, Json]) -> list[str]:
    return [_line("Keys of the event:", ", ".join(sorted(payload)[:20]))]


def _describe_item(kind: str, item: Json) -> list[str]:
    title = _line(kind, _number(item), _get(item, "title"))
    return [title, _get(item, "html_url"), _body(item)]


def _body(item: Json) -> str:
    text = _get(item, "body", max_chars=MAX_BODY_CHARS + 1)
    return text if len(text) <= MAX_BODY_CHARS else f"{text[:MAX_BODY_CHARS]}…"


def _number(item: Json) -> str:
    number = item.get("number") if isinstance(item, Mapping) else None
    return f"#{number}" if isinstance(number, int) else ""


def _line(*words: str) -> str:
    return one_line(" ".join(word for word in words if word), MAX_LINE_CHARS)


def _get(value: Json, *steps: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Return the text at a path of objects; "" if there is none."""
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value[:max_chars] if isinstance(value, str) else ""


_EVENTS: Final[Mapping[str, Callable[[Mapping[str, Json]], list[str]]]] = {
    "issues": _describe_issue,
    "pull_request": _describe_pull_request,
    "issue_comment": _describe_comment,
    "push": _describe_push,
    "workflow_run": _describe_workflow_run,
}
