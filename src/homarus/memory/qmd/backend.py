"""qmd as a memory backend: searched with a timeout, updated in the background.

    with closing(QmdBackend(spec)) as qmd:
        qmd.sync()
        response = qmd.search("When did Ada move?", SearchOptions())

An update runs in a thread of its own, so that it can continue in the background, and be stopped. A
sync waits for it briefly: a small workspace is then up to date, and for a large one the previous
index answers.
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from homarus.core.errors import HomarusError, NotFoundError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.core.units import parse_duration_ms
from homarus.memory.base import (
    MemoryStatus,
    Progress,
    SearchOptions,
    SearchResponse,
    ignore_progress,
)
from homarus.memory.embed.base import OnCost
from homarus.memory.index import SyncReport
from homarus.memory.qmd.collections import PREFIX, SESSIONS, QmdDocument, find_document
from homarus.memory.qmd.output import (
    QmdResultBuilder,
    QmdRow,
    query_needles,
    query_words,
    read_rows,
)
from homarus.memory.qmd.process import QmdProcess, folders_of
from homarus.memory.qmd.registry import CollectionRegistry, remove_index
from homarus.memory.results import SearchResult
from homarus.memory.spec import MemorySpec
from homarus.memory.transcript_export import export_sessions, exports_folder
from homarus.memory.view import EVERYTHING, MemoryView
from homarus.store.state_paths import make_private_dir

T = TypeVar("T")
log = logging.getLogger(__name__)

_SCHEME = "qmd://"
_TELL_S = 0.2  # interval of progress calls while an update is awaited
_PATIENCE_S = 0.5  # how long a search waits for a running update
_MAX_QUESTION_CHARS = 2_000
_SPARE = 6  # results requested beyond the limit: some name files that are gone
_MANY = 200  # requested when the view may hide most of them
_TYPED_SINCE: Final = (2, 1)  # the version since which keywords can be searched one by one
_DASHES = re.compile(r"(?<!\S)-+")
_VERSION = re.compile(r"(\d+)\.(\d+)")
_DAMAGED = re.compile(r"not a database|malformed", re.IGNORECASE)
_COUNTS = re.compile(r"Indexed: (\d+) new, (\d+) updated, (\d+) unchanged, (\d+) removed")
_HEADING = re.compile(r"^\[\d+/\d+\] (\S+)", re.MULTILINE)
_TOTAL = re.compile(r"^\s*Total:\s+(\d+)", re.MULTILINE)
_VECTORS = re.compile(r"^\s*Vectors:\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _QmdQuery:
    """A query, the collections to search, and its limits."""

    question: str
    collections: Sequence[str]
    count: int
    limit_ms: int

    @property
    def within(self) -> tuple[str, ...]:
        named = (word for one in self.collections for word in ("-c", one))
        return ("--json", "-n", str(self.count), *named)


def create(spec: MemorySpec, on_cost: OnCost) -> "QmdBackend":
    """Open the backend; qmd embeds locally, so there are no costs."""
    return QmdBackend(spec)


def sync_interval_s(spec: MemorySpec) -> float:
    """Return `memory.qmd.update.interval` in seconds."""
    return parse_duration_ms(spec.settings.qmd.update.interval, "m") / 1000


class QmdBackend:
    """One agent's notes in the index of qmd. Raises StoreError when qmd fails."""

    def __init__(self, spec: MemorySpec, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._spec, self._monotonic = spec, monotonic
        self._settings = spec.settings.qmd
        self._program = QmdProcess(spec)
        self._registry = CollectionRegistry(spec, self._program)
        self._update: threading.Thread | None = None
        self._opened_s = monotonic()
        self._updated_s: float | None = None
        self._embedded_s: float | None = None
        self._report = SyncReport()
        self._problem = ""
        self._failure: HomarusError | None = None
        self._takes_words: bool | None = None

    def sync(self, *, force: bool = False, progress: Progress = ignore_progress) -> SyncReport:
        """Start an update when it is due; `force` does it now, and waits."""
        update = self._settings.update
        is_boot = self._updated_s is None and update.on_boot
        if force:
            self._await_update(math.inf, progress)
        is_due = force or self._is_due()
        if is_due or not self._is_settled:
            self._begin_update(is_due=is_due, is_forced=force)
        must_wait = force or (is_boot and update.wait_for_boot_sync)
        self._await_update(math.inf if must_wait else _PATIENCE_S, progress)
        while self._is_updating and not self._is_settled:
            self._await_update(_PATIENCE_S, progress)
        if self._failure and (force or not self._is_settled):
            raise self._failure
        return self._report

    def search(self, text: str, options: SearchOptions) -> SearchResponse:
        """Return what qmd finds and the view shows, cut from the files as they are now."""
        question = _clean(text)
        limits = self._settings.limits
        limit_ms = limits.timeout_ms if options.timeout_ms is None else options.timeout_ms
        if not self._is_settled:
            self._settle(wait_ms=limit_ms)
        searched = [one.name for one in self._registry.collections or ()]
        results: list[SearchResult] = []
        notes: tuple[str, ...] = ()
        if question and searched and options.max_results > 0:
            count = options.max_results + _SPARE if options.view == EVERYTHING else _MANY
            asked = _QmdQuery(question, searched, count, limit_ms)
            documents, lost = self._documents(self._mend(lambda: self._ask(asked)), options.view)
            results = self._show(question, documents, options)
            if lost:
                notes = (f"{lost} results of qmd name files that are not there",)
        mode = self._settings.search_mode
        return SearchResponse(
            tuple(results), backend="qmd", provider="qmd", model=mode, notes=notes
        )

    def status(self) -> MemoryStatus:
        """Return what qmd reports about its index."""
        timeout_ms = self._settings.update.command_timeout_ms
        said = self._program.run("status", timeout_ms=timeout_ms)
        spec, files, vectors = self._spec, _TOTAL.search(said), _VECTORS.search(said)
        sources = ("memory", "sessions") if self._settings.sessions.enabled else ("memory",)
        return MemoryStatus(
            agent=spec.agent,
            workspace=str(spec.workspace),
            database=str(folders_of(spec).index),
            backend="qmd",
            provider="qmd",
            model=self._settings.search_mode,
            files=int(files[1]) if files else 0,
            lines=0,
            chunks=0,
            vectors=int(vectors[1]) if vectors else 0,
            generation=0,
            sources=sources,
            dirty=self._is_updating or self._updated_s is None,
            tested=self._updated_s is not None and not self._problem,
            problem=self._problem,
        )

    def stop(self) -> None:
        """Stop running commands, and start nothing more."""
        self._program.stop()

    def close(self) -> None:
        self._program.stop()
        self._await_update(math.inf)

    # --- queries

    def _ask(self, asked: "_QmdQuery") -> list[QmdRow]:
        mode = self._settings.search_mode
        began_s = time.monotonic()
        said = self._program.run(
            mode, *asked.within, "--", asked.question, timeout_ms=asked.limit_ms
        )
        rows = read_rows(said)
        if rows:
            return rows
        if mode == "vsearch" and not self.status().vectors:
            why = self._problem or "qmd embed has not run yet"
            raise StoreError(f"qmd has no vectors: {why}")
        if mode == "search":
            spent_ms = int((time.monotonic() - began_s) * 1000)
            left_ms = max(1, asked.limit_ms - spent_ms) if asked.limit_ms else 0
            return self._ask_for_words(asked, left_ms)
        return []

    def _ask_for_words(self, asked: "_QmdQuery", left_ms: int) -> list[QmdRow]:
        """Search for any word, if no file has all words of the query."""
        words = query_words(asked.question)
        try:
            if not words or not self._can_take_words():
                return []
            lines = [" ".join(words), *(words if len(words) > 1 else ())]
            typed = "\n".join(f"lex: {line}" for line in lines)
            said = self._program.run(
                "query", "--no-rerank", *asked.within, "--", typed, timeout_ms=left_ms
            )
            return read_rows(said)
        except StoreError as exc:
            log.debug("qmd took no single words: %s", exc)
            return []

    def _can_take_words(self) -> bool:
        """Return whether keyword mode is safe: an older qmd loads a model of gigabytes for it."""
        if self._takes_words is None:
            timeout_ms = self._settings.update.command_timeout_ms
            found = _VERSION.search(self._program.run("--version", timeout_ms=timeout_ms))
            self._takes_words = found is not None and _numbers(found) >= _TYPED_SINCE
        return self._takes_words

    def _documents(
        self, rows: Sequence[QmdRow], view: MemoryView
    ) -> tuple[list[tuple[QmdRow, QmdDocument]], int]:
        """Return the visible files of the results, and how many results have no file."""
        known = {one.name for one in self._registry.collections or ()}
        found: list[tuple[QmdRow, QmdDocument]] = []
        lost = 0
        seen: set[tuple[int, int]] = set()
        for row in rows:
            path = row.file.removeprefix(_SCHEME)
            if path.partition("/")[0] not in known:
                continue
            try:
                document = find_document(self._spec, f"{PREFIX}{path}")
                status = document.file.stat()
            except (NotFoundError, OSError):
                lost += 1
                continue
            same = (status.st_dev, status.st_ino)  # one file by two names, or in two collections
            if view.shows(document.audience) and same not in seen:
                seen.add(same)
                found.append((row, document))
        return found, lost

    def _show(
        self, question: str, found: Sequence[tuple[QmdRow, QmdDocument]], options: SearchOptions
    ) -> list[SearchResult]:
        limits = self._settings.limits
        reader = QmdResultBuilder(
            query_needles(question), options.max_snippet_chars or limits.max_snippet_chars
        )
        room = options.max_injected_chars or limits.max_injected_chars
        shown: list[SearchResult] = []
        for row, document in found:
            if len(shown) == options.max_results:
                break
            if options.min_score is not None and row.score < options.min_score:
                continue
            result = reader.result(row, document, room)
            if result:
                shown.append(result)
                room -= len(result.snippet)
        return shown

    # --- updates

    @property
    def _is_updating(self) -> bool:
        update = self._update
        return update is not None and update.is_alive()

    def _is_due(self) -> bool:
        """Return whether an update is due; every trigger asks, so this is the rate limit."""
        if self._is_updating:
            return False
        update = self._settings.update
        interval_s = parse_duration_ms(update.interval, "m") / 1000
        if self._updated_s is None:
            return update.on_boot or (
                bool(interval_s) and self._monotonic() - self._opened_s >= interval_s
            )
        enough_s = update.debounce_ms / 1000
        if interval_s:
            enough_s = min(enough_s, interval_s)
        return self._monotonic() - self._updated_s >= enough_s

    @property
    def _is_settled(self) -> bool:
        return self._registry.collections is not None

    def _begin_update(self, *, is_due: bool, is_forced: bool) -> None:
        if not self._is_updating:
            name = f"qmd update {self._spec.agent}"
            work = partial(self._bring_up_to_date, is_due=is_due, is_forced=is_forced)
            self._update = threading.Thread(target=work, name=name, daemon=True)
            self._update.start()

    def _await_update(self, seconds: float, progress: Progress = ignore_progress) -> None:
        """Wait for the running update; `progress` is called meanwhile, and may end the wait."""
        until = time.monotonic() + seconds
        while (update := self._update) is not None:
            left = until - time.monotonic()
            update.join(max(0.0, min(left, _TELL_S)))
            if not update.is_alive():
                self._update = None
            elif left <= 0:
                return
            else:
                progress(0, 1, "qmd update")

    def _bring_up_to_date(self, *, is_due: bool, is_forced: bool) -> None:
        """Update collections, then files. A failure is stored, and logged once."""
        failure: HomarusError | None = None
        try:
            self._settle()
            if is_due:
                self._index(is_forced=is_forced)
        except HomarusError as exc:
            failure = exc
            if str(exc) != self._problem and not self._program.is_stopped:
                log.warning("memory of %s: %s", self._spec.agent, one_line(str(exc), 300))
        self._failure, self._problem = failure, str(failure or "")
        if is_due:
            self._updated_s = self._monotonic()

    def _index(self, *, is_forced: bool) -> None:
        """Export transcripts, index words, embed."""
        failed = export_sessions(self._spec).failed if self._settings.sessions.enabled else ()
        report = _report(self._mend(self._run_update))
        skipped = (replace(one, path=f"{PREFIX}{SESSIONS}/{one.path}") for one in failed)
        self._report = replace(report, skipped=tuple(skipped))
        if self._is_embedding_due(is_forced=is_forced):
            self._embedded_s = self._monotonic()
            self._program.run("embed", timeout_ms=self._settings.update.embed_timeout_ms)

    def _is_embedding_due(self, *, is_forced: bool) -> bool:
        if self._settings.search_mode == "search":
            return False
        if is_forced or self._embedded_s is None:
            return True
        interval_s = parse_duration_ms(self._settings.update.embed_interval, "m") / 1000
        return bool(interval_s) and self._monotonic() - self._embedded_s >= interval_s

    def _settle(self, *, wait_ms: int = 0) -> None:
        """Register the collections with qmd."""
        if self._settings.sessions.enabled:
            folder = exports_folder(self._spec)
            try:
                make_private_dir(folder)
            except OSError as exc:
                raise StoreError(f"{folder} cannot be made: {exc.strerror}") from exc
        self._mend(partial(self._registry.reconcile, wait_ms=wait_ms))

    def _mend(self, work: Callable[[], T]) -> T:
        """Run `work`; if the index is damaged, rebuild it and run again."""
        try:
            return work()
        except StoreError as exc:
            if not _DAMAGED.search(exc.message):
                raise
            log.warning("memory of %s: %s; its index is made anew", self._spec.agent, exc)
        try:
            remove_index(folders_of(self._spec).index)
        except OSError as exc:
            raise StoreError(f"the index of qmd cannot be removed: {exc.strerror}") from exc
        self._run_update()
        return work()

    def _run_update(self) -> str:
        return self._program.run("update", timeout_ms=self._settings.update.update_timeout_ms)


def _clean(text: str) -> str:
    """Return a query as an argument: one line, without options or negations."""
    plain = text.replace("\0", " ").encode("utf-8", "replace").decode()
    return " ".join(_DASHES.sub("", plain).split())[:_MAX_QUESTION_CHARS]


def _numbers(found: re.Match[str]) -> tuple[int, int]:
    return int(found[1]), int(found[2])


def _report(said: str) -> SyncReport:
    """Report an update: qmd prints how many files of a collection changed, not which."""
    names = _HEADING.findall(said)
    indexed: list[str] = []
    removed: list[str] = []
    unchanged = 0
    for name, counts in zip(names, _COUNTS.findall(said), strict=False):
        new, updated, same, gone = map(int, counts)
        indexed += [f"{PREFIX}{name}"] * (new + updated)
        removed += [f"{PREFIX}{name}"] * gone
        unchanged += same
    return SyncReport(tuple(indexed), tuple(removed), unchanged)
