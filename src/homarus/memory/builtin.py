"""The default memory backend: an SQLite index of the notes' words and vectors.

Words are always indexed; vectors as well where there is an embedder. When the embedder fails, at
indexing or at a search, words alone are compared and `fallback` says so. After an index was made,
it is searched for words of its newest note; an index that does not find them is rebuilt once, and
reported as a problem if that does not help.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from homarus.core.errors import HomarusError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.principal import OWNER
from homarus.core.text import one_line
from homarus.memory.base import (
    FallbackNotice,
    MemoryStatus,
    Progress,
    SearchOptions,
    SearchResponse,
    ignore_progress,
)
from homarus.memory.changes import ChangeScan, read_known
from homarus.memory.database import adopt_former_index
from homarus.memory.embed.base import Embedder, EmbeddingModel, OnCost, ignore_cost
from homarus.memory.index import Index, SyncReport, open_index
from homarus.memory.note_files import NoteFile, SkippedFile, find_notes
from homarus.memory.note_search import NoteSearch
from homarus.memory.ranking_settings import resolve_ranking
from homarus.memory.selftest import find_missing_note, newest_notes
from homarus.memory.shared_embedder import MODEL_TIMEOUT_S, SharedEmbedder
from homarus.memory.spec import MemorySpec
from homarus.memory.transcripts import TranscriptSource, wants_sessions
from homarus.memory.view import audience_of_path
from homarus.store.query import select

log = logging.getLogger(__name__)

MAX_NAMED: Final = 20  # skipped files that a note names
_RESELECT_S: Final = 300.0  # before an embedder that was not available is looked for again


def create(spec: MemorySpec, on_cost: OnCost) -> "BuiltinBackend":
    """Open the backend; see MemoryBackendModule."""
    return BuiltinBackend(spec, on_cost=on_cost)


def sync_interval_s(spec: MemorySpec) -> float:
    """Return `memorySearch.sync.intervalMinutes` in seconds."""
    return spec.search.sync.interval_minutes * 60.0


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The embedder and why it was selected; without one, words alone are compared."""

    embedder: SharedEmbedder | None = None
    why: str = ""
    fallback: FallbackNotice | None = None
    provider: str = ""


