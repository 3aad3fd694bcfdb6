"""The interface of memory: search options, responses, and what a backend implements.

A backend blocks. One thread may sync while another searches; `AgentMemory` has both threads and an
async interface.
"""

from collections.abc import Callable
from datetime import date
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from homarus.core.fast_dataclass import dataclass
from homarus.memory.index import SyncReport
from homarus.memory.ranker import ResultMode
from homarus.memory.results import MAX_RESULTS, SearchResult
from homarus.memory.view import EVERYTHING, MemoryView
from homarus.policy.workspace_access import FULL_ACCESS, WorkspaceAccess

# Called with the steps done, all steps, and what is being done (a path, or a word for it).
Progress: TypeAlias = Callable[[int, int, str], None]
DEFAULT_BACKEND: Final = "builtin"  # every other backend fails over to it


def ignore_progress(_done: int, _all: int, _what: str) -> None:
    """Ignore the progress of a sync."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of a search. `now` is today, for `last week`; None leaves it to the backend.

    `min_score` is a probability. After `timeout_ms` the search returns what matches by words, or
    raises.
    """

    mode: ResultMode = "lines"
    max_results: int = MAX_RESULTS
    max_snippet_chars: int | None = None
    max_injected_chars: int | None = None
    min_score: float | None = None
    view: MemoryView = EVERYTHING
    now: date | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FallbackNotice:
    """What should have been used, and why something else was."""

    wanted: str
    why: str


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """The results, and what produced them; `provider` is `none` if words alone were compared.

    `notes` are for people: what was rebuilt, what could not be read.
    """

    results: tuple[SearchResult, ...]
    backend: str = DEFAULT_BACKEND
    provider: str = "none"
    model: str = ""
    fallback: FallbackNotice | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """The state of a memory; `problem` is set when it cannot do what the config asks for."""

    agent: str
    workspace: str
    database: str
    backend: str
    provider: str
    model: str
    files: int
    lines: int
    chunks: int
    vectors: int
    generation: int
    sources: tuple[str, ...]
    dirty: bool
    tested: bool  # a word of the index was searched for after it was made, and found
    fallback: FallbackNotice | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()
    why: str = ""  # why this provider was selected
    recall_ms: tuple[int, ...] = ()  # durations of the latest searches of this process


class MemoryBackend(Protocol):
    """One agent's index, in whatever form."""

    def sync(self, *, force: bool = False, progress: Progress = ignore_progress) -> SyncReport:
        """Update the index from the files; `force` reads all of them again."""
        ...

    def search(self, text: str, options: SearchOptions) -> SearchResponse:
        """Return the best results first. Raises HomarusError when there can be no answer."""
        ...

    def status(self) -> MemoryStatus: ...

    def close(self) -> None: ...


@runtime_checkable
class StoppableBackend(Protocol):
    """A backend whose work can be stopped from another thread."""

    def stop(self) -> None:
        """Start nothing more, and end soon what is running; `close` follows."""
        ...


@dataclass(frozen=True, slots=True)
class NoteExcerpt:
    """Lines of a note, verbatim; `more` says that others follow."""

    path: str
    text: str
    from_line: int
    lines: int
    more: bool = False


WriteMode: TypeAlias = Literal["append", "replace", "insert"]


@dataclass(frozen=True, slots=True)
class NoteWriteOptions:
    """How a text is written into a note.

    `old_text` is what it replaces, `line` where it is inserted. `session` names the section of the
    daily note that it is appended to. `access` is what the conversation may write.
    """

    mode: WriteMode = "append"
    old_text: str = ""
    line: int | None = None
    session: str = ""
    access: WorkspaceAccess = FULL_ACCESS


APPEND: Final = NoteWriteOptions()


@dataclass(frozen=True, slots=True)
class NoteWrite:
    """Where text was written; `added` is false when the note had it already."""

    path: str
    start_line: int
    end_line: int
    added: bool = True
