"""Describe tool calls for people: one short line, and the output as a block of text.

Secrets are redacted, because these lines are sent to chats and screens.
"""

import re
from collections.abc import Callable

from homarus.config.redaction import redact
from homarus.core.message import Json, ToolCall, ToolResult
from homarus.core.text import clip_middle, escape_controls, escape_invisible, one_line

MAX_LINE_CHARS = 80
MAX_OUTPUT_CHARS = 2_000

_MATTERS = ("command", "path", "pattern", "query", "url", "message")
_TICKS = re.compile(r"`{3,}")


def main_argument(call: ToolCall) -> str:
    """Return the main argument of a call, else all of them."""
    for key in _MATTERS:
        if key in call.args:
            return _shown(call.args[key])
    return " ".join(f"{key}={_shown(value)}" for key, value in call.args.items())


def describe_target(call: ToolCall) -> str:
    """Return what a call is about, for the clients of the gateway: `first 5 lines of notes.md`."""
    path, first, count = (call.args.get(name) for name in ("path", "offset", "limit"))
    if call.name == "read" and isinstance(path, str):
        start = first if isinstance(first, int) and first > 0 else 1
        if isinstance(count, int) and count > 0:
            lines = f"first {count} lines" if start == 1 else f"lines {start}-{start + count - 1}"
            return _line(f"{lines} of {path}")
        return _line(f"from line {start} of {path}" if start > 1 else f"from {path}")
    return _line(main_argument(call))


def describe_call(call: ToolCall) -> str:
    """Return a call as one short line for a terminal: its name and its main argument."""
    return _line(f"{call.name} {main_argument(call)}".strip(), escape_controls)


def format_call_line(call: ToolCall) -> str:
    """Return the line of a call for a chat."""
    about = main_argument(call)
    return _line(f"🔧 {call.name} · {about}" if about else f"🔧 {call.name}")


def format_output(call: ToolCall, result: ToolResult) -> str:
    """Return a call and its output, for a chat with full verbosity."""
    head = format_call_line(call) + (" · failed" if result.is_error else "")
    output = clip_middle(redact(result.text).strip("\n"), MAX_OUTPUT_CHARS)
    if not output.strip():
        return head
    fence = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(output))])
    return f"{head}\n{fence}\n{output}\n{fence}"


def _line(text: str, escape: Callable[[str], str] = escape_invisible) -> str:
    return one_line(redact(one_line(text, MAX_LINE_CHARS * 4, escape)), MAX_LINE_CHARS, escape)


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else repr(value)
