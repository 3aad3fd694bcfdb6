"""The backend that is always there: files, an index beside the state, words and vectors.

Words are always indexed. Vectors come on top where something makes them; when that fails, at
indexing or at a question, words go on and `fallback` says so. After an index was made, words of
its newest note are looked for: a memory that cannot find them is made anew, and then complains.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from homarus.core.errors import HomarusError, StoreError
from homarus.core.principal import OWNER
from homarus.core.text import one_line
from homarus.core.value import dataclass
from homarus.memory.base import Answer, Ask, Fallback, Progress, Status, unseen
from homarus.memory.changes import Changes, read_known
from homarus.memory.embed.base import Embedder, Model, Paying, unpaid
from homarus.memory.index import Index, Report, open_index
from homarus.memory.library import Memory
from homarus.memory.place import Place
from homarus.memory.ranking import ranking_of
from homarus.memory.selftest import check, newest
from homarus.memory.source import Note, Skipped, find_notes
from homarus.memory.transcripts import Transcripts, wants_sessions
from homarus.memory.turns import PATIENCE_S, Turns
from homarus.memory.view import audience_of_path
from homarus.store.query import select

log = logging.getLogger(__name__)

NAMED: Final = 20  # skipped files that are told by name
_AGAIN_S: Final = 300.0  # before what could not be had is looked for again

Find: TypeAlias = Callable[[Index], list[Note | Skipped]]


@dataclass(frozen=True, slots=True)
class Choice:
    """What makes vectors, and why that one; without one, words alone are compared."""

    embedder: Turns | None = None
    why: str = ""
    fallback: Fallback | None = None


class Builtin:
    """An agent's notes in its own index. One thread may sync while another searches."""

    def __init__(
        self,
        place: Place,
        embedder: Embedder | None = None,
        *,
        spent: Paying = unpaid,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place, self._spent, self._monotonic = place, spent, monotonic
        self._choice = _given(embedder) if embedder else None
        self._choosing, self._syncing = threading.Lock(), threading.Lock()
        self._chosen_s = 0.0
        self._without: dict[str, str] = {}  # providers that failed, where another stands in
        self._transcripts = Transcripts(place)
        self._writer: Index | None = None  # of whoever syncs
        self._reader: _Reader | None = None  # of whoever searches
        self._words: _Reader | None = None  # the same without vectors, where there are none to use
        self._report: Report | None = None
        self._tested = False
        self._problem = ""
        self._told = ""  # the failure that was logged last
        self._is_closed = False

    # --- indexing

    def sync(self, *, force: bool = False, progress: Progress = unseen) -> Report:
        """Bring the index to what the files say, and see that it finds what they say."""
        with self._syncing:
            self._check_open()
            report = self._sync(force=force, progress=progress)
            self._check_open()
            if report.problem and self._replace_failed(report.problem):
                report = self._sync(force=force, progress=progress)
            self._report = report
            return report

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"the memory of {self._place.agent} was closed")

    def _sync(self, *, force: bool, progress: Progress) -> Report:
        embedder = self._usable(within_s=-1)[0]  # without one, all vectors would be dropped
        self._check_open()  # `stop` knows what was chosen before it, and this what was after
        if self._writer is None:
            cache = self._place.search.cache
            most = cache.max_entries if cache.enabled else 0
            self._writer = open_index(self._place.database, max_cached=most)
        index = self._writer
        index.embedder = embedder
        found = self._found(index)
        report = index.sync(found, force=force, progress=progress)
        if report.problem and not self._is_closed:
            self._tell(report.problem)
        return self._assure(index, found, report, progress)

    def _replace_failed(self, why: str) -> bool:
        """Go on with the provider that is named as the fallback; False when there is none."""
        choice, named = self._choice, self._place.search.fallback
        if named == "none" or self._without or not choice or not choice.embedder:
            return False
        wanted = self._place.search.provider
        self._without = {wanted: why}
        with self._choosing:
            found = _choose(self._place, self._spent, self._without)
            if found.embedder is None:
                return False
            self._choice = replace(found, fallback=Fallback(wanted, why))
        choice.embedder.close()
        return True

    def _found(self, index: Index) -> list[Note | Skipped]:
        """Every note there is, each with who may see it."""
        place = self._place
        found: list[Note | Skipped] = []
        if "memory" in place.search.sources:
            found += map(_owned, find_notes(place.workspace, place.extra()))
        if wants_sessions(place):
            found += self._transcripts.notes(_audiences(index))
        return found

    def _assure(
        self, index: Index, found: list[Note | Skipped], report: Report, progress: Progress
    ) -> Report:
        """Look for words of the newest note; when they are not found, make it anew, once."""
        if self._tested and not (report.indexed or report.rebuilt):
            return report
        told = self._test(found, report)
        if told:
            log.error("memory of %s does not find %s: made anew", self._place.agent, told)
            again = index.sync(found, force=True, progress=progress)
            report = replace(again, rebuilt=f"the index did not find what is in {told}")
            told = self._test(found, report)
        self._tested = told == ""
        self._problem = (
            f"the index of {self._place.agent} does not find what is in {told}" if told else ""
        )
        if self._problem:
            log.error("%s, though it was made anew; see `homarus memory status`", self._problem)
        return report

    def _test(self, found: list[Note | Skipped], report: Report) -> str | None:
        notes = newest(found, report.indexed or None)
        with Memory(self._place.workspace, self._place.database) as reader:
            return check(reader, notes)

    # --- searching

    def search(self, text: str, ask: Ask) -> Answer:
        """Results by words, and by vectors where there are any."""
        self._check_open()
        embedder, fallback = self._usable()
        reader, model = self._reader_for(embedder)
        finding = reader.find(text, ask)
        if finding.why and embedder:
            self._tell(finding.why)
            fallback = Fallback(model.provider if model else "", finding.why)
        notes = [self._problem] if self._problem else []
        used = model if finding.by_vectors else None
        return Answer(
            finding.results,
            provider=used.provider if used else "none",
            model=used.name if used else "",
            fallback=fallback,
            notes=(*notes, *reader.tell_rebuilt()),
        )

    def _reader_for(self, embedder: Turns | None) -> "tuple[_Reader, Model | None]":
        """Who answers: by vectors where the generation that is searched has some of this model."""
        if embedder:
            if self._reader is None or self._reader.embedder is not embedder:
                if self._reader:
                    self._reader.close()
                self._reader = _Reader(self._place, self._found, embedder)
            if self._reader.is_of(embedder.model):
                return self._reader, embedder.model
        if self._words is None:
            self._words = _Reader(self._place, self._found)
        return self._words, None

    # --- what makes vectors

    def _usable(self, within_s: float = PATIENCE_S) -> tuple[Turns | None, Fallback | None]:
        """What makes vectors now, and what should, where that is something else."""
        choice = self._chosen()
        if choice.embedder is None:
            return None, choice.fallback
        try:
            choice.embedder.ask_model(within_s)  # a service may have to be asked for it
        except HomarusError as exc:
            self._tell(str(exc))
            return None, Fallback(self._place.search.provider, str(exc))
        return choice.embedder, choice.fallback

    def _chosen(self) -> Choice:
        """What makes vectors; looked for at the first use, and again after it was not there."""
        with self._choosing:
            now_s = self._monotonic()
            lost = self._choice and self._choice.fallback and not self._choice.embedder
            if self._choice is None or (lost and now_s - self._chosen_s >= _AGAIN_S):
                self._choice, self._chosen_s = _choose(self._place, self._spent, {}), now_s
                if self._choice.fallback:
                    self._told = self._choice.fallback.why  # whoever chose has said so
            return self._choice

    def _tell(self, why: str) -> None:
        """Say in the log, once, that words alone are compared."""
        if why != self._told:
            self._told = why
            agent = self._place.agent
            log.warning("memory of %s goes by words alone: %s", agent, one_line(why, 300))

    # --- how it is

    def status(self) -> Status:
        """What is in the index, what is not, and why."""
        embedder, fallback = self._usable()
        with open_index(self._place.database, embedder) as index:
            rebuilt = tell_rebuilt(index.rebuilt)
            held = index.count()
            dirty = self._is_dirty(index)
        report, place = self._report, self._place
        model = embedder.model if embedder else None
        return Status(
            agent=place.agent,
            workspace=str(place.workspace),
            database=str(place.database),
            backend="builtin",
            provider=model.provider if model else "none",
            model=model.name if model else "",
            why=self._chosen().why,
            files=held.files,
            lines=held.lines,
            chunks=held.chunks,
            vectors=held.vectors,
            generation=held.generation,
            sources=_sources(place),
            dirty=dirty,
            tested=self._tested,
            fallback=fallback or _failing(embedder),
            problem=self._problem,
            notes=(*rebuilt, *(notes_of(report) if report else ())),
        )

    def _is_dirty(self, index: Index) -> bool:
        if not index.generation:
            return True
        changes = Changes(read_known(index.db), self._found(index))
        return bool(changes.gone) or any(True for _ in changes.changed())

    def stop(self) -> None:
        """Begin nothing more: a sync that embeds ends soon, and says that it was cut short."""
        self._is_closed = True
        if self._choice and self._choice.embedder:
            self._choice.embedder.stop()

    def close(self) -> None:
        """Let go of it all."""
        self.stop()
        with self._syncing:
            embedder = self._choice.embedder if self._choice else None
            held = (self._writer, self._reader, self._words, embedder)
            self._writer = self._reader = self._words = None
            for one in held:
                if one:
                    one.close()


