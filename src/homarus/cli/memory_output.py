"""The output of `homarus memory`: results with citations, the status table, progress."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from homarus.config.paths import shorten
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line

if TYPE_CHECKING:
    from homarus.memory.base import FallbackNotice, MemoryStatus, NoteWrite, SearchResponse
    from homarus.memory.index import SyncReport
    from homarus.memory.note_files import SkippedFile
    from homarus.memory.results import SearchResult
    from homarus.memory.spec import MemorySpec

_NAMED = 10  # skipped files; the rest are counted
_DRAW_DELAY_S = 0.3  # work that ends sooner needs no bar
_REDRAW_S = 0.1
_WIDTH = 24


def describe_embedder(provider: str, model: str) -> str:
    """Describe what compared the texts."""
    if provider in {"", "none"}:
        return "words only"
    return f"words and {provider} {model}".rstrip()


def describe_comparison(status: "MemoryStatus") -> str:
    """Describe what an index is compared by: words, if no line has a vector."""
    made = status.vectors or not status.files
    return describe_embedder(status.provider, status.model) if made else describe_embedder("", "")


def show_results(answer: "SearchResponse") -> Iterator[str]:
    """Format snippets with their citations, best first."""
    for result in answer.results:
        yield f"{escape_invisible(result.citation)}  {result.score:.2f}{_source(result)}"
        yield from (f"  {escape_invisible(line)}" for line in result.snippet.splitlines())
        yield ""
    count = len(answer.results)
    embedder = describe_embedder(answer.provider, answer.model)
    summary = f"{count} result{'s' if count != 1 else ''}, {embedder}"
    yield summary if answer.backend == "builtin" else f"{summary}, {answer.backend}"


def _source(result: "SearchResult") -> str:
    return "" if result.source == "memory" else f"  ({result.source})"


def show_nothing(query: str) -> Iterator[str]:
    """Format what to do when there is no result."""
    yield f"Nothing found for {one_line(query)!r}."
    yield "  → homarus memory status says what is indexed"
    yield "  → homarus memory index --force reads everything again"


def show_fallback(fallback: "FallbackNotice | None") -> str:
    """Format why something else was used."""
    return (
        f"{fallback.wanted} could not be used: {escape_invisible(fallback.why)}" if fallback else ""
    )


def show_report(report: "SyncReport", took_s: float, by: str) -> Iterator[str]:
    """Format what indexing did."""
    if report.rebuilt:
        yield f"The index was made anew: {escape_invisible(report.rebuilt)}."
    count, gone = len(report.indexed), len(report.removed)
    parts = [f"{_counted(count, 'file')} indexed", f"{report.unchanged} unchanged"]
    parts += [f"{gone} gone"] if gone else []
    parts.append(_counted(report.lines, "line"))
    parts += [f"{report.embedded:,} embedded"] if report.embedded else []
    yield f"{', '.join(parts)} in {took_s:.1f} s ({by})."
    if report.unembedded:
        why = escape_invisible(report.problem)
        yield f"{_counted(report.unembedded, 'line')} found by words only, until later: {why}"
    yield from show_skipped(report.skipped)
    if report.inexact:
        names = ", ".join(escape_invisible(path) for path in report.inexact[:_NAMED])
        yield f"Not UTF-8 throughout, read as well as it can be: {names}{_more(report.inexact)}"


def show_skipped(skipped: "Iterable[SkippedFile]") -> Iterator[str]:
    """Format the files that are not in the index, by name."""
    listed = list(skipped)
    if listed:
        yield f"{_counted(len(listed), 'file')} skipped:"
    for one in listed[:_NAMED]:
        yield f"  {escape_invisible(one.path)}  {escape_invisible(one.why)}"
    if len(listed) > _NAMED:
        yield f"  and {len(listed) - _NAMED:,} more (--json names all of them)"


def _more(names: tuple[str, ...]) -> str:
    return f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""


def show_written(written: "NoteWrite") -> str:
    """Format where text was written."""
    last = f"-L{written.end_line}" if written.end_line != written.start_line else ""
    where = f"{escape_invisible(written.path)}#L{written.start_line}{last}"
    return f"Written to {where}." if written.added else f"It stands there already: {where}."


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What `status` found out about one memory; without a status, `problem` says why."""

    spec: "MemorySpec"
    status: "MemoryStatus | None" = None
    size_bytes: int | None = None  # of the index, before it was opened
    skipped: "tuple[SkippedFile, ...]" = ()
    probe: "EmbedderProbe | None" = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class EmbedderProbe:
    """The result of embedding a text; `attempts` are the providers skipped before."""

    ok: bool
    summary: str
    attempts: tuple[tuple[str, str], ...] = ()


