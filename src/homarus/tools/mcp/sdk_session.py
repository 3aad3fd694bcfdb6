"""The only module that imports the MCP SDK, which takes half a second: for the first connection.

It opens a session over a server's process or address, lists what the server has, and makes calls.
Everything of the server that reaches the rest of the program is bounded: the length of a message,
how many come in a time, the pages of a list. Requests of the server (to ask the person, to use our
model, for folders) are refused: no such ability is declared to it.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Protocol

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ValidationError

from homarus import __version__
from homarus.core.errors import ToolError, ToolTimeoutError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.net.bounded_http import make_bounded_client, make_tls_context
from homarus.tools.mcp.server_process import MAX_LINE_BYTES, LineTooLongError, ServerProcess
from homarus.tools.mcp.server_settings import McpServerSettings
from homarus.tools.mcp.tool_pins import MAX_TOOLS, ServerListing, ToolText, read_tool_text

log = logging.getLogger(__name__)

MAX_PAGES: Final = 20
MAX_BURST: Final = 2_000  # messages at once
MESSAGES_PER_S: Final = 200.0
MAX_NOISE_LINES: Final = 1_000
_MAX_MESSAGE_CHARS: Final = 500


class OnProgress(Protocol):
    """Is called with what a server says of its progress."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class FloodGuard:
    """Counts messages of a server; more than a burst in a time is a flood."""

    def __init__(self) -> None:
        self._left, self._at_s = float(MAX_BURST), time.monotonic()

    def is_flooded(self) -> bool:
        """Count one message, and return whether it is one too many."""
        now_s = time.monotonic()
        self._left = min(MAX_BURST, self._left + (now_s - self._at_s) * MESSAGES_PER_S) - 1
        self._at_s = now_s
        return self._left < 0


class _MessageStream:
    """What the session reads: messages, until the end or until the server misbehaves.

    `problem` says how the server broke the rules; the stream ends with that.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.on_end: Callable[[], None] = lambda: None
        self._guard = FloodGuard()

    async def next_message(self) -> SessionMessage | Exception | None:
        """Return the next message, None at the end."""
        raise NotImplementedError

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> "_MessageStream":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        message = None if self.problem else await self.next_message()
        if message is not None and self._guard.is_flooded():
            self.problem = "it floods us with messages"
        if message is None or self.problem:
            self.on_end()
            raise StopAsyncIteration
        return message

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> "_MessageStream":
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _exc: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class _ProcessStream(_MessageStream):
    """The messages of a server's standard output; other lines are skipped and counted."""

    def __init__(self, process: ServerProcess) -> None:
        super().__init__()
        self._process, self._noise = process, 0
        self.noise = ""  # the first line that is no message

    async def next_message(self) -> SessionMessage | Exception | None:
        while True:
            try:
                line = await self._process.read_line()
            except LineTooLongError:
                self.problem = f"it sent a message of more than {MAX_LINE_BYTES >> 20} MB"
                return None
            if line is None:
                return None
            try:
                return SessionMessage(types.jsonrpc_message_adapter.validate_json(line))
            except ValidationError:
                if not line.strip():
                    continue
                self._noise += 1
                self.noise = self.noise or one_line(line[:200].decode("utf-8", "replace"), 120)
                if self._noise > MAX_NOISE_LINES:
                    self.problem = f"it prints what is no message: {self.noise}"
                    return None


class _HttpStream(_MessageStream):
    """The messages of a server at an address."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner

    async def next_message(self) -> SessionMessage | Exception | None:
        try:
            found: SessionMessage | Exception = await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return None
        return found

    async def aclose(self) -> None:
        await self._inner.aclose()


class _ProcessSink:
    """What the session writes to a server's standard input."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await self._process.write_line(line.encode("utf-8", "surrogatepass"))
        except (ConnectionError, RuntimeError) as exc:
            raise anyio.BrokenResourceError from exc

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> "_ProcessSink":
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _exc: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        pass


