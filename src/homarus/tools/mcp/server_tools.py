"""Make the tools of MCP servers for one agent, from what is known of the servers.

No server is started by that. A call connects first, so that a description that has changed is
noticed before it runs: then a person is asked, and is shown the difference.
"""

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from homarus.config.mcp_schema import McpServerConfig
from homarus.core.errors import HomarusError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import clip_middle, one_line
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.tool_call import LayerVerdict, ToolCallFacts, ToolDeclaration
from homarus.providers.base import ToolSpec
from homarus.tools.mcp.results import make_output, make_resource_output, make_text_output
from homarus.tools.mcp.server_settings import McpServerSettings, has_tool, server_effects
from homarus.tools.mcp.tool_names import make_tool_name
from homarus.tools.mcp.tool_pins import (
    PinnedTool,
    ServerRecord,
    accept_tool,
    describe_change,
    escape_invisible_lines,
)
from homarus.tools.tool import PreparedCall, Tool, ToolContext, ToolOutput

if TYPE_CHECKING:  # imported by the first call
    from homarus.tools.mcp.pool import McpPool

GROUP: Final = "mcp"
_PROGRESS_S: Final = 0.25
_MAX_ARGS_CHARS: Final = 2_000
_NO_ARGS: Final[Mapping[str, Json]] = {"type": "object", "properties": {}}


class Records(Protocol):
    """What is known of servers, as the calls read and change it."""

    def find(self, server: str) -> ServerRecord | None: ...

    def update(
        self, server: str, change: Callable[[ServerRecord | None], ServerRecord]
    ) -> ServerRecord: ...


@dataclass(frozen=True, slots=True)
class ServerTools:
    """Makes the tools of one server."""

    settings: McpServerSettings
    entry: McpServerConfig
    records: Records
    get_pool: "Callable[[], McpPool]"

    def make(self, record: ServerRecord) -> list[Tool]:
        """Return the tools of the server that its filter leaves."""
        tools = [
            self._tool(each)
            for each in record.tools
            if each.is_listed and has_tool(self.entry.tool_filter, each.name)
        ]
        others = (each for each in _utility_names(record) if has_tool(self.entry.tool_filter, each))
        return [*tools, *map(self._utility, others)]

    def _tool(self, pinned: PinnedTool) -> Tool:
        spec = ToolSpec(pinned.call_name, pinned.shown.description, pinned.shown.schema)
        declaration = self._declaration(pinned.call_name)

        async def prepare(ctx: ToolContext, args: Mapping[str, Json]) -> PreparedCall:
            return await self._prepare(ctx, declaration, pinned.name, args)

        async def run(ctx: ToolContext, args: Mapping[str, Json]) -> str | ToolOutput:
            return await self._call(ctx, pinned.name, args)

        return self._make(declaration, spec, run, prepare)

    def _declaration(self, name: str) -> ToolDeclaration:
        return ToolDeclaration(name, (GROUP,), source=f"{GROUP}:{self.settings.name}")

    def _make(
        self,
        declaration: ToolDeclaration,
        spec: ToolSpec,
        run: Callable[..., Awaitable[str | ToolOutput]],
        prepare: Callable[..., Awaitable[PreparedCall]] | None = None,
    ) -> Tool:
        is_serial = not self.entry.supports_parallel_tool_calls
        effects = server_effects(self.entry)
        # The session has the timeouts of the config.
        return Tool(
            declaration, lambda: spec, None, run, is_serial, False, None, prepare, effects  # noqa: FBT003 - not idempotent
        )  # fmt: skip

    async def _prepare(
        self,
        ctx: ToolContext,
        declaration: ToolDeclaration,
        name: str,
        args: Mapping[str, Json],
    ) -> PreparedCall:
        """Connect, and return the call with a question if the tool is not what was trusted."""
        facts = ToolCallFacts(declaration, args, server_effects(self.entry))
        run: Callable[[], Awaitable[str | ToolOutput]] = partial(self._call, ctx, name, args)
        title = f"May the agent use {declaration.name} of the MCP server {self.settings.name}?"
        question = _question(declaration.name, title, args, "")
        try:
            await self.get_pool().connect(self.settings)
            record = self.records.find(self.settings.name)
            tool = record.find(name) if record else None
            if tool is None or not tool.is_listed:
                raise ToolError(f"the MCP server {self.settings.name} has no tool {one_line(name)}")
        except HomarusError as exc:
            # Raised by the run: what a server says of a failure is marked as untrusted there.
            return PreparedCall(facts, question, partial(_fail, exc))
        if tool.pending is None:
            return PreparedCall(facts, question, run)
        server, is_known = self.settings.name, tool.trusted is not None
        change = "describes it in another way than before" if is_known else "has added it"
        verdict = LayerVerdict("tool", "ask", f"the MCP server {server} {change}")
        facts = replace(facts, own_verdict=verdict)
        digest = tool.pending.digest
        question = _question(declaration.name, title, args, digest, describe_change(tool))
        return PreparedCall(
            facts, question, partial(self._accept_and_call, ctx, name, args, digest)
        )

    async def _accept_and_call(
        self, ctx: ToolContext, name: str, args: Mapping[str, Json], digest: str
    ) -> ToolOutput:
        """Trust what a person has approved, and make the call."""

        def accept(record: ServerRecord | None) -> ServerRecord:
            return accept_tool(record or ServerRecord(self.settings.name), name, digest)

        self.records.update(self.settings.name, accept)
        return await self._call(ctx, name, args)

    async def _call(self, ctx: ToolContext, name: str, args: Mapping[str, Json]) -> ToolOutput:
        async with self.get_pool().session(self.settings) as session:
            record = self.records.find(self.settings.name)
            if record and (tool := record.find(name)) and tool.pending:
                raise ToolError(f"{tool.call_name} has just changed", fix="call it again")
            result = await session.call_tool(name, args, _ProgressSender(ctx))
        return make_output(self.settings.name, name, result)

    def _utility(self, name: str) -> Tool:
        """Return a tool for the server's resources or prompts."""
        about, schema = _UTILITIES[name]
        call_name = make_tool_name(self.settings.name, name)

        async def run(_ctx: ToolContext, args: Mapping[str, Json]) -> ToolOutput:
            return await self._use_utility(name, args)

        spec = ToolSpec(call_name, about.format(server=self.settings.name), schema)
        return self._make(self._declaration(call_name), spec, run)

    async def _use_utility(self, name: str, args: Mapping[str, Json]) -> ToolOutput:
        server = self.settings.name
        async with self.get_pool().session(self.settings) as session:
            match name:
                case "resources_list":
                    found: dict[str, Json] = {
                        "resources": await session.list_entries("resources"),
                    }
                    templates = await session.list_templates()
                    found |= {"templates": templates} if templates else {}
                    return make_text_output(server, found, details={})
                case "resources_read":
                    uri = str(args["uri"])
                    return make_resource_output(server, uri, await session.read_resource(uri))
                case "prompts_list":
                    found = {"prompts": await session.list_entries("prompts")}
                    return make_text_output(server, found, details={})
                case _:
                    given = args.get("arguments")
                    texts = {key: str(value) for key, value in given.items()} if isinstance(
                        given, Mapping
                    ) else {}  # fmt: skip
                    prompt = await session.get_prompt(str(args["name"]), texts)
                    return make_text_output(server, prompt, details={"prompt": str(args["name"])})


