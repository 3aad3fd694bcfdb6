"""The seam of memory: what is asked of it, what it answers, and what a backend does.

A backend blocks. One thread may sync while another searches; `keeper` has both, and gives
everybody else something to await.
"""

from collections.abc import Callable
from datetime import date
from typing import Final, Protocol, TypeAlias, runtime_checkable

from homarus.core.value import dataclass
from homarus.memory.index import Report
from homarus.memory.results import MAX_RESULTS, Result
from homarus.memory.search import Mode
from homarus.memory.view import EVERYTHING, View

# Done so far, in all, and what is being done (a path, or a word for it).
Progress: TypeAlias = Callable[[int, int, str], None]
DEFAULT_BACKEND: Final = "builtin"  # every other backend fails over to it


def unseen(_done: int, _all: int, _what: str) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True)
class Ask:
    """How a question is asked. `now` is today, for `last week`; None leaves it to the backend.

    `min_score` is a chance from 0 to 1. After `timeout_ms` an answer by words is given, or none.
    """

    mode: Mode = "lines"
    max_results: int = MAX_RESULTS
    max_snippet_chars: int | None = None
    max_injected_chars: int | None = None
    min_score: float | None = None
    view: View = EVERYTHING
    now: date | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Fallback:
    """What should have answered, and why something else did."""

    wanted: str
    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, and by what. `provider` is `none` where words alone were compared.

    `notes` are for people: what was made anew, what could not be read.
    """

    results: tuple[Result, ...]
    backend: str = DEFAULT_BACKEND
    provider: str = "none"
    model: str = ""
    fallback: Fallback | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """How a memory is doing; `problem` when it cannot do what the config asks of it."""

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
    tested: bool  # a word of the index was looked for after it was made, and found
    fallback: Fallback | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()
    why: str = ""  # this provider, and no other


class Backend(Protocol):
    """One agent's index, whoever keeps it."""

    def sync(self, *, force: bool = False, progress: Progress = unseen) -> Report:
        """Bring the index to what the files say; `force` reads everything again."""
        ...

    def search(self, text: str, ask: Ask) -> Answer:
        """The best results first. HomarusError when it cannot be answered at all."""
        ...

    def status(self) -> Status: ...

    def close(self) -> None: ...


@runtime_checkable
class Stops(Protocol):
    """A backend whose work can be cut short from another thread."""

    def stop(self) -> None:
        """Begin nothing more, and end soon what runs; `close` follows."""
        ...


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a note, word for word; `more` says that others follow."""

    path: str
    text: str
    from_line: int
    lines: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """Where words were written; `added` is false when they stood there already."""

    path: str
    start_line: int
    end_line: int
    added: bool = True