class McpSession:
    """An initialized session with a server."""

    def __init__(
        self,
        settings: McpServerSettings,
        session: ClientSession,
        get_failure: Callable[[], Awaitable[str]],
    ) -> None:
        self._settings, self._session = settings, session
        self._get_failure = get_failure
        self._output_schemas: dict[str, dict[str, Any] | None] = {}

    async def describe_failure(self) -> str:
        """Return how the server broke the rules or ended, "" when nothing is known."""
        return await self._get_failure()

    async def list_all(self) -> ServerListing:
        """Return what the server has now. Raises ToolError."""
        abilities = self._session.server_capabilities
        tools: dict[str, ToolText] = {}
        if abilities and abilities.tools:
            async for tool in self._pages("tools"):
                text = read_tool_text(tool.description or "", tool.input_schema)
                if text is None or len(tools) >= MAX_TOOLS or len(tool.name) > 200:
                    log.warning(
                        "MCP server %s: the tool %s is left out: its schema is not valid or too"
                        " long, or there are too many",
                        self._settings.name,
                        one_line(tool.name),
                    )
                else:
                    tools[tool.name] = text
                    self._output_schemas[tool.name] = tool.output_schema
        info = self._session.server_info
        title = one_line(f"{info.name} {info.version}", 80) if info else ""
        has = (bool(abilities and abilities.resources), bool(abilities and abilities.prompts))
        return ServerListing(tools, *has, title)

    async def _pages(self, what: str) -> AsyncIterator[Any]:
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            list_page = partial(getattr(self._session, f"list_{what}"), params=params)
            page = await self._checked(list_page)
            for entry in getattr(page, what):
                yield entry
            cursor = page.next_cursor
            if cursor is None:
                return

    async def list_entries(self, what: Literal["resources", "prompts"]) -> list[dict[str, Json]]:
        """Return the resources or the prompts of the server as JSON."""
        return [_as_json(entry) async for entry in self._pages(what)]

    async def list_templates(self) -> list[dict[str, Json]]:
        """Return the templates of resources; none for a server without them."""
        try:
            page = await self._session.list_resource_templates()
        except MCPError:  # it has resources, and no templates
            return []
        return [_as_json(entry) for entry in page.resource_templates]

    async def call_tool(
        self, name: str, args: Mapping[str, Json], on_progress: OnProgress
    ) -> dict[str, Any]:
        """Return the result of a tool as JSON. Raises ToolError."""
        params = types.CallToolRequestParams(name=name, arguments=dict(args))
        request = types.CallToolRequest(params=params)
        result = await self._checked(
            lambda: self._session.send_request(
                request,
                types.CallToolResult,
                request_read_timeout_seconds=self._settings.request_s,
                progress_callback=on_progress,
            )
        )
        found = _as_json(result)
        self._check_output(name, found)
        return found

    def _check_output(self, name: str, result: Mapping[str, Any]) -> None:
        """Check a structured result against the tool's own schema, without running its patterns."""
        schema = self._output_schemas.get(name)
        if not schema or result.get("isError"):
            return
        from homarus.tools.json_schema import find_problems

        if "structuredContent" not in result:
            problem = "it has no structured content"
        else:
            problem = next(find_problems(result["structuredContent"], schema, "result"), "")
        if problem:
            raise ToolError(
                f"the MCP server {self._settings.name} breaks its own schema of {one_line(name)}:"
                f" {one_line(problem, 200)}"
            )

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """Return the contents of a resource as JSON."""
        return _as_json(await self._checked(lambda: self._session.read_resource(uri)))

    async def get_prompt(self, name: str, args: Mapping[str, str]) -> dict[str, Any]:
        """Return the messages of a prompt as JSON."""
        return _as_json(await self._checked(lambda: self._session.get_prompt(name, dict(args))))

    async def _checked(self, run: Callable[[], Awaitable[Any]]) -> Any:
        """Return what a request returns; every failure is one ToolError."""
        name = self._settings.name
        try:
            return await run()
        except MCPError as exc:
            if exc.error.code == types.REQUEST_TIMEOUT:
                raise ToolTimeoutError(
                    f"the MCP server {name} did not answer in {self._settings.request_s:g} s",
                    fix=f"try again, or raise mcp.servers.{name}.timeout",
                ) from exc
            failure = await self._get_failure()
            if exc.error.code == types.CONNECTION_CLOSED or failure:
                reason = failure or one_line(exc.error.message, _MAX_MESSAGE_CHARS)
                raise ToolError(f"the MCP server {name} failed: {reason}") from exc
            message = one_line(exc.error.message, _MAX_MESSAGE_CHARS)
            raise ToolError(f"the MCP server {name} refused: {message}") from exc
        except (ValidationError, RuntimeError) as exc:
            text = one_line(str(exc), 300)
            raise ToolError(f"the MCP server {name} breaks the protocol: {text}") from exc