def show_status(report: MemoryReport) -> Iterator[tuple[str, str]]:
    """Return the rows of the status table."""
    spec, status, size = report.spec, report.status, report.size_bytes
    yield "agent", spec.agent
    yield "workspace", shorten(spec.workspace, spec.home)
    if status is None:
        yield "problem", escape_invisible(report.problem)
        return
    summary = f" ({size / 1_000_000:.1f} MB)" if size is not None else " (new)"
    yield "index", shorten(spec.database, spec.home) + summary
    yield "backend", status.backend
    yield "compares", describe_comparison(status)
    yield "because", escape_invisible(status.why)
    yield "sources", ", ".join(status.sources)
    contents = f"{_counted(status.files, 'file')}, {_counted(status.lines, 'line')}"
    contents = f"{contents}, {_counted(status.chunks, 'passage')}"
    yield "holds", f"{contents}, {_counted(status.vectors, 'vector')}"
    yield "state", _state(status)
    yield "fallback", show_fallback(status.fallback)
    yield "problem", escape_invisible(status.problem)
    for note in status.notes:
        yield "note", escape_invisible(note)
    if report.probe:
        yield from ((f"not {name}", escape_invisible(why)) for name, why in report.probe.attempts)
        yield "trial", escape_invisible(report.probe.summary)


def memory_report_json(report: MemoryReport) -> dict[str, Json]:
    """Encode the status for programs."""
    from homarus.memory.serialize import skipped_json, status_json

    spec, status = report.spec, report.status
    summary: dict[str, Json] = status_json(status) if status else {"problem": report.problem}
    if probe := report.probe:
        attempts = [{"provider": name, "why": why} for name, why in probe.attempts]
        summary["embedding"] = {"ok": probe.ok, "told": probe.summary, "tried": attempts}
    return {
        "agentId": spec.agent,
        "workspaceDir": str(spec.workspace),
        "dbPath": str(spec.database),
        **summary,
        "dbBytes": report.size_bytes,
        "skipped": [skipped_json(one) for one in report.skipped],
    }


def _state(status: "MemoryStatus") -> str:
    if not status.files:
        how = "nothing is indexed yet: homarus memory index"
        return how if status.dirty else "there are no notes yet"
    summary = "files changed since it was made" if status.dirty else "up to date"
    return f"{summary}; words of it were looked for, and found" if status.tested else summary


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Print a table without empty rows."""
    listed = [(name, text) for name, text in rows if text]
    width = max((len(name) for name, _ in listed), default=0)
    for name, text in listed:
        click.echo(f"{name:<{width}}  {text}")


class ProgressBar:
    """A progress bar on a terminal, once indexing takes a while; elsewhere nothing.

    It is called from memory's own thread.
    """

    def __init__(self, *, live: bool | None = None) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._next_s = time.monotonic() + _DRAW_DELAY_S
        self._shown = 0

    def __call__(self, done: int, total: int, what: str) -> None:
        now_s = time.monotonic()
        if not self._live or not total or now_s < self._next_s:
            return
        self._next_s = now_s + _REDRAW_S
        full = _WIDTH * min(done, total) // total
        line = f"[{'#' * full:.<{_WIDTH}}] {done:,} of {total:,}  {one_line(what, 40)}"
        click.echo(f"\r{line:<{self._shown}}", err=True, nl=False)
        self._shown = len(line)

    def clear(self) -> None:
        """Remove the bar from the screen."""
        if self._shown:
            click.echo(f"\r{'':<{self._shown}}\r", err=True, nl=False)
            self._shown = 0


def warn_notes(notes: Iterable[str], fallback: "FallbackNotice | None") -> None:
    """Print notices about the results."""
    for note in (*notes, show_fallback(fallback)):
        if note:
            click.echo(escape_invisible(note), err=True)
