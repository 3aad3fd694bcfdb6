"""The memory tools of the model: `memory_search`, `memory_get`, `memory_write`.

The session key of the run determines what the model sees; no argument can change that. Results are
JSON, so that the text of a note cannot be mistaken for anything else. The index code is imported
with the first call.
"""

import asyncio
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from pydantic import AliasChoices, Field

from homarus.core.errors import HomarusError, ToolDeniedError, ToolError
from homarus.core.message import Json
from homarus.core.session_keys import chat_type_of
from homarus.memory.scope import is_search_allowed
from homarus.memory.view import MemoryView, audience_of, view_for
from homarus.tools.effects import write_effects
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, tool

if TYPE_CHECKING:
    from homarus.config.memory import MemoryConfig, QmdLimitsConfig
    from homarus.memory.base import (
        NoteExcerpt,
        NoteWrite,
        NoteWriteOptions,
        SearchOptions,
        SearchResponse,
    )
    from homarus.memory.results import SearchResult
    from homarus.memory.spec import MemorySpec

MAX_RESULTS = 50
_MAX_TEXT_CHARS = 26_000  # of JSON, below the limit at which tool results are cut
_DENIED = "memory may not be used in this conversation"


class ToolMemory(Protocol):
    """What the tools need of an `AgentMemory`."""

    @property
    def spec(self) -> "MemorySpec": ...

    async def search(
        self, text: str, options: "SearchOptions | None" = None
    ) -> "SearchResponse": ...

    async def get(
        self,
        path: str,
        *,
        from_line: int | None = None,
        lines: int | None = None,
        view: MemoryView = ...,
    ) -> "NoteExcerpt": ...

    async def write(
        self,
        text: str,
        *,
        to: str | None = None,
        audience: str = ...,
        options: "NoteWriteOptions" = ...,
    ) -> "NoteWrite": ...


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the memory tools for an agent that has a memory."""
    return memory_tools(context.memory) if context.memory else []


def memory_tools(memory: Callable[[], ToolMemory]) -> list[Tool]:
    """Return the tools of one agent; `memory` is called at the first use."""

    async def get_memory(ctx: ToolContext) -> ToolMemory:
        # Some megabytes of code, once: they are imported beside the loop.
        await asyncio.to_thread(importlib.import_module, "homarus.memory.agent_memory")
        return _check_allowed(memory(), ctx)

    @tool(group="memory", idempotent=True)
    async def memory_search(
        ctx: ToolContext,
        query: Annotated[str, Field(min_length=1, max_length=2_000)],
        max_results: Annotated[
            int | None, Field(validation_alias=AliasChoices("maxResults"), ge=1)
        ] = None,
        min_score: Annotated[
            float | None, Field(validation_alias=AliasChoices("minScore"), ge=0, le=1)
        ] = None,
    ) -> str:
        """Search your notes: MEMORY.md, memory/*.md, past conversations where those are kept.

        Ask as a person would, with the names and dates you know. memory_get shows what is around
        a result.
        """
        if not query.strip():
            raise ToolError("there is nothing to look for", fix="ask with words")
        try:
            agent_memory = await get_memory(ctx)
            return await _search(agent_memory, ctx.session_key, query, max_results, min_score)
        except HomarusError as exc:  # the model can answer without it
            return _to_json({"results": [], "disabled": True, "error": str(exc)})

    @tool(group="memory", idempotent=True)
    async def memory_get(
        ctx: ToolContext,
        path: Annotated[str, Field(description="As memory_search gives it")],
        from_: Annotated[
            int | None,
            Field(validation_alias=AliasChoices("from"), ge=1, description="First line, from 1"),
        ] = None,
        lines: Annotated[int | None, Field(ge=1)] = None,
    ) -> str:
        """Read a note, or some lines of it: MEMORY.md, memory/*.md, or a path that was found."""
        agent_memory, view = await get_memory(ctx), view_for(ctx.session_key)
        return _shown(await agent_memory.get(path, from_line=from_, lines=lines, view=view))

    @tool(group="memory", idempotent=True, effects=write_effects)
    async def memory_write(
        ctx: ToolContext,
        text: Annotated[str, Field(description="One fact a line")],
        path: Annotated[
            str | None, Field(description="A note, as memory/people.md; without, today's")
        ] = None,
        *,
        mode: Literal["append", "replace", "insert"] = "append",
        old_text: Annotated[
            str | None,
            Field(
                validation_alias=AliasChoices("oldText", "old_text"),
                description="For replace: the exact text, there once",
            ),
        ] = None,
        line: Annotated[int | None, Field(ge=1, description="For insert: before this line")] = None,
    ) -> str:
        """Write down what should be remembered, at the end of today's note or of a named one.

        Lines that stand there already are not added again. To correct a note, replace its old
        text; with an empty text, that is forgotten.
        """
        agent_memory, audience = await get_memory(ctx), audience_of(ctx.session_key)
        from homarus.memory.base import NoteWriteOptions
        from homarus.memory.serialize import written_json

        options = NoteWriteOptions(mode, old_text or "", line, ctx.session_name, ctx.access)
        done = await agent_memory.write(text, to=path, audience=audience, options=options)
        return _to_json(written_json(done))

    return [memory_search, memory_get, memory_write]


def _check_allowed(memory: ToolMemory, ctx: ToolContext) -> ToolMemory:
    """Return the memory; raises ToolDeniedError where it may not be used."""
    if not memory.spec.search.enabled:
        raise ToolDeniedError("memory is switched off", fix="agents.defaults.memorySearch.enabled")
    channel = ctx.here.channel if ctx.here else ""
    if not is_search_allowed(memory.spec.settings.qmd.scope, ctx.session_key, channel):
        raise ToolDeniedError(_DENIED, fix="say so, if you were asked for it")
    return memory


async def _search(
    memory: ToolMemory, key: str, query: str, max_results: int | None, min_score: float | None
) -> str:
    from homarus.memory.base import SearchOptions

    settings, defaults = memory.spec.settings, memory.spec.search.query
    limits = settings.qmd.limits
    options = SearchOptions(
        max_results=min(max_results or memory.spec.max_results, MAX_RESULTS),
        max_snippet_chars=limits.max_snippet_chars,
        max_injected_chars=limits.max_injected_chars,
        min_score=defaults.min_score if min_score is None else min_score,
        view=view_for(key),
    )
    answer = await memory.search(query, options)
    payload: dict[str, Json] = {
        "results": _results(answer.results, limits, cited=shows_source(settings, key)),
        "provider": answer.provider,
        "model": answer.model,
        "citations": settings.citations,
        "mode": "fts-only" if answer.provider == "none" else "hybrid",
    }
    if answer.fallback:
        payload["fallback"] = {"from": answer.fallback.wanted, "reason": answer.fallback.why}
    return _to_json(payload)


def shows_source(settings: "MemoryConfig", key: str) -> bool:
    """Return whether results name their source: by default in direct chats, not in groups."""
    if settings.citations == "auto":
        return chat_type_of(key) == "direct"
    return settings.citations == "on"


def _results(
    results: Sequence["SearchResult"], limits: "QmdLimitsConfig", *, cited: bool
) -> list[Json]:
    """Return results within the limits; a source that does not fit in the text is a field only."""
    from homarus.memory.serialize import result_json

    rows: list[Json] = []
    left = limits.max_injected_chars
    for one in results:
        if len(one.snippet) > left:
            break
        row = result_json(one)
        left -= len(one.snippet)
        line = f"\n\nSource: {one.citation}"
        if not cited:
            del row["citation"]
        elif len(line) <= left:
            row["snippet"] = one.snippet + line
            left -= len(line)
        rows.append(row)
    return rows


def _shown(excerpt: "NoteExcerpt") -> str:
    """Return lines of a note as JSON; lines that do not fit are left for the next call."""
    lines = excerpt.text.split("\n") if excerpt.lines else []
    more = excerpt.more
    while True:
        payload: dict[str, Json] = {"path": excerpt.path, "text": "\n".join(lines)}
        if not lines:
            payload["note"] = f"there is no line {excerpt.from_line}: the note ends before it"
        elif more:
            payload["nextFrom"] = excerpt.from_line + len(lines)
        text = _to_json(payload)
        if len(text) <= _MAX_TEXT_CHARS:
            return text
        half, more = len(lines) // 2, True
        lines = lines[:half] or [lines[0][: len(lines[0]) // 2]]  # one line of escaped characters


def _to_json(value: Mapping[str, Json]) -> str:
    return json.dumps(value, ensure_ascii=False)