def _as_json(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def open_session(
    settings: McpServerSettings,
    process: ServerProcess | None,
    *,
    on_change: Callable[[], None],
    on_end: Callable[[], None],
) -> AsyncIterator[McpSession]:
    """Open a session with a server: its process, or its address without one.

    `on_change` is called when the server says that its tools have changed, `on_end` when nothing
    more comes from it. Raises ToolError.
    """
    open_one = _open_process(process) if process else _open_address(settings)
    async with open_one as (stream, sink, get_failure):
        stream.on_end = on_end

        async def on_message(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                on_change()

        async def find_failure() -> str:
            return str(stream.problem or await get_failure())

        dispatcher = JSONRPCDispatcher(stream, sink)
        client = types.Implementation(name="homarus", version=__version__)
        async with ClientSession(
            dispatcher=dispatcher,
            read_timeout_seconds=settings.request_s,
            message_handler=on_message,
            client_info=client,
        ) as session:
            found = McpSession(settings, session, find_failure)
            await found._checked(lambda: _shake_hands(session))  # noqa: SLF001 - of this module
            yield found


async def _shake_hands(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as exc:
        if exc.error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()  # a server of the newer protocol alone, which has no handshake


@asynccontextmanager
async def _open_process(process: ServerProcess) -> AsyncIterator[tuple[Any, Any, Any]]:
    stream = _ProcessStream(process)

    async def get_failure() -> str:
        code = await process.find_exit_code()
        ended = "" if code is None else f"its program ended with status {code}"
        noise = f"it prints what is no message: {stream.noise}" if stream.noise else ""
        errors = f"it wrote: {process.last_errors}" if ended and process.last_errors else ""
        return "; ".join(filter(None, (ended, noise if ended else "", errors)))

    yield stream, _ProcessSink(process), get_failure


@asynccontextmanager
async def _open_address(settings: McpServerSettings) -> AsyncIterator[tuple[Any, Any, Any]]:
    statuses, failures = [0], [""]

    def on_response(status: int, failure: str) -> None:
        statuses[0], failures[0] = status, failure

    async def get_failure() -> str:
        status, name = statuses[0], settings.name
        if failures[0]:
            return f"{settings.place} cannot be reached: {one_line(failures[0], 200)}"
        if status in (401, 403):
            return (
                f"it answered {status}: it needs a login; set the header that it wants,"
                f" as mcp.servers.{name}.headers.Authorization"
            )
        return f"it answered {status}" if status >= 400 else ""

    try:
        tls = make_tls_context(
            is_verified=settings.is_tls_verified,
            cert=settings.client_cert,
            key=settings.client_key,
        )
    except OSError as exc:
        raise ToolError(
            f"the certificate of the MCP server {settings.name} cannot be read: {exc}",
            fix=f"check mcp.servers.{settings.name}.clientCert",
        ) from exc
    client = make_bounded_client(
        dict(settings.headers), max_body_bytes=MAX_LINE_BYTES, on_response=on_response, tls=tls
    )
    async with (
        client,
        streamable_http_client(
            settings.url, http_client=client, max_sse_event_size=MAX_LINE_BYTES
        ) as (reader, writer),
    ):
        yield _HttpStream(reader), writer, get_failure
