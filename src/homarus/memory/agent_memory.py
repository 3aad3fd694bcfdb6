"""One agent's memory for callers in an event loop.

    memory = AgentMemory(resolve_memory_spec(config, paths, env, "main"), group=group)
    response = await memory.search("When did Ada move?")

Two threads, started at their first use, do the work: one indexes, one answers. A search first
requests a sync and waits for it only briefly: a sync that takes minutes continues in the
background, and the previous generation answers. Nothing is opened or watched before the first use.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Final, TypeVar

from homarus.config.timezone import local_date
from homarus.core.clock import Clock, SystemClock
from homarus.core.diagnostics import Diagnostics, MemorySearched
from homarus.core.errors import HomarusError, StoreError, UserError
from homarus.core.tasks import run_contained
from homarus.memory.backends import SupportsDocuments, load_backend, open_backend
from homarus.memory.base import (
    APPEND,
    MemoryBackend,
    MemoryStatus,
    NoteExcerpt,
    NoteWrite,
    NoteWriteOptions,
    Progress,
    SearchOptions,
    SearchResponse,
    StoppableBackend,
    ignore_progress,
)
from homarus.memory.builtin import rebuilt_notice, recall_audience
from homarus.memory.embed.base import OnCost, ignore_cost
from homarus.memory.index import SyncReport
from homarus.memory.spec import MemorySpec
from homarus.memory.transcripts import TranscriptSource, read_session
from homarus.memory.view import EVERYTHING, PRIVATE, MemoryView
from homarus.memory.watch import files_signature, watch_files

log = logging.getLogger(__name__)

T = TypeVar("T")
_MAX_RECALLS: Final = 200  # durations of searches that are kept for the status
_SYNC_TIMEOUT_S: Final = 1.5  # of a search's wait for the sync before it
_GRACE_S: Final = 0.5  # beyond the deadline that the backend itself observes
_CLOSE_TIMEOUT_S: Final = 10.0


class AgentMemory:
    """One agent's memory."""

    def __init__(
        self,
        spec: MemorySpec,
        *,
        group: asyncio.TaskGroup | None = None,
        on_cost: OnCost = ignore_cost,
        clock: Clock | None = None,
        backend: Callable[[], MemoryBackend] | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self.spec, self._diagnostics = spec, diagnostics
        self._group, self._clock = group, clock or SystemClock()
        self._open = backend or partial(open_backend, spec, on_cost)
        self._opening = threading.Lock()
        self._backend: MemoryBackend | None = None
        self._answering: ThreadPoolExecutor | None = None
        self._indexing: ThreadPoolExecutor | None = None
        self._next: Future[SyncReport] | None = None  # a sync that has not started
        self._sync_started_s: float | None = None  # of the sync that is running
        self._is_closed = False
        self._watching: list[asyncio.Task[None]] = []
        self._is_watching, self._interval_s = False, 0.0
        self._transcripts = TranscriptSource(spec)
        self._recall_ms: deque[int] = deque(maxlen=_MAX_RECALLS)

    async def search(self, text: str, options: SearchOptions | None = None) -> SearchResponse:
        """Sync the index, then return the results for a query, best first."""
        self._start()
        limit_ms = self.spec.settings.qmd.limits.timeout_ms
        started_s = self._clock.monotonic()
        try:
            async with asyncio.timeout(limit_ms / 1000 + _GRACE_S if limit_ms else None):
                response = await self._search(
                    text, self._with_today(options or SearchOptions()), limit_ms / 1000
                )
        except TimeoutError:
            raise StoreError(
                f"the memory of {self.spec.agent} did not answer within {limit_ms} ms",
                fix="ask again in a moment, or raise memory.qmd.limits.timeoutMs",
            ) from None
        took_ms = round((self._clock.monotonic() - started_s) * 1000)
        self._recall_ms.append(took_ms)
        if self._diagnostics and self._diagnostics.is_active:
            self._diagnostics.publish(MemorySearched(self.spec.agent, took_ms))
        return response

    async def _search(self, text: str, options: SearchOptions, limit_s: float) -> SearchResponse:
        notes: list[str] = []
        started_s = self._clock.monotonic()
        if self.spec.search.sync.on_search:
            notes += await self._sync_first(min(_SYNC_TIMEOUT_S, limit_s / 2 or _SYNC_TIMEOUT_S))
        if limit_s and options.timeout_ms is None:
            left_s = limit_s - (self._clock.monotonic() - started_s)
            options = replace(options, timeout_ms=max(1, int(left_s * 1000)))
        answer = await self._in_thread(lambda: self._get_backend().search(text, options))
        return replace(answer, notes=(*dict.fromkeys([*notes, *answer.notes]),))

    async def _sync_first(self, timeout_s: float) -> list[str]:
        """Wait for a sync that starts now or later; return notices about it."""
        job, since_s = self._request(), self._sync_started_s
        if since_s is not None:  # earlier searches have waited for the running sync already
            timeout_s -= self._clock.monotonic() - since_s
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                return rebuilt_notice((await self._wait(job)).rebuilt)
        except TimeoutError:
            return ["notes are being indexed; this is what was known before"]
        except HomarusError as exc:  # if the memory was closed, the search says so
            return [f"the index is not up to date: {exc}"]

    async def sync(
        self, *, force: bool = False, progress: Progress = ignore_progress
    ) -> SyncReport:
        """Update the index from the files; `progress` is called on another thread."""
        self._start()
        return await self._wait(self._request(force=force, progress=progress))

    async def status(self) -> MemoryStatus:
        self._start(watch=False)
        status = await self._in_thread(lambda: self._get_backend().status())
        return replace(status, recall_ms=tuple(self._recall_ms))

    async def get(
        self,
        path: str,
        *,
        from_line: int | None = None,
        lines: int | None = None,
        view: MemoryView = EVERYTHING,
    ) -> NoteExcerpt:
        """Return lines of a note, a transcript or a document of the backend, verbatim."""
        from homarus.memory.notes import Lookup, read_excerpt

        self._start(watch=False)
        recall = partial(recall_audience, self.spec)
        others: dict[str, Lookup] = {"sessions": partial(read_session, self.spec, recall=recall)}
        backend: object = load_backend(self.spec)
        if isinstance(backend, SupportsDocuments):
            others[self.spec.settings.backend] = partial(backend.read_document, self.spec)
        return await self._in_thread(
            partial(read_excerpt, self.spec, path, from_line, lines, view, others=others)
        )

    async def write(
        self,
        text: str,
        *,
        to: str | None = None,
        audience: str = PRIVATE,
        day: date | None = None,
        options: NoteWriteOptions = APPEND,
    ) -> NoteWrite:
        """Write into today's note, or into the note `to`; the next search finds it."""
        from homarus.memory.note_writer import write_note

        self._start()
        work = partial(write_note, self.spec, text, to or "", day, audience, options=options)
        written = await self._in_thread(work)
        if written.added and not self.spec.search.sync.on_search:
            await self._sync_first(_SYNC_TIMEOUT_S)  # no search would do it
        return written

    def sync_on_session_start(self) -> None:
        """Start a sync in the background, because a session starts."""
        if not self.spec.search.enabled or not self.spec.search.sync.on_session_start:
            return
        if not self._is_closed:
            self._start()
            self._request()

    def _start(self, *, watch: bool = True) -> None:
        """Check that the memory can be used, and watch its files from now on."""
        agent = self.spec.agent
        if not self.spec.search.enabled:
            raise UserError(
                f"memory is switched off for {agent}",
                fix="set agents.defaults.memorySearch.enabled to true",
            )
        self._check_open()
        if watch and self._group is not None and not self._is_watching:
            self._is_watching = True
            self._watch(self._group)

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed()

    def _closed(self) -> StoreError:
        return StoreError(f"the memory of {self.spec.agent} was closed")

    def _watch(self, group: asyncio.TaskGroup) -> None:
        sync, clock = self.spec.search.sync, self._clock
        if sync.watch:
            quiet_s = sync.watch_debounce_ms / 1000
            poll = partial(
                watch_files, self._signature, self._try_sync, clock=clock, quiet_s=quiet_s
            )
            self._spawn(group, poll)
        self._interval_s = load_backend(self.spec).sync_interval_s(self.spec)

    def _spawn(self, group: asyncio.TaskGroup, work: Callable[[], Awaitable[None]]) -> None:
        name = f"memory of {self.spec.agent}"
        contained = run_contained(name, work, lambda _exc: None)
        try:
            self._watching.append(group.create_task(contained, name=name))
        except RuntimeError:  # the program is about to end
            contained.close()

    @property
    def sync_interval_s(self) -> float:
        """How often the scheduler has it synced, from its first use on; 0: it does not."""
        return 0.0 if self._is_closed else self._interval_s

    async def sync_now(self) -> None:
        """Sync for the scheduler; a failure was logged already."""
        await self._try_sync()

    async def _signature(self) -> str:
        return await asyncio.to_thread(files_signature, self.spec, self._transcripts)

    async def _try_sync(self) -> None:
        """Sync for the watcher; a failure was logged already."""
        with suppress(HomarusError):
            await self._wait(self._request())

    def _request(
        self, *, force: bool = False, progress: Progress = ignore_progress
    ) -> Future[SyncReport]:
        """Request a sync that starts now or later: requests during a sync share the next one."""
        self._check_open()
        pending = self._next
        is_shared = not force and progress is ignore_progress
        if is_shared and pending and not pending.running() and not pending.done():
            return pending
        if self._indexing is None:
            name = f"memory {self.spec.agent} index"
            self._indexing = ThreadPoolExecutor(1, thread_name_prefix=name)
        job = self._indexing.submit(self._sync, force=force, progress=progress)
        if is_shared:
            self._next = job
        return job

    def _sync(self, *, force: bool, progress: Progress) -> SyncReport:
        def step(done: int, of: int, what: str) -> None:
            self._check_open()
            progress(done, of, what)

        step(0, 0, "")
        self._sync_started_s = self._clock.monotonic()
        try:
            return self._get_backend().sync(force=force, progress=step)
        except HomarusError as exc:
            if not self._is_closed:
                log.warning("memory of %s was not indexed: %s", self.spec.agent, exc)
            raise
        finally:
            self._sync_started_s = None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self._check_open()  # it may have been closed while the sync was awaited
        if self._answering is None:
            name = f"memory {self.spec.agent}"
            self._answering = ThreadPoolExecutor(1, thread_name_prefix=name)
        return await self._wait(self._answering.submit(work))

    async def _wait(self, job: Future[T]) -> T:
        """Return a job's result. Cancelling the wait leaves the job to its other waiters."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def wake(_job: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

        job.add_done_callback(wake)
        await done.wait()
        try:
            return job.result()
        except CancelledError:
            raise self._closed() from None

    def _get_backend(self) -> MemoryBackend:
        with self._opening:
            self._check_open()
            if self._backend is None:
                self._backend = self._open()
            return self._backend

    def _with_today(self, options: SearchOptions) -> SearchOptions:
        """Set today's date in the user's timezone, for expressions like `last week`."""
        if options.now is not None:
            return options
        today = local_date(self.spec.timezone, self._clock.now_ms())
        return replace(options, now=date.fromisoformat(today))

    def stop_watching(self) -> None:
        """Stop watching the files, for good."""
        for task in self._watching:
            task.cancel()
        self._watching.clear()
        self._group = None

    async def close(self) -> None:
        """Close the backend and the threads; jobs under way are stopped and awaited briefly."""
        if self._is_closed:
            return
        self._is_closed = True
        self.stop_watching()
        ended = threading.Event()
        closing = threading.Thread(target=self._end, args=(ended,), daemon=True)
        closing.start()
        await asyncio.to_thread(ended.wait, _CLOSE_TIMEOUT_S)

    def _end(self, ended: threading.Event) -> None:
        with self._opening:  # from now on `_get_backend` opens none
            backend: object = self._backend
        try:
            if isinstance(backend, StoppableBackend):
                backend.stop()
            for threads in (self._answering, self._indexing):
                if threads:
                    threads.shutdown(wait=True, cancel_futures=True)
            if self._backend:
                self._backend.close()
        finally:
            ended.set()
