"""The memory methods of the gateway, for the owner's clients, who see everything.

A client that may write to an agent may search its memory, since it could ask the agent; a client
that may only watch sessions may not read private notes. The memory package is imported at the first
use.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
from homarus.core.errors import InvalidRequestError, ToolError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Count, MessageText, Name

if TYPE_CHECKING:
    from homarus.memory.agent_memory import AgentMemory

_MAX_RESULTS = 1000
_MAX_NOTES = 1000


class MemoryStatusParams(Params):
    """The agent; the default agent without an id."""

    agent_id: Name | None = None


@method("memory.status", scope="read", params=MemoryStatusParams, advertised=False)
async def status(call: MethodCall, params: MemoryStatusParams) -> Json:
    """What is indexed, by what, and whether it is up to date."""
    memory = await _memory(call, params.agent_id)
    found = await memory.status()
    from homarus.memory.serialize import status_json

    return status_json(found)


class MemorySearchParams(MemoryStatusParams):
    """A query, and the limits of the response."""

    query: Annotated[str, Field(min_length=1, max_length=10_000)]
    mode: Literal["lines", "passages"] = "lines"
    max_results: Annotated[int, Field(ge=1, le=_MAX_RESULTS)] | None = None
    min_score: Annotated[float, Field(ge=0, le=1)] | None = None
    max_chars: Count | None = None


@method("memory.search", scope="write", params=MemorySearchParams, advertised=False)
async def search(call: MethodCall, params: MemorySearchParams) -> Json:
    """Lines or passages that answer a question, with where they stand, best first."""
    if not params.query.strip():
        raise InvalidRequestError(
            "invalid memory.search params: at query: there is nothing to look for"
        )
    memory = await _memory(call, params.agent_id)
    from homarus.memory.base import SearchOptions
    from homarus.memory.serialize import answer_json

    target, min_score = memory.spec, params.min_score
    options = SearchOptions(
        mode=params.mode,
        max_results=params.max_results or target.max_results,
        max_injected_chars=params.max_chars,
        min_score=target.search.query.min_score if min_score is None else min_score,
    )
    return answer_json(await memory.search(params.query, options))


class MemoryGetParams(MemoryStatusParams):
    """The note, and which of its lines."""

    path: Name
    from_: Annotated[Count | None, Field(alias="from")] = None
    lines: Count | None = None


@method("memory.get", scope="write", params=MemoryGetParams, advertised=False)
async def get(call: MethodCall, params: MemoryGetParams) -> Json:
    """A note, or some lines of it, word for word."""
    memory = await _memory(call, params.agent_id)
    with _as_request():
        found = await memory.get(params.path, from_line=params.from_, lines=params.lines)
    from homarus.memory.serialize import excerpt_json

    return excerpt_json(found)


class MemoryWriteParams(MemoryStatusParams):
    """The text, and the note; today's note without one."""

    text: MessageText
    path: Name | None = None


@method("memory.write", scope="write", params=MemoryWriteParams, advertised=False)
async def write(call: MethodCall, params: MemoryWriteParams) -> Json:
    """Add to a note what does not stand there yet."""
    if not params.text.strip():
        raise InvalidRequestError("invalid memory.write params: at text: there is nothing to write")
    memory = await _memory(call, params.agent_id)
    with _as_request():
        written = await memory.write(params.text, to=params.path)
    from homarus.memory.serialize import written_json

    return written_json(written)


class MemoryIndexParams(MemoryStatusParams):
    """`force` reads every file again."""

    force: bool = False


@method("memory.index", scope="admin", params=MemoryIndexParams, advertised=False)
async def index(call: MethodCall, params: MemoryIndexParams) -> Json:
    """Bring the index to what the files say."""
    memory = await _memory(call, params.agent_id)
    report = await memory.sync(force=params.force)
    from homarus.memory.serialize import report_json

    return report_json(report)


class MemoryNotesParams(MemoryStatusParams):
    """The agent, and how many notes: the newest."""

    limit: Annotated[int, Field(ge=1, le=_MAX_NOTES)] = 200


@method("memory.notes", scope="write", params=MemoryNotesParams, advertised=False)
async def notes(call: MethodCall, params: MemoryNotesParams) -> Json:
    """The notes of an agent, those about a day first, newest first; and skipped files. Ours."""
    memory = await _memory(call, params.agent_id)
    from homarus.memory.note_listing import list_notes

    return await asyncio.to_thread(list_notes, memory.spec.workspace, params.limit)


async def _memory(call: MethodCall, agent_id: str | None) -> "AgentMemory":
    """Return the memory of an agent. Raises UnknownNameError."""
    services = call.services
    config = services.loaded.config
    agent = resolve_agent_settings(config, services.paths, agent_id or default_agent_id(config)).id
    # Some megabytes of code, once: they are imported beside the loop.
    await asyncio.to_thread(import_module, "homarus.memory.agent_memory")
    return services.memory.get(agent)


@contextmanager
def _as_request() -> Iterator[None]:
    """Convert tool errors into invalid requests."""
    try:
        yield
    except ToolError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from None
