"""Compaction: the older part of a conversation becomes a summary, and the rest stays as it is.

    room = room_in(rules, view)
    if is_due(view, room):
        done = await compact(lines_of(path), room=room, summarise=ask_the_model)
        await session.append(done.draft())

It is planned before anything is asked: where to cut so that what is left fits and is at least a
fifth smaller. When there is no such place, no model is asked and the person is told. No request of
its own is larger than the window: a long history is noted piece by piece, and the notes are made
one. A model that fails is not asked again; the notes are then made without it. Nothing is
deleted: the summary is one more entry of the transcript, and what it stands for stays readable.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from homarus.agent.context.mending import is_whole, shorten
from homarus.agent.context.render import View, most_chars
from homarus.agent.context.tokens import BYTES_PER_TOKEN, message_tokens, tokens_in
from homarus.config import schema
from homarus.core.errors import ContextOverflow, UserError
from homarus.core.message import Json, Message
from homarus.core.value import dataclass
from homarus.sessions import transcript
from homarus.sessions.transcript import Draft, Line, is_injected, summary_in

if TYPE_CHECKING:  # who takes notes is loaded when there are some to be taken
    from homarus.agent.context.note_taker import Summarise

MAX_PER_TURN = 3
SHRUNK = 0.8  # of what it was: a compaction that leaves more is no help
_MAX_SUMMARY_TOKENS, _MIN_SUMMARY_TOKENS = 6_000, 100
_FRAME_TOKENS = 40  # of a summary's message, beside the summary


@dataclass(frozen=True, slots=True)
class Room:
    """How a window is shared out, in tokens. `scale` turns guesses into the vendor's count."""

    window: int
    reserve: int  # for the answer
    keep: int  # of the newest messages, word for word
    fixed: int  # the system prompt and the tools
    scale: float = 1.2

    @property
    def usable(self) -> int:
        """What a request may count."""
        return self.window - self.reserve

    @property
    def summary(self) -> int:
        """What a summary may count."""
        return min(_MAX_SUMMARY_TOKENS, self.window // 8)


def room_in(rules: schema.Compaction, view: View) -> Room:
    """How the window of a view is shared out."""
    window = view.frame.window
    scale = view.tokens / max(view.guess, 1)
    fixed = round(view.frame.fixed * scale)
    reserve = min(max(rules.reserve_tokens, rules.reserve_tokens_floor), window // 3)
    free = max(window - reserve - fixed, 0)
    keep = min(rules.keep_recent_tokens, int(free * rules.max_history_share))
    return Room(window, reserve, keep, fixed, scale)


def is_due(view: View, room: Room) -> bool:
    """Whether the next request would leave too little for its answer."""
    return view.tokens > room.usable


@dataclass(frozen=True, slots=True)
class Plan:
    """Where to cut, and what that comes to in tokens."""

    first_kept: int
    before: int
    kept: int
    summary: int  # at most


def plan(lines: Sequence[Line], room: Room, *, wanted: bool = False) -> Plan | None:
    """The cut that keeps most of what is new; None when none helps.

    `wanted`: a person asked for it, and the conversation may be short.
    """
    weights = _weights(lines, room)
    before = sum(weights)
    keep = min(room.keep, before // 4) if wanted else room.keep
    while True:
        cut = _cut(lines, weights, keep)
        removed = sum(weights[:cut])
        kept = before - removed
        summary = max(min(room.summary, removed // 2), _MIN_SUMMARY_TOKENS)
        fits = wanted or room.fixed + kept + summary <= room.usable
        if cut > _first(lines) and fits and kept + summary <= before * SHRUNK:
            return Plan(cut, before, kept, summary)
        if not keep:
            return None
        keep //= 2


def _weights(lines: Sequence[Line], room: Room) -> list[int]:
    """What each message will count once it is sent, results cut as they are then."""
    weights: list[int] = []
    calls = 1
    for message in (line.message for line in lines):
        calls = len(message.calls) or calls
        shown = message
        if message.role == "tool" and is_whole(message):
            shown = shorten(message, most_chars(room.window, calls))
        weights.append(round(message_tokens(shown) * room.scale))
    return weights


def _first(lines: Sequence[Line]) -> int:
    """The first line that a new summary can stand for: one alone is no news."""
    return 1 if lines and summary_in(lines[0].message) else 0


def _cut(lines: Sequence[Line], weights: Sequence[int], keep: int) -> int:
    """The first line to keep: a turn's beginning where there is one, never a call's result."""
    edge, kept = len(lines), 0
    while edge and kept + weights[edge - 1] <= keep:
        edge -= 1
        kept += weights[edge]
    openers = [at for at, line in enumerate(lines) if _opens(line.message)]
    after = [at for at in openers if at >= edge]
    questions = [at for at in after if lines[at].message.role == "user"]
    if questions and sum(weights[questions[0] :]) * 2 >= kept:
        return questions[0]
    return after[0] if after else openers[-1] if openers else 0


def _opens(message: Message) -> bool:
    return message.role != "tool" and not is_injected(message)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was made. Tokens are of the whole request, before and after."""

    summary: str
    first_kept: str  # the id of an entry
    tokens_before: int
    tokens_after: int
    by_model: bool  # False: a model failed, and notes were made without it
    details: Mapping[str, Json]

    def draft(self) -> Draft:
        """The entry that says so in the transcript."""
        return transcript.compaction(
            self.summary, self.first_kept, self.tokens_before, self.details
        )

    def fields(self, data: Mapping[str, Json]) -> dict[str, Json]:
        """What changes in the session's record, given what it says now."""
        return {
            "compactionCount": compactions(data) + 1,
            "totalTokens": self.tokens_after,
            "totalTokensFresh": True,
        }


def compactions(data: Mapping[str, Json]) -> int:
    """How often a session was compacted, by its record."""
    count = data.get("compactionCount")
    return count if isinstance(count, int) else 0


async def compact(
    lines: Sequence[Line],
    *,
    room: Room,
    summarise: "Summarise",
    instructions: str = "",
    wanted: bool = False,
) -> Compaction:
    """Summarise what is old. ContextOverflow when that cannot help, UserError when not needed."""
    from homarus.agent.context import notes
    from homarus.agent.context.note_taker import NoteTaker

    made = plan(lines, room, wanted=wanted)
    if made is None:
        raise _hopeless(lines, room, wanted=wanted)
    before = summary_in(lines[0].message)
    old = [line.message for line in lines[_first(lines) : made.first_kept]]
    taker = NoteTaker(
        summarise, window=room.window, tokens=made.summary, scale=room.scale, focus=instructions
    )
    noted = await taker.note(old, before)
    summary = notes.compose(
        noted,
        old,
        before=before,
        asked=_asked(lines, made.first_kept),
        most_bytes=int((made.summary - _FRAME_TOKENS) * BYTES_PER_TOKEN / room.scale),
    )
    files = notes.files_in(old)
    after = room.fixed + made.kept + round((tokens_in(summary) + _FRAME_TOKENS) * room.scale)
    return Compaction(
        summary,
        lines[made.first_kept].id,
        room.fixed + made.before,
        after,
        not taker.failed,
        {"readFiles": list(files.read), "modifiedFiles": list(files.changed)},
    )


def _asked(lines: Sequence[Line], cut: int) -> str:
    """The question whose answer is cut in two: its words must not be lost."""
    if lines[cut].message.role == "user":
        return ""
    before = (line.message for line in reversed(lines[:cut]))
    question = next((m for m in before if m.role == "user" and not summary_in(m)), None)
    return question.text if question else ""


def _hopeless(lines: Sequence[Line], room: Room, *, wanted: bool) -> UserError | ContextOverflow:
    if wanted:
        return UserError("there is nothing to summarise yet")
    longest = max(_weights(lines, room), default=0)
    return ContextOverflow(
        f"the conversation does not fit the model's window of {room.window:,} tokens, and "
        f"summarising it would not help: one message alone counts about {longest:,}",
        fix="send less at once, choose a model with a larger window, or start over with /new",
    )
