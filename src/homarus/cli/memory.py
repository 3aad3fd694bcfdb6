"""`homarus memory`: search, read and write what an agent remembers.

It needs no gateway. If one serves the same state, both have the index open, and each sees the
other's changes. The user of the command line is the agent's owner and sees everything.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.memory_files import stat_index
from homarus.cli.memory_output import (
    EmbedderProbe,
    MemoryReport,
    ProgressBar,
    describe_comparison,
    memory_report_json,
    print_rows,
    show_nothing,
    show_report,
    show_results,
    show_skipped,
    show_status,
    show_written,
    warn_notes,
)
from homarus.cli.memory_target import (
    MemoryTarget,
    memory_target_options,
    open_memory,
    resolve_memories,
    resolve_memory,
)
from homarus.cli.options import limit_option
from homarus.core.errors import HomarusError, UserError

if TYPE_CHECKING:
    from homarus.core.message import Json
    from homarus.memory.agent_memory import AgentMemory
    from homarus.memory.base import MemoryStatus, Progress, SearchOptions, SearchResponse
    from homarus.memory.index import SyncReport
    from homarus.memory.spec import MemorySpec

T = TypeVar("T")
_SYNC_TIMEOUT_S = 30.0  # of waiting for the sync before a search
_MAX_TEXT_BYTES = 1 << 20


@click.group("memory", cls=CommandGroup)
@examples('homarus memory search "birthday"', 'homarus memory write "Ada moved to Kiel"')
def command() -> None:
    """Search, read and write an agent's memory; manage its index."""


