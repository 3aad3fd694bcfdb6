"""What is known of a server's tools, and which descriptions a person has trusted.

A description is an instruction to the model, written by the server. The one that was there when the
server was first seen is trusted, because the owner has just added the server (trust on first use).
A later one, or that of a tool that is new, is *pending*: the model goes on reading the trusted one,
and a person is asked before the tool is used. Tools that a server no longer has keep their pins, so
that one cannot be removed and come back with another description unnoticed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import clip_middle, escape_invisible
from homarus.policy.tool_policy import normalize_tool_name
from homarus.tools.mcp.tool_names import make_tool_name

MAX_DESCRIPTION_CHARS: Final = 1_024
MAX_SCHEMA_CHARS: Final = 16_384
MAX_TOOLS: Final = 256
MAX_DIFF_CHARS: Final = 4_000
UTILITIES: Final = ("resources_list", "resources_read", "prompts_list", "prompts_get")
HIDDEN_DESCRIPTION: Final = (
    "New on this server: its description is hidden until a person approves the first call."
)
_EMPTY_SCHEMA: Final[Mapping[str, Json]] = {"type": "object", "properties": {}}
_TEXT_KEYWORDS: Final = frozenset({"description", "title", "$comment", "examples", "default"})


@dataclass(frozen=True, slots=True)
class ToolText:
    """What a server says of a tool: the texts are limited and escaped, the digest is of all."""

    digest: str
    description: str
    schema: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """A tool of a server: `name` there, `call_name` here.

    `trusted` is what the model reads, None before a person has approved the tool; `pending` is
    what the server says now, where that is something else.
    """

    name: str
    call_name: str
    trusted: ToolText | None
    pending: ToolText | None = None
    is_listed: bool = True

    @property
    def shown(self) -> ToolText:
        """What the model reads."""
        if self.trusted:
            return self.trusted
        schema = self.pending.schema if self.pending else _EMPTY_SCHEMA
        return ToolText("", HIDDEN_DESCRIPTION, _without_texts(schema))


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What was last known of a server."""

    server: str
    tools: tuple[PinnedTool, ...] = ()
    has_resources: bool = False
    has_prompts: bool = False
    title: str = ""  # the name and version that the server gives itself

    def find(self, name: str) -> PinnedTool | None:
        """Return the tool with this name on the server."""
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def pending(self) -> tuple[PinnedTool, ...]:
        """The tools that a person must approve before they are used."""
        return tuple(tool for tool in self.tools if tool.pending and tool.is_listed)


@dataclass(frozen=True, slots=True)
class ServerListing:
    """What a server lists now: its tools with their texts, and what else it has."""

    tools: Mapping[str, ToolText]
    has_resources: bool = False
    has_prompts: bool = False
    title: str = ""


