"""Skip tool calls that a model wrote as text: `[Tool Call: …]` with its arguments, and results.

A result extends to the next tool call, or to the end. Arguments that do not end are skipped to the
end, too. Imported when a reply contains the start of one.
"""

import re
from typing import Final, Literal

_MAX_MARKER_CHARS: Final = 400
_FLAGS: Final = re.IGNORECASE | re.ASCII
_MARKER = re.compile(
    rf"\[tool (call:|result for id)[^\]\n]{{0,{_MAX_MARKER_CHARS}}}\](\()?", _FLAGS
)
_HEADS: Final = ("[tool call:", "[tool result for id")
_NEXT = re.compile(r"\[tool ", _FLAGS)
_ARGUMENTS = re.compile(r"[ \t]{0,16}(?:\r?\n)?[ \t]{0,16}arguments", _FLAGS)
_ARGUMENTS_HEAD = re.compile(r"[ \t]{0,16}(?:\r?\n?[ \t]{0,16})?([a-z]{0,9})", _FLAGS)
_JSON_START = re.compile(r"[\s:]*")
_JSON_TURN = re.compile(r'["{}\[\]]')
_STRING_TURN = re.compile(r'["\\]')


class ToolCallSkipper:
    """Skips what follows the marker of one tool call, or of its result."""

    def __init__(self, marker: re.Match[str]) -> None:
        self.end = marker.end()  # of the marker
        self.is_done = False
        self._kind: Literal["call", "arguments", "json", "string", "result"]
        self._kind = "call" if marker[1].endswith(":") else "result"
        self._depth = 0
        self._is_escaped = False

    def skip(self, text: str, at: int, *, complete: bool) -> int:
        """Return where the text continues, or from where it is not clear yet."""
        while at < len(text) and not self.is_done:
            match self._kind:
                case "call":
                    found = _ARGUMENTS.match(text, at)
                    if not found and not complete and _may_become_arguments(text[at : at + 60]):
                        return at
                    at = self._continue("arguments", found.end()) if found else self._end(at)
                case "arguments":
                    start = _JSON_START.match(text, at)
                    at = start.end() if start else at
                    if at < len(text):
                        is_json = text[at] in "{["
                        at = self._continue("json", at) if is_json else self._end(at)
                case "result":
                    found = _NEXT.search(text, at)
                    if found is None:
                        return len(text) if complete else max(at, len(text) - len("[tool"))
                    at = self._end(found.start())
                case _:
                    at = self._skip_json(text, at)
        return at

    def _continue(self, kind: Literal["arguments", "json"], at: int) -> int:
        self._kind = kind
        return at

    def _end(self, at: int) -> int:
        self.is_done = True
        return at

    def _skip_json(self, text: str, at: int) -> int:
        """Return the position after the next character that matters in JSON."""
        if self._is_escaped:
            self._is_escaped = False
            return at + 1
        is_string = self._kind == "string"
        turn = (_STRING_TURN if is_string else _JSON_TURN).search(text, at)
        match turn[0] if turn else "":
            case "\\":
                self._is_escaped = True
            case '"':
                self._kind = "json" if is_string else "string"
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                self.is_done = self._depth == 0
            case _:
                pass
        return turn.end() if turn else len(text)


def find_tool_call(text: str, at: int, end: int) -> ToolCallSkipper | None:
    """Return the skipper of the tool call at this position; a link is none."""
    marker = _MARKER.match(text, at, end)
    return ToolCallSkipper(marker) if marker and not marker[2] else None


def may_become_tool_call(text: str, at: int, end: int) -> bool:
    """Whether the `[` at this position, without its end yet, may start a tool call."""
    head = text[at : min(end, at + len(_HEADS[1]))].lower()
    is_start = any(head.startswith(name) or name.startswith(head) for name in _HEADS)
    close = text.find("]", at, end)
    return is_start and end - at <= _MAX_MARKER_CHARS + 20 and close in {-1, end - 1}


def _may_become_arguments(text: str) -> bool:
    found = _ARGUMENTS_HEAD.fullmatch(text)
    return found is not None and "arguments".startswith(found[1].lower())