class _Reader(Memory):
    """An index that is searched.

    Where there is none, or a damaged one, it is made of words: that takes no time to speak of,
    and whoever syncs adds the vectors.
    """

    def __init__(self, place: Place, find: Find, embedder: Turns | None = None) -> None:
        ranking = ranking_of(place.search.query.hybrid)
        super().__init__(place.workspace, place.database, embedder, place.extra(), ranking=ranking)
        self._find = find
        self.embedder = embedder

    def sync(self, *, force: bool = False, progress: Progress = unseen) -> Report:
        why = self._index.rebuilt
        with open_index(self._index.path) as index:
            report = index.sync(self._find(index), force=force, progress=progress)
        return replace(report, rebuilt=why or report.rebuilt)

    def tell_rebuilt(self) -> list[str]:
        """That a search had to make the index anew; once."""
        why, self.rebuilt = self.rebuilt, ""
        return tell_rebuilt(why)

    def is_of(self, model: Model) -> bool:
        """Whether there are vectors, and of this model."""
        return self._index.has_vectors(model)


def notes_of(report: Report) -> list[str]:
    """What a sync has to say, for people."""
    notes = tell_rebuilt(report.rebuilt)
    if report.unembedded:
        notes.append(f"{report.unembedded} lines are found by their words only: {report.problem}")
    named = [f"{one.path} ({one.why})" for one in report.skipped[:NAMED]]
    more = len(report.skipped) - len(named)
    if named:
        rest = f", and {more} more" if more else ""
        notes.append(f"not in the index: {', '.join(named)}{rest}")
    if report.inexact:
        shown = ", ".join(report.inexact[:NAMED])
        notes.append(f"some bytes are not UTF-8 in {shown}")
    return notes