def read_tool_text(description: str, schema: Any) -> ToolText | None:
    """Return what a server says of a tool; None when its schema is not one of an object."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return None
    written = json.dumps([description, schema], sort_keys=True, ensure_ascii=True)
    if len(written) > MAX_SCHEMA_CHARS + len(description):
        return None
    digest = hashlib.sha256(written.encode()).hexdigest()
    text = escape_invisible_lines(description.strip())
    if len(text) > MAX_DESCRIPTION_CHARS:
        text = text[: MAX_DESCRIPTION_CHARS - 1] + "…"
    safe = _escape_texts(schema)
    return ToolText(digest, text, {"properties": {}, **safe, "type": "object"})


def escape_invisible_lines(text: str) -> str:
    """Escape control, invisible and reordering characters; line breaks stay."""
    return "\n".join(escape_invisible(line) for line in text.split("\n"))


def _escape_texts(value: Any) -> Any:
    if isinstance(value, str):
        return escape_invisible_lines(value)
    if isinstance(value, dict):
        return {escape_invisible(str(key)): _escape_texts(each) for key, each in value.items()}
    return [_escape_texts(each) for each in value] if isinstance(value, list) else value


def _without_texts(value: Any, *, is_map: bool = False) -> Any:
    """Return a schema without prose; the keys of `properties` are names, not keywords."""
    if isinstance(value, Mapping):
        return {
            key: _without_texts(each, is_map=key == "properties" and not is_map)
            for key, each in value.items()
            if is_map or key not in _TEXT_KEYWORDS
        }
    return [_without_texts(each) for each in value] if isinstance(value, list) else value


def merge_listing(
    known: ServerRecord | None, server: str, listing: ServerListing, *, trust: bool = False
) -> ServerRecord:
    """Return what is known of a server after it listed its tools.

    The first listing is trusted, and one that a person accepts with `trust`.
    """
    before = {tool.name: tool for tool in known.tools} if known else {}
    taken = {normalize_tool_name(tool.call_name) for tool in before.values()}
    taken |= {normalize_tool_name(make_tool_name(server, each)) for each in UTILITIES}
    tools: list[PinnedTool] = []
    for name, text in sorted(listing.tools.items()):
        old = before.pop(name, None)
        if old is None:
            call_name = make_tool_name(server, name, taken)
            taken.add(normalize_tool_name(call_name))
            old = PinnedTool(name, call_name, None)
        if trust or known is None:
            tools.append(PinnedTool(name, old.call_name, text))
        elif old.trusted and old.trusted.digest == text.digest:
            tools.append(replace(old, pending=None, is_listed=True))
        else:
            tools.append(replace(old, pending=text, is_listed=True))
    gone = [replace(tool, is_listed=False, pending=None) for tool in before.values()]
    return ServerRecord(
        server,
        (*tools, *_limited(gone)),
        listing.has_resources,
        listing.has_prompts,
        listing.title,
    )


def _limited(gone: list[PinnedTool]) -> Iterable[PinnedTool]:
    """Forget the tools that were never trusted, and bound the others."""
    return [tool for tool in gone if tool.trusted][:MAX_TOOLS]


def accept_tool(record: ServerRecord, name: str, digest: str) -> ServerRecord:
    """Return the record with a pending text trusted, if it is the one with this digest."""
    return replace(
        record,
        tools=tuple(
            replace(tool, trusted=tool.pending, pending=None)
            if tool.name == name and tool.pending and tool.pending.digest == digest
            else tool
            for tool in record.tools
        ),
    )


def describe_change(tool: PinnedTool) -> str:
    """Return how a tool differs from what was trusted, line by line."""
    if not tool.pending:
        return ""
    import difflib  # rarely needed

    before = _text_lines(tool.trusted) if tool.trusted else []
    lines = difflib.unified_diff(before, _text_lines(tool.pending), "trusted", "now", lineterm="")
    return clip_middle("\n".join(map(escape_invisible, lines)), MAX_DIFF_CHARS)


def _text_lines(text: ToolText) -> list[str]:
    schema = json.dumps(dict(text.schema), indent=1, sort_keys=True, ensure_ascii=False)
    return [*text.description.splitlines(), *schema.splitlines()]


def encode_record(record: ServerRecord) -> dict[str, Json]:
    """Return a record as it is stored."""
    return {
        "server": record.server,
        "title": record.title,
        "hasResources": record.has_resources,
        "hasPrompts": record.has_prompts,
        "tools": [
            {
                "name": tool.name,
                "callName": tool.call_name,
                "listed": tool.is_listed,
                "trusted": _encode_text(tool.trusted),
                "pending": _encode_text(tool.pending),
            }
            for tool in record.tools
        ],
    }


def decode_record(data: Any) -> ServerRecord:
    """Return a stored record. Raises LookupError, TypeError or ValueError for another value."""
    return ServerRecord(
        str(data["server"]),
        tuple(
            PinnedTool(
                str(tool["name"]),
                str(tool["callName"]),
                _decode_text(tool["trusted"]),
                _decode_text(tool["pending"]),
                bool(tool["listed"]),
            )
            for tool in data["tools"]
        ),
        bool(data["hasResources"]),
        bool(data["hasPrompts"]),
        str(data["title"]),
    )


def _encode_text(text: ToolText | None) -> Json:
    if text is None:
        return None
    return {"digest": text.digest, "description": text.description, "schema": dict(text.schema)}


def _decode_text(data: Any) -> ToolText | None:
    if data is None:
        return None
    return ToolText(str(data["digest"]), str(data["description"]), dict(data["schema"]))
