"""The memories of all agents, for whoever runs in an event loop.

    memories = Memories(config, paths, env, group=group)
    answer = await memories.of("main").search("When did Ada move?")

Each has two threads, begun at their first use: one indexes, one answers. A search first has the
index brought up to date, and waits for that only so long: what takes minutes goes on beside it,
and the generation before answers. Nothing is opened, and nothing watched, before the first use.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Final, TypeVar

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.config.zone import day_in
from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import HomarusError, StoreError, UserError
from homarus.core.tasks import contain
from homarus.core.units import parse_duration_ms
from homarus.memory.base import (
    Answer,
    Ask,
    Backend,
    Excerpt,
    Progress,
    Status,
    Stops,
    Written,
    unseen,
)
from homarus.memory.builtin import Builtin, recall_audience, tell_rebuilt
from homarus.memory.embed.base import Paying, unpaid
from homarus.memory.index import Report
from homarus.memory.opening import open_backend
from homarus.memory.place import Place, find_place
from homarus.memory.transcripts import Transcripts, read_session
from homarus.memory.view import EVERYTHING, PRIVATE, View
from homarus.memory.watch import every, signature, watch

log = logging.getLogger(__name__)

T = TypeVar("T")
_WAITS_S: Final = 1.5  # for an index to be brought up to date, when there is one to answer from
_GRACE_S: Final = 0.5  # for a search that keeps to its deadline itself
_CLOSING_S: Final = 10.0


class AgentMemory:
    """One agent's memory."""

    def __init__(
        self,
        place: Place,
        *,
        group: asyncio.TaskGroup | None = None,
        spent: Paying = unpaid,
        clock: Clock | None = None,
        backend: Callable[[], Backend] | None = None,
    ) -> None:
        self.place = place
        self._group, self._clock = group, clock or SystemClock()
        self._open = backend or partial(open_backend, place, partial(Builtin, place, spent=spent))
        self._opening = threading.Lock()
        self._backend: Backend | None = None
        self._answering: ThreadPoolExecutor | None = None
        self._indexing: ThreadPoolExecutor | None = None
        self._next: Future[Report] | None = None  # a sync that has not begun
        self._busy_since_s: float | None = None  # when the sync that runs began
        self._is_closed = False
        self._watching: list[asyncio.Task[None]] = []
        self._seen = Transcripts(place)

    # --- what is asked

    async def search(self, text: str, ask: Ask | None = None) -> Answer:
        """What answers a question, best first; the index is brought up to date before."""
        self._begin()
        limit_ms = self.place.settings.qmd.limits.timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000 + _GRACE_S if limit_ms else None):
                return await self._search(text, self._dated(ask or Ask()), limit_ms / 1000)
        except TimeoutError:
            raise StoreError(
                f"the memory of {self.place.agent} did not answer within {limit_ms} ms",
                fix="ask again in a moment, or raise memory.qmd.limits.timeoutMs",
            ) from None

    async def _search(self, text: str, ask: Ask, limit_s: float) -> Answer:
        notes: list[str] = []
        began_s = self._clock.monotonic()
        if self.place.search.sync.on_search:
            notes += await self._freshen(min(_WAITS_S, limit_s / 2 or _WAITS_S))
        if limit_s and ask.timeout_ms is None:
            left_s = limit_s - (self._clock.monotonic() - began_s)
            ask = replace(ask, timeout_ms=max(1, int(left_s * 1000)))
        answer = await self._answer(lambda backend: backend.search(text, ask))
        return replace(answer, notes=(*dict.fromkeys([*notes, *answer.notes]),))

    async def _freshen(self, within_s: float) -> list[str]:
        """Have the index brought up to date; what there is to say of it."""
        job, since_s = self._request(), self._busy_since_s
        if since_s is not None:  # who came before has waited for this one
            within_s -= self._clock.monotonic() - since_s
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                return tell_rebuilt((await self._wait(job)).rebuilt)
        except TimeoutError:
            return ["notes are being indexed; this is what was known before"]
        except HomarusError as exc:  # also that it was closed: whoever answers says so
            return [f"the index is not up to date: {exc}"]

    async def sync(self, *, force: bool = False, progress: Progress = unseen) -> Report:
        """Bring the index to what the files say; `progress` is called on another thread."""
        self._begin()
        return await self._wait(self._request(force=force, progress=progress))

    async def status(self) -> Status:
        """How it is doing."""
        self._begin(watched=False)
        return await self._answer(lambda backend: backend.status())

    async def get(
        self,
        path: str,
        *,
        from_line: int | None = None,
        lines: int | None = None,
        view: View = EVERYTHING,
    ) -> Excerpt:
        """Lines of a note or of a past conversation, word for word."""
        from homarus.memory.notes import Lookup, read_excerpt

        self._begin(watched=False)
        recall = partial(recall_audience, self.place)
        others: dict[str, Lookup] = {"sessions": partial(read_session, self.place, recall=recall)}
        if self.place.settings.backend == "qmd":
            from homarus.memory.qmd.collections import read_document

            others["qmd"] = partial(read_document, self.place)
        return await self._aside(
            partial(read_excerpt, self.place, path, from_line, lines, view, others=others)
        )

    async def write(
        self,
        text: str,
        *,
        to: str | None = None,
        audience: str = PRIVATE,
        day: date | None = None,
    ) -> Written:
        """Add lines to today's note, or to the one that is named."""
        from homarus.memory.diary import write_note

        self._begin()
        return await self._aside(partial(write_note, self.place, text, to or "", day, audience))

    def touch(self) -> None:
        """A conversation began: what was noted since the last one is indexed meanwhile."""
        if not self.place.search.enabled or not self.place.search.sync.on_session_start:
            return
        if not self._is_closed:
            self._begin()
            self._request()

    # --- how it is done

    def _begin(self, *, watched: bool = True) -> None:
        """See that it may be used, and from now on watch the files."""
        agent = self.place.agent
        if not self.place.search.enabled:
            raise UserError(
                f"memory is switched off for {agent}",
                fix="set agents.defaults.memorySearch.enabled to true",
            )
        self._check_open()
        if watched and self._group is not None and not self._watching:
            self._watch(self._group)

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed()

    def _closed(self) -> StoreError:
        return StoreError(f"the memory of {self.place.agent} was closed")

    def _watch(self, group: asyncio.TaskGroup) -> None:
        sync, clock = self.place.search.sync, self._clock
        if sync.watch:
            quiet_s = sync.watch_debounce_ms / 1000
            look = partial(watch, self._look, self._bring, clock=clock, quiet_s=quiet_s)
            self._spawn(group, look)
        if interval_s := _interval_s(self.place):
            self._spawn(group, partial(every, interval_s, self._bring, clock=clock))

    def _spawn(self, group: asyncio.TaskGroup, work: Callable[[], Awaitable[None]]) -> None:
        name = f"memory of {self.place.agent}"
        kept = contain(name, work, lambda _exc: None)
        try:
            self._watching.append(group.create_task(kept, name=name))
        except RuntimeError:  # the program is about to end
            kept.close()

    async def _look(self) -> str:
        return await asyncio.to_thread(signature, self.place, self._seen)

    async def _bring(self) -> None:
        """A sync that nobody waits for; a failure is in the log already."""
        with suppress(HomarusError):
            await self._wait(self._request())

    def _request(self, *, force: bool = False, progress: Progress = unseen) -> Future[Report]:
        """A sync that begins from now on: who asks while one runs shares the next."""
        self._check_open()
        waiting = self._next
        is_plain = not force and progress is unseen
        if is_plain and waiting and not waiting.running() and not waiting.done():
            return waiting
        if self._indexing is None:
            name = f"memory {self.place.agent} index"
            self._indexing = ThreadPoolExecutor(1, thread_name_prefix=name)
        job = self._indexing.submit(self._sync, force=force, progress=progress)
        if is_plain:
            self._next = job
        return job

    def _sync(self, *, force: bool, progress: Progress) -> Report:
        def step(done: int, of: int, what: str) -> None:
            self._check_open()
            progress(done, of, what)

        step(0, 0, "")
        self._busy_since_s = self._clock.monotonic()
        try:
            return self._backing().sync(force=force, progress=step)
        except HomarusError as exc:
            if not self._is_closed:
                log.warning("memory of %s was not indexed: %s", self.place.agent, exc)
            raise
        finally:
            self._busy_since_s = None

    async def _answer(self, work: Callable[[Backend], T]) -> T:
        return await self._aside(lambda: work(self._backing()))

    async def _aside(self, work: Callable[[], T]) -> T:
        self._check_open()  # somebody may have closed it while an index was waited for
        if self._answering is None:
            name = f"memory {self.place.agent}"
            self._answering = ThreadPoolExecutor(1, thread_name_prefix=name)
        return await self._wait(self._answering.submit(work))

    async def _wait(self, job: Future[T]) -> T:
        """What a job brings. Who stops waiting does not stop it: others may wait for it, too."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell(_job: object) -> None:
            with suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(done.set)

        job.add_done_callback(tell)
        await done.wait()
        try:
            return job.result()
        except CancelledError:
            raise self._closed() from None

    def _backing(self) -> Backend:
        with self._opening:
            self._check_open()
            if self._backend is None:
                self._backend = self._open()
            return self._backend

    def _dated(self, ask: Ask) -> Ask:
        """`last week` is a week before today, where the person is."""
        if ask.now is not None:
            return ask
        today = day_in(self.place.timezone, self._clock.now_ms())
        return replace(ask, now=date.fromisoformat(today))

    # --- the end

    def rest(self) -> None:
        """Watch the files no longer."""
        for task in self._watching:
            task.cancel()
        self._watching.clear()
        self._group = None

    async def close(self) -> None:
        """Let go of the index and of the threads; what runs ends soon, and is not waited for."""
        if self._is_closed:
            return
        self._is_closed = True
        self.rest()
        ended = threading.Event()
        closing = threading.Thread(target=self._end, args=(ended,), daemon=True)
        closing.start()
        await asyncio.to_thread(ended.wait, _CLOSING_S)

    def _end(self, ended: threading.Event) -> None:
        with self._opening:  # afterwards nobody opens one
            backend: object = self._backend
        try:
            if isinstance(backend, Stops):
                backend.stop()
            for threads in (self._answering, self._indexing):
                if threads:
                    threads.shutdown(wait=True, cancel_futures=True)
            if self._backend:
                self._backend.close()
        finally:
            ended.set()


def _interval_s(place: Place) -> float:
    """How often to sync though nothing seems to have changed; 0 for never."""
    if place.settings.backend == "qmd":
        return parse_duration_ms(place.settings.qmd.update.interval, "m") / 1000
    return place.search.sync.interval_minutes * 60.0


def _roads(config: Config) -> tuple[object, object]:
    return config.models, config.auth


class Memories:
    """The memory of each agent, made when it is asked for."""

    def __init__(
        self,
        config: Callable[[], Config],
        paths: Paths,
        env: Callable[[], Mapping[str, str]],
        *,
        group: asyncio.TaskGroup | None = None,
        spent: Paying = unpaid,
        clock: Clock | None = None,
    ) -> None:
        self._config, self._paths, self._env = config, paths, env
        self._group, self._spent, self._clock = group, spent, clock
        self._open: dict[str, AgentMemory] = {}
        self._roads: object = None  # how services are reached, as the open ones know it

    def of(self, agent: str) -> AgentMemory:
        """An agent's memory; UnknownName when there is no such agent."""
        if agent not in self._open:
            self._roads = self._roads or _roads(self._config())
            self._open[agent] = AgentMemory(
                self._place(agent), group=self._group, spent=self._spent, clock=self._clock
            )
        return self._open[agent]

    def _place(self, agent: str) -> Place:
        return find_place(self._config(), self._paths, self._env(), agent)

    async def reload(self) -> None:
        """The config changed: those whose settings did, or who are gone, are closed."""
        roads = _roads(self._config())
        is_elsewhere, self._roads = roads != self._roads, roads
        held = self._open.items()
        changed = [agent for agent, one in held if is_elsewhere or not self._is_same(one.place)]
        for memory in [self._open.pop(agent) for agent in changed]:
            await memory.close()

    def _is_same(self, place: Place) -> bool:
        try:
            now = self._place(place.agent)
        except UserError:
            return False
        return replace(now, access=place.access) == place  # that one is a function

    def rest(self) -> None:
        """Watch no files any longer: their tasks end, and with them the group they are in can."""
        self._group = None
        for memory in self._open.values():
            memory.rest()

    async def close(self) -> None:
        """Let go of all of them."""
        while self._open:
            await self._open.popitem()[1].close()