def _search_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options of a search; the config has the defaults."""

    @wraps(command)
    def with_options(
        *args: Any,
        mode: Literal["lines", "passages"],
        max_results: int | None,
        min_score: float | None,
        max_chars: int | None,
        **named: Any,
    ) -> T:
        def make_options(spec: "MemorySpec") -> "SearchOptions":
            from homarus.memory.base import SearchOptions

            return SearchOptions(
                mode=mode,
                max_results=max_results or spec.max_results,
                max_injected_chars=max_chars,
                min_score=spec.search.query.min_score if min_score is None else min_score,
            )

        return command(*args, make_options=make_options, **named)

    wrapped: Callable[..., T] = with_options
    for name, kind, default, text in (
        ("--max-chars", click.IntRange(min=1), "no limit", "How many characters at most."),
        (
            "--min-score",
            click.FloatRange(0, 1),
            "memorySearch.query.minScore",
            "Only results with at least this score.",
        ),
    ):
        wrapped = click.option(name, type=kind, show_default=default, help=text)(wrapped)
    limit = limit_option(
        "How many results at most.",
        1000,
        default_text="memorySearch.query.maxResults",
        name="max_results",
        old_name="--max-results",
    )
    wrapped = limit(wrapped)
    return click.option(
        "--mode",
        type=click.Choice(["lines", "passages"]),
        default="lines",
        help="Single lines with the lines around them, or whole passages.",
    )(wrapped)


@command.command("search")
@examples(
    'homarus memory search "Where does Ada live?"', "homarus memory search boat --limit 3 --json"
)
@click.argument("query")
@_search_options
@memory_target_options
@as_json_option
def search_command(
    query: str,
    make_options: "Callable[[MemorySpec], SearchOptions]",
    target: MemoryTarget,
    *,
    as_json: bool,
) -> None:
    """Search the notes for QUERY and show the lines that match."""
    if not query.strip():
        raise UserError("there is nothing to look for", fix='homarus memory search "WORDS"')
    spec = resolve_memory(target)

    async def search(memory: "AgentMemory", bar: "Progress") -> "SearchResponse":
        with suppress(TimeoutError):  # the search then uses the index as it is, and says so
            async with asyncio.timeout(_SYNC_TIMEOUT_S):
                await _sync(memory, bar)
        return await memory.search(query, make_options(spec))

    answer = _work(spec, search)
    if as_json:
        from homarus.memory.serialize import answer_json

        _print_json(answer_json(answer))
        return
    warn_notes(answer.notes, answer.fallback)
    shown = show_results(answer) if answer.results else show_nothing(query)
    click.echo("\n".join(shown))


@command.command("index")
@examples("homarus memory index", "homarus memory index --force")
@click.option("--force", is_flag=True, help="Index every file again.")
@memory_target_options
@as_json_option
def index_command(target: MemoryTarget, *, force: bool, as_json: bool) -> None:
    """Update the index from the files."""
    spec = resolve_memory(target)
    started_s = time.monotonic()

    async def sync(memory: "AgentMemory", bar: "Progress") -> "tuple[SyncReport, MemoryStatus]":
        report = await memory.sync(force=force, progress=bar)
        return report, await memory.status()

    report, status = _work(spec, sync)
    elapsed_s = time.monotonic() - started_s
    if as_json:
        from homarus.memory.serialize import report_json, status_json

        elapsed = {"tookMs": round(elapsed_s * 1000)}
        _print_json({**report_json(report), **elapsed, "status": status_json(status)})
        return
    warn_notes([status.why], status.fallback)
    click.echo("\n".join(show_report(report, elapsed_s, describe_comparison(status))))


@command.command("status")
@examples("homarus memory status", "homarus memory status --deep")
@click.option("--deep", is_flag=True, help="Also test the embedder.")
@click.option("--index", "first", is_flag=True, help="Update the index first.")
@memory_target_options
@as_json_option
def status_command(target: MemoryTarget, *, deep: bool, first: bool, as_json: bool) -> None:
    """Show what is indexed, by which embedder, and which files are skipped and why."""
    found = [_inspect(spec, deep=deep, first=first) for spec in resolve_memories(target)]
    if as_json:
        _print_json({"agents": [memory_report_json(one) for one in found]})
        return
    for number, report in enumerate(found):
        if number:
            click.echo("")
        print_rows(show_status(report))
        for line in show_skipped(report.skipped):
            click.echo(line)


def _inspect(spec: "MemorySpec", *, deep: bool, first: bool) -> MemoryReport:
    from homarus.memory.note_files import SkippedFile, find_notes

    if not spec.workspace.is_dir():
        return MemoryReport(spec, problem="there is no workspace; homarus setup makes it")
    index = stat_index(spec.database)
    size = index.size_bytes if index else None
    found = find_notes(spec.workspace, spec.extra())
    skipped = tuple(one for one in found if isinstance(one, SkippedFile))

    async def inspect(memory: "AgentMemory", bar: "Progress") -> MemoryReport:
        if not first:
            return MemoryReport(spec, await memory.status(), size, skipped)
        report = await memory.sync(progress=bar)
        status = replace(await memory.status(), notes=())  # skipped files are named below
        return MemoryReport(spec, status, size, report.skipped)

    try:
        report = _work(spec, inspect)
    except HomarusError as exc:  # the status of the other agents is shown all the same
        return MemoryReport(spec, problem=str(exc))
    return replace(report, probe=_try_embedder(spec)) if deep else report


def _try_embedder(spec: "MemorySpec") -> EmbedderProbe:
    """Embed one short text with the selected embedder."""
    from homarus.memory.embed.selection import select_embedder

    chosen = select_embedder(spec, tell=lambda _text: None)
    attempts = tuple((one.provider, one.outcome) for one in chosen.tried)
    embedder = chosen.embedder
    if embedder is None:
        return EmbedderProbe(chosen.fallback is None, f"nothing to try: {chosen.why}", attempts)
    started_s = time.monotonic()
    try:
        vector = embedder.embed_question("Is anybody there?")
        model = embedder.model
    except HomarusError as exc:
        return EmbedderProbe(ok=False, summary=str(exc), attempts=attempts)
    finally:
        embedder.close()
    took_ms = round((time.monotonic() - started_s) * 1000)
    text = f"{model.provider} {model.name} gave {len(vector)} numbers after {took_ms} ms"
    return EmbedderProbe(ok=True, summary=text, attempts=attempts)


@command.command("get")
@examples(
    "homarus memory get MEMORY.md", "homarus memory get memory/2026-11-15.md --from 10 --limit 5"
)
@click.argument("path")
@click.option("--from", "from_line", type=click.IntRange(min=1), default=1, help="The first line.")
@limit_option("How many lines at most.", 1_000_000, default_text="all", old_name="--lines")
@memory_target_options
@as_json_option
def get_command(
    path: str, from_line: int, limit: int | None, target: MemoryTarget, *, as_json: bool
) -> None:
    """Print a note, or some of its lines."""
    spec = resolve_memory(target)
    found = _work(spec, lambda memory, _bar: memory.get(path, from_line=from_line, lines=limit))
    if as_json:
        from homarus.memory.serialize import excerpt_json

        _print_json(excerpt_json(found))
    else:
        click.echo(found.text)


@command.command("write")
@examples(
    'homarus memory write "Ada moved to Kiel"', "homarus memory write - --to MEMORY.md < notes.txt"
)
@click.argument("text")
@click.option(
    "--to", metavar="PATH", show_default="today's note", help="The note: MEMORY.md or memory/….md."
)
@memory_target_options
@as_json_option
def write_command(text: str, to: str | None, target: MemoryTarget, *, as_json: bool) -> None:
    """Append TEXT to a note; `-` reads it from standard input."""
    content = _text_of(text)
    spec = resolve_memory(target, make=True)
    written = _work(spec, lambda memory, _bar: memory.write(content, to=to))
    if as_json:
        from homarus.memory.serialize import written_json

        _print_json(written_json(written))
    else:
        click.echo(show_written(written))


def _text_of(text: str) -> str:
    if text == "-":
        data = sys.stdin.buffer.read(_MAX_TEXT_BYTES + 1)
        if len(data) > _MAX_TEXT_BYTES:
            raise UserError("that is more than 1 MB", fix="put the file into memory/ yourself")
        text = data.decode("utf-8", "replace")
    if not text.strip():
        raise UserError("there is nothing to write", fix='homarus memory write "WORDS"')
    return text


@command.command("bench-stdio", hidden=True)  # for programs that measure the search
@_search_options
@memory_target_options
def bench_command(
    make_options: "Callable[[MemorySpec], SearchOptions]", target: MemoryTarget
) -> None:
    """Answer questions that are JSON lines, {"id", "query", "k"}, as `search` does."""
    from homarus.cli.memory_stdio import serve

    spec = resolve_memory(target)

    async def answer(memory: "AgentMemory", bar: "Progress") -> None:
        await _sync(memory, bar)
        status = await memory.status()
        warn_notes([describe_comparison(status), status.why], status.fallback)
        await serve(memory, make_options(spec), sys.stdin.buffer, sys.stdout)

    _work(spec, answer)


async def _sync(memory: "AgentMemory", bar: "Progress") -> None:
    """Sync however long it takes: there is no search timeout on the command line."""
    if memory.spec.search.sync.on_search:
        await memory.sync(progress=bar)


def _work(spec: "MemorySpec", do: Callable[["AgentMemory", ProgressBar], Awaitable[T]]) -> T:
    """Run work with an open memory. Ctrl-C ends it soon, and leaves the index as it was."""
    log = logging.getLogger("homarus")
    if not log.handlers:
        log.addHandler(logging.NullHandler())  # problems are printed instead
    bar = ProgressBar()

    async def main() -> T:
        try:
            async with open_memory(spec) as memory:
                return await do(memory, bar)
        finally:
            bar.clear()

    return asyncio.run(main())


def _print_json(value: "Json") -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