def tell_rebuilt(why: str) -> list[str]:
    """That the index was made anew, when it was."""
    return [f"the index was made anew: {why}"] if why else []


def _failing(embedder: Turns | None) -> Fallback | None:
    """Why words alone are compared though something makes vectors."""
    if embedder is None or embedder.failure is None:
        return None
    return Fallback(embedder.model.provider, str(embedder.failure))


def _owned(one: Note | Skipped) -> Note | Skipped:
    if isinstance(one, Skipped) or one.audience:
        return one
    return replace(one, owner=OWNER.user, audience=audience_of_path(one.path))


def recall_audience(place: Place, path: str) -> str | None:
    """Who may see a past conversation, as the index has it."""
    if not place.database.exists():
        return None
    with open_index(place.database) as index:
        return _audiences(index).get(path)


def _audiences(index: Index) -> Mapping[str, str]:
    """Who could see each past conversation when it was indexed."""
    rows = select(index.db, "SELECT path, audience FROM notes WHERE source = 'sessions'")
    return {str(path): str(audience) for path, audience in rows}


def _sources(place: Place) -> tuple[str, ...]:
    kept = tuple(one for one in place.search.sources if one != "sessions")
    return (*kept, "sessions") if wants_sessions(place) else kept


def _given(embedder: Embedder) -> Choice:
    from homarus.memory.embed.steady import Steady

    return Choice(Turns(Steady(embedder)), "it was given")


def _choose(place: Place, spent: Paying, without: Mapping[str, str]) -> Choice:
    """What the settings ask for, else what can be had."""
    from homarus.memory.embed.choose import choose

    chosen = choose(place, paid=spent, without=without)
    embedder = Turns(chosen.embedder) if chosen.embedder else None
    return Choice(embedder, chosen.why, chosen.fallback)
