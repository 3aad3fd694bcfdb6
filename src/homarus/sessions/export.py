"""Render a session as HTML that loads nothing, or as Markdown. Pure.

Every message is shown, also those that a compaction removed from the model's context. Messages are
untrusted: in HTML they are escaped; in Markdown, arguments and results of tools are in fences that
they cannot close, and text is unchanged.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from homarus.core.envelope import strip_envelope
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult
from homarus.sessions.transcript import decode_message
from homarus.store.base import TranscriptEntry

Form: TypeAlias = Literal["html", "md"]

FORMS: Final[Mapping[str, Form]] = {".html": "html", ".htm": "html", ".md": "md"}
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_ROLES: Final[Mapping[str, str]] = {"user": "You", "assistant": "Agent", "tool": "Tool"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "article{border-left:3px solid #bbb;padding:0 0 0 1rem;margin:1.5rem 0}"
    "article.user{border-color:#36c}article.assistant{border-color:#2a7}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0;font:inherit}"
    "details pre{font:13px/1.4 ui-monospace,monospace}"
    "time,summary{color:#767676;font-size:.85rem}img{max-width:100%}"
)


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """The header of an exported session."""

    title: str
    session_key: str
    session_id: str
    at_ms: int


def export_messages(path: Iterable[TranscriptEntry]) -> list[Message]:
    """Return every message of a path, with the text as people wrote it."""
    return [message for entry in path if (message := decode_message(entry))]


def render_export(head: ExportHeader, messages: Sequence[Message], form: Form) -> str:
    """Render the document."""
    return _html(head, messages) if form == "html" else _markdown(head, messages)


def _html(head: ExportHeader, messages: Sequence[Message]) -> str:
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    body = "\n".join(
        f'<article class="{message.role}"><header><b>{_ROLES[message.role]}</b> '
        f"<time>{_utc_time(message.at_ms)}</time></header>\n"
        f"{''.join(_html_part(part, message) for part in message.parts)}</article>"
        for message in messages
    )
    title = escape(head.title)
    return (
        f'<!doctype html>\n<html><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        f"<p>{escape(head.session_key)} · {escape(head.session_id)} · {_utc_time(head.at_ms)}</p>\n"
        f"{body}\n</body></html>\n"
    )


def _html_part(part: Part | Image, message: Message) -> str:
    match part:
        case Text(text):
            return f"<pre>{escape(_visible_text(text, message))}</pre>\n"
        case Thinking(text):
            return _fold("thinking", text)
        case Image(data, mime):
            if mime not in _IMAGE_TYPES:
                return f"<p>[a picture: {escape(mime)}]</p>\n"
            return f'<img alt="" src="data:{mime};base64,{escape(data)}">\n'
        case ToolCall():
            return _fold(f"calls {part.name}", part.broken or _args(part.args))
        case ToolResult():
            pictures = [one for one in part.content if isinstance(one, Image)]
            shown = "".join(_html_part(one, message) for one in pictures)
            failed = "failed: " if part.is_error else ""
            return _fold(f"{failed}{part.name}", part.text) + shown


def _fold(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>\n"


def _markdown(head: ExportHeader, messages: Sequence[Message]) -> str:
    lines = [
        f"# {' '.join(head.title.split())}",
        "",
        f"{head.session_key} · {head.session_id} · {_utc_time(head.at_ms)}",
    ]
    for message in messages:
        lines += ["", f"## {_ROLES[message.role]} · {_utc_time(message.at_ms)}"]
        for part in message.parts:
            lines += _markdown_part(part, message)
    return "\n".join(lines) + "\n"


def _markdown_part(part: Part, message: Message) -> Iterator[str]:
    match part:
        case Text(text):
            yield from ("", _visible_text(text, message))
        case Thinking(text):
            yield from ("", "Thinking:", "", _fence(text))
        case Image(_, mime):
            yield from ("", f"[a picture: {mime}]")
        case ToolCall():
            yield from ("", f"Calls `{part.name}`:", "", _fence(part.broken or _args(part.args)))
        case ToolResult():
            failed = ", failed" if part.is_error else ""
            yield from ("", f"`{part.name}`{failed}:", "", _fence(part.text))


def _fence(text: str) -> str:
    """Return the text in a fence longer than any inside it."""
    mark = "```"
    while mark in text:
        mark += "`"
    return f"{mark}\n{text}\n{mark}"


def _visible_text(text: str, message: Message) -> str:
    return strip_envelope(text) if message.role == "user" else text


def _args(args: Mapping[str, Json]) -> str:
    return json.dumps(dict(args), ensure_ascii=False, indent=2, default=str)


def _utc_time(at_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):  # a transcript may hold any number
        return "at no time"
    return f"{at:%Y-%m-%d %H:%M} UTC"


def escape(text: str) -> str:
    """Escape text for HTML; the module is large and loaded at the first use."""
    import html

    return html.escape(text)