_UTILITIES: Final[Mapping[str, tuple[str, Mapping[str, Json]]]] = {
    "resources_list": ("List the resources of {server}.", _NO_ARGS),
    "resources_read": (
        "Read a resource of {server}.",
        {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]},
    ),
    "prompts_list": ("List the prompts of {server}.", _NO_ARGS),
    "prompts_get": (
        "Get a prompt of {server}.",
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name"],
        },
    ),
}


def _utility_names(record: ServerRecord) -> tuple[str, ...]:
    resources = ("resources_list", "resources_read") if record.has_resources else ()
    return (*resources, *(("prompts_list", "prompts_get") if record.has_prompts else ()))


class _ProgressSender:
    """Forwards what a server says of its progress, not more often than a person can read."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx, self._sent_at_s = ctx, 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now_s = time.monotonic()
        if now_s - self._sent_at_s < _PROGRESS_S:
            return
        self._sent_at_s = now_s
        share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        self._ctx.progress(one_line(f"{share} {message or ''}".strip(), 200))


async def _fail(exc: HomarusError) -> ToolOutput:
    raise exc


def _question(
    tool: str, title: str, args: Mapping[str, Any], pending: str, change: str = ""
) -> ApprovalQuestion:
    written = json.dumps(dict(args), ensure_ascii=False, indent=2, sort_keys=True)
    data = f"{tool}\n{pending}\n{written}".encode("utf-8", "surrogatepass")
    detail = escape_invisible_lines(clip_middle(written, _MAX_ARGS_CHARS))
    if change:
        detail = f"{change}\n\narguments: {detail}"
    return ApprovalQuestion(tool, title, detail, hashlib.sha256(data).hexdigest())