class BuiltinBackend:
    """One agent's notes in its own index. One thread may sync while another searches."""

    def __init__(
        self,
        spec: MemorySpec,
        embedder: Embedder | None = None,
        *,
        on_cost: OnCost = ignore_cost,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._on_cost, self._monotonic = spec, on_cost, monotonic
        self._choice = _given(embedder) if embedder else None
        self._choosing, self._syncing = threading.Lock(), threading.Lock()
        self._chosen_at_s = 0.0
        self._without: dict[str, str] = {}  # providers that failed and were replaced → reason
        self._transcripts = TranscriptSource(spec)
        self._writer: Index | None = None  # used by the thread that syncs
        self._by_vectors: NoteSearch | None = None  # these two by the thread that searches
        self._by_words: NoteSearch | None = None
        self._report: SyncReport | None = None
        self._tested = False
        self._problem = ""
        self._logged = ""  # the embedder failure that was logged last
        self._is_closed = False

    # --- indexing

    def sync(self, *, force: bool = False, progress: Progress = ignore_progress) -> SyncReport:
        """Update the index from the files, and check that it finds what they contain."""
        with self._syncing:
            self._check_open()
            report = self._sync(force=force, progress=progress)
            self._check_open()
            while report.problem and self._replace_failed(report.problem):
                report = self._sync(force=force, progress=progress)
            self._report = report
            return report

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"the memory of {self._spec.agent} was closed")

    def _sync(self, *, force: bool, progress: Progress) -> SyncReport:
        # Waits for the embedder without a timeout: a sync without it would drop all vectors.
        embedder = self._find_embedder(timeout_s=-1)[0]
        self._check_open()  # an embedder chosen after `stop` was not stopped by it
        if self._writer is None:
            cache = self._spec.search.cache
            max_cached = cache.max_entries if cache.enabled else 0
            self._writer = open_index(
                self._spec.database, max_cached=max_cached, chunk_size=self._spec.chunk_size
            )
        index = self._writer
        index.embedder = embedder
        report = index.sync(partial(self._find_notes, index), force=force, progress=progress)
        if report.problem and not self._is_closed:
            self._log_failure(report.problem)
        return self._self_test(index, report, progress)

    def _replace_failed(self, reason: str) -> bool:
        """Switch to the provider that is configured as the fallback; False if there is none.

        With `fallback: auto` one after the other is tried, until each has failed once.
        """
        choice, fallback = self._choice, self._spec.search.fallback
        if fallback == "none" or not choice or not choice.embedder:
            return False
        failed = choice.provider or self._spec.search.provider
        if failed in self._without or (self._without and fallback != "auto"):
            return False
        self._without[failed] = reason
        wanted, reason = next(iter(self._without.items()))
        with self._choosing:
            replacement = _choose(self._spec, self._on_cost, self._without)
            if replacement.embedder is None:
                return False
            self._choice = replace(replacement, fallback=FallbackNotice(wanted, reason))
        choice.embedder.close()
        return True

    def _find_notes(self, index: Index) -> list[NoteFile | SkippedFile]:
        """Return every note with its audience."""
        spec = self._spec
        notes: list[NoteFile | SkippedFile] = []
        if "memory" in spec.search.sources:
            notes += map(_with_owner, find_notes(spec.workspace, spec.extra()))
        if wants_sessions(spec):
            notes += self._transcripts.notes(_audiences(index))
        return notes

    def _self_test(self, index: Index, report: SyncReport, progress: Progress) -> SyncReport:
        """Search for words of the newest note; rebuild the index once if they are not found."""
        if self._tested and not (report.indexed or report.rebuilt):
            return report
        find = partial(self._find_notes, index)
        missing = self._test(find(), report)
        if missing:
            log.error("memory of %s does not find %s: made anew", self._spec.agent, missing)
            again = index.sync(find, force=True, progress=progress)
            report = replace(again, rebuilt=f"the index did not find what is in {missing}")
            missing = self._test(find(), report)
        self._tested = missing == ""
        self._problem = (
            f"the index of {self._spec.agent} does not find what is in {missing}" if missing else ""
        )
        if self._problem:
            log.error("%s, though it was made anew; see `homarus memory status`", self._problem)
        return report

    def _test(self, found: list[NoteFile | SkippedFile], report: SyncReport) -> str | None:
        notes = newest_notes(found, report.indexed or None)
        with NoteSearch(self._spec.workspace, self._spec.database) as reader:
            return find_missing_note(reader, notes)

    # --- searching

    def search(self, text: str, options: SearchOptions) -> SearchResponse:
        """Search by words, and by vectors where there are any."""
        self._check_open()
        embedder, fallback = self._find_embedder()
        reader, model = self._searcher(embedder)
        finding = reader.find(text, options)
        if finding.why and embedder:
            self._log_failure(finding.why)
            fallback = FallbackNotice(model.provider if model else "", finding.why)
        notes = [self._problem] if self._problem else []
        rebuilt = rebuilt_notice(reader.rebuilt)
        reader.rebuilt = ""
        used = model if finding.by_vectors else None
        return SearchResponse(
            finding.results,
            provider=used.provider if used else "none",
            model=used.name if used else "",
            fallback=fallback,
            notes=(*notes, *rebuilt),
        )

    def _searcher(
        self, embedder: SharedEmbedder | None
    ) -> tuple[NoteSearch, EmbeddingModel | None]:
        """Return a search by vectors if the current generation has some of this model."""
        if embedder:
            if self._by_vectors is None or self._by_vectors.embedder is not embedder:
                if self._by_vectors:
                    self._by_vectors.close()
                self._by_vectors = self._open_search(embedder)
            if self._by_vectors.index.has_vectors(embedder.model):
                return self._by_vectors, embedder.model
        if self._by_words is None:
            self._by_words = self._open_search()
        return self._by_words, None

    def _open_search(self, embedder: SharedEmbedder | None = None) -> NoteSearch:
        spec = self._spec
        ranking = resolve_ranking(spec.search.query.hybrid)
        return NoteSearch(
            spec.workspace, spec.database, embedder, ranking=ranking, rebuild=self._index_words
        )

    def _index_words(self, broken: Index) -> SyncReport:
        """Index the words for a search that found no usable index; the next sync adds vectors."""
        reason = broken.database.rebuilt
        with open_index(broken.database.path, chunk_size=self._spec.chunk_size) as index:
            report = index.sync(partial(self._find_notes, index))
        return replace(report, rebuilt=reason or report.rebuilt)

    # --- the embedder

    def _find_embedder(
        self, timeout_s: float = MODEL_TIMEOUT_S
    ) -> tuple[SharedEmbedder | None, FallbackNotice | None]:
        """Return the usable embedder, and the fallback notice if it is not the configured one."""
        choice = self._select()
        if choice.embedder is None:
            return None, choice.fallback
        try:
            choice.embedder.wait_for_model(timeout_s)  # may need a request to a service
        except HomarusError as exc:
            self._log_failure(str(exc))
            return None, FallbackNotice(self._spec.search.provider, str(exc))
        return choice.embedder, choice.fallback

    def _select(self) -> EmbedderChoice:
        """Select the embedder at the first use; again some time after none was available."""
        with self._choosing:
            now_s = self._monotonic()
            lost = self._choice and self._choice.fallback and not self._choice.embedder
            if self._choice is None or (lost and now_s - self._chosen_at_s >= _RESELECT_S):
                self._choice, self._chosen_at_s = _choose(self._spec, self._on_cost, {}), now_s
                if self._choice.fallback:
                    self._logged = self._choice.fallback.why  # by the selection
            return self._choice

    def _log_failure(self, reason: str) -> None:
        """Log once that words alone are compared."""
        if reason != self._logged:
            self._logged = reason
            agent = self._spec.agent
            log.warning("memory of %s goes by words alone: %s", agent, one_line(reason, 300))

    # --- status and end

    def status(self) -> MemoryStatus:
        """Return what the index holds and how it is made."""
        embedder, fallback = self._find_embedder()
        with open_index(self._spec.database, embedder) as index:
            rebuilt = rebuilt_notice(index.database.rebuilt)
            counts = index.count()
            dirty = self._is_dirty(index)
        report, spec = self._report, self._spec
        model = embedder.model if embedder else None
        return MemoryStatus(
            agent=spec.agent,
            workspace=str(spec.workspace),
            database=str(spec.database),
            backend="builtin",
            provider=model.provider if model else "none",
            model=model.name if model else "",
            why=self._select().why,
            files=counts.files,
            lines=counts.lines,
            chunks=counts.chunks,
            vectors=counts.vectors,
            generation=counts.generation,
            sources=_sources(spec),
            dirty=dirty,
            tested=self._tested,
            fallback=fallback or _failure_notice(embedder),
            problem=self._problem,
            notes=(*rebuilt, *(describe_report(report) if report else ())),
        )

    def _is_dirty(self, index: Index) -> bool:
        if not index.generation:
            return True
        changes = ChangeScan(read_known(index.database.db), self._find_notes(index))
        return bool(changes.removed) or any(True for _ in changes.changed())

    def stop(self) -> None:
        """Start nothing more; a sync that is embedding ends soon, with an error."""
        self._is_closed = True
        if self._choice and self._choice.embedder:
            self._choice.embedder.stop()

    def close(self) -> None:
        self.stop()
        with self._syncing:
            embedder = self._choice.embedder if self._choice else None
            resources = (self._writer, self._by_vectors, self._by_words, embedder)
            self._writer = self._by_vectors = self._by_words = None
            for resource in resources:
                if resource:
                    resource.close()


def describe_report(report: SyncReport) -> list[str]:
    """Describe a sync for people."""
    notes = rebuilt_notice(report.rebuilt)
    if report.unembedded:
        notes.append(f"{report.unembedded} lines are found by their words only: {report.problem}")
    named = [f"{one.path} ({one.why})" for one in report.skipped[:MAX_NAMED]]
    more = len(report.skipped) - len(named)
    if named:
        rest = f", and {more} more" if more else ""
        notes.append(f"not in the index: {', '.join(named)}{rest}")
    if report.inexact:
        shown = ", ".join(report.inexact[:MAX_NAMED])
        notes.append(f"some bytes are not UTF-8 in {shown}")
    return notes


def rebuilt_notice(reason: str) -> list[str]:
    """Return the notice that the index was rebuilt; empty without a reason."""
    return [f"the index was made anew: {reason}"] if reason else []


def _failure_notice(embedder: SharedEmbedder | None) -> FallbackNotice | None:
    """Return why words alone are compared though there is an embedder."""
    if embedder is None or embedder.failure is None:
        return None
    return FallbackNotice(embedder.model.provider, str(embedder.failure))


def _with_owner(note: NoteFile | SkippedFile) -> NoteFile | SkippedFile:
    if isinstance(note, SkippedFile) or note.audience:
        return note
    return replace(note, owner=OWNER.user, audience=audience_of_path(note.path))


def recall_audience(spec: MemorySpec, path: str) -> str | None:
    """Return the audience that the index has recorded for a transcript."""
    adopt_former_index(spec.database)
    if not spec.database.exists():
        return None
    with open_index(spec.database) as index:
        return _audiences(index).get(path)


def _audiences(index: Index) -> Mapping[str, str]:
    """Return the audience of each transcript as it was when it was indexed."""
    rows = select(index.database.db, "SELECT path, audience FROM notes WHERE source = 'sessions'")
    return {str(path): str(audience) for path, audience in rows}


def _sources(spec: MemorySpec) -> tuple[str, ...]:
    others = tuple(one for one in spec.search.sources if one != "sessions")
    return (*others, "sessions") if wants_sessions(spec) else others


def _given(embedder: Embedder) -> EmbedderChoice:
    from homarus.memory.embed.circuit_breaker import CircuitBreakerEmbedder

    return EmbedderChoice(SharedEmbedder(CircuitBreakerEmbedder(embedder)), "it was given")


def _choose(spec: MemorySpec, on_cost: OnCost, without: Mapping[str, str]) -> EmbedderChoice:
    """Select the embedder that the settings name, else one that is available."""
    from homarus.memory.embed.selection import select_embedder

    chosen = select_embedder(spec, paid=on_cost, without=without)
    embedder = SharedEmbedder(chosen.embedder) if chosen.embedder else None
    return EmbedderChoice(embedder, chosen.why, chosen.fallback, chosen.provider)
