"""From a session's messages to what is sent. Pure, and byte for byte the same every time.

    view = render(session.messages, frame, view, now_ms)   # before each request
    Request(model, system, view.messages, tools)

What is broken is mended, results that are far too long are cut, turns beyond the limit and old
results are left out. A request is the one before it with something added at its end: whatever
would change its middle waits for the moments when the prompt is new anyway (another model, a
compaction, a cold cache, a step of the turn limit). That keeps the vendor's cache of it warm.

A view is extended, not made anew: a request in a long conversation costs what it adds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from homarus.agent.pictures import Named, name_of
from homarus.agent.pruning import NO_CUTS, Cuts, cut, is_due, prune
from homarus.agent.tokens import BYTES_PER_TOKEN, Measured, expected, message_tokens
from homarus.config.schema import ContextPruning
from homarus.core.keys import parse_agent_key, thread_parent
from homarus.core.message import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolReturn
from homarus.core.text import clip_middle
from homarus.core.value import dataclass
from homarus.sessions.transcript import is_injected, pair_calls, summary_in

WARN_BELOW, REFUSE_BELOW = 32_000, 16_000  # tokens of a window
_RESULT_SHARE = 0.3  # of the window, for one result,
_RESULTS_SHARE = 0.5  # for all results of one answer's calls
_MAX_RESULT_CHARS, _MIN_RESULT_CHARS = 400_000, 200
_STEP = 4  # a turn limit leaves out a quarter of its turns at once


@dataclass(frozen=True, slots=True)
class Frame:
    """What a rendering depends on beside the messages.

    `fixed` guesses the tokens of the system prompt and the tools; `pruning` None: nothing is cut.
    """

    model: str
    window: int
    fixed: int = 0
    max_turns: int = 0  # 0: no limit
    pruning: ContextPruning | None = None
    pictures: Named | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A conversation as it is sent, and what the next view of it goes on from."""

    messages: tuple[Message, ...] = ()
    guess: int = 0  # tokens, with the frame's fixed part
    measured: Measured | None = None
    frame: Frame | None = None
    head: Message | None = None  # the conversation's first message, and
    start: int = 0  # the first that is not left out
    cuts: Cuts = NO_CUTS
    settled: int = 0  # so many messages of the conversation can no longer change,
    sent: tuple[Message, ...] = ()  # and are sent as these,
    sent_guess: int = 0  # which are guessed at so many tokens
    last: Message | None = None  # the last of the settled ones

    @property
    def tokens(self) -> int:
        """What a request with this view will count, rather too many than too few."""
        return expected(self.guess, self.measured)


NO_VIEW: Final = View()


def render(history: Sequence[Message], frame: Frame, view: View, now_ms: int) -> View:
    """The conversation as it is sent now; `view` is how it was sent before."""
    view = view if history and view.head is history[0] else View()
    start = first_turn(history, frame.max_turns)
    cuts = view.cuts
    if frame.pruning and is_due(frame.pruning, history, now_ms):
        cuts = prune(pair_calls(history[start:]), frame.pruning, frame.window, cuts)
    if not _goes_on(view, history, frame, start, cuts):
        head = history[0] if history else None
        view = View((), frame.fixed, None, frame, head, start, cuts, start, (), frame.fixed)
    return _extend(view, history, frame)


def _goes_on(
    view: View, history: Sequence[Message], frame: Frame, start: int, cuts: Cuts
) -> bool:
    if view.frame != frame or (view.start, view.cuts) != (start, cuts):
        return False
    if view.settled > len(history):
        return False
    return view.settled <= start or history[view.settled - 1] is view.last


def _extend(view: View, history: Sequence[Message], frame: Frame) -> View:
    settled = max(_last_opener(history), view.settled)
    new = _ready(history[view.settled : settled], frame, view.cuts)
    tail = _ready(history[settled:], frame, view.cuts)
    since_ms = history[0].at_ms if history and summary_in(history[0]) else -1
    guess, measured = view.sent_guess, view.measured
    for message in new:
        measured = _measure(message, guess, frame, since_ms) or measured
        guess += message_tokens(message)
    sent = (*view.sent, *new) if new else view.sent
    last = history[settled - 1] if settled else None
    view = replace(
        view, settled=settled, sent=sent, sent_guess=guess, last=last, measured=measured
    )
    for message in tail:
        measured = _measure(message, guess, frame, since_ms) or measured
        guess += message_tokens(message)
    return replace(view, messages=(*sent, *tail), guess=guess, measured=measured)


def _last_opener(history: Sequence[Message]) -> int:
    """Everything before this message is settled: each call there has its result or never will."""
    for at in range(len(history) - 1, -1, -1):
        if history[at].role != "tool" and not is_injected(history[at]):
            return at
    return 0


def _measure(message: Message, guess: int, frame: Frame, since_ms: int) -> Measured | None:
    """What an answer tells of the prompt before it; one older than the summary tells of another."""
    origin = message.origin
    if origin is None or message.at_ms < since_ms or origin.model != frame.model:
        return None
    return Measured(guess, origin.usage.prompt) if origin.usage.prompt > 0 else None


# --- turns and windows -------------------------------------------------------------------------


def turn_limit(channels: Mapping[str, Json], key: str) -> int:
    """How many turns of this conversation are sent, by the channel's settings; 0: all."""
    parsed = parse_agent_key(thread_parent(key) or key)
    parts = parsed.rest.split(":") if parsed else []
    settings = channels.get(parts[0]) if len(parts) >= 3 else None
    if not isinstance(settings, Mapping):
        return 0
    kind, peer = parts[-2], parts[-1]
    if kind not in {"direct", "dm"}:
        return _limit(settings, "historyLimit") if kind in {"group", "channel"} else 0
    people = settings.get("dms")
    one = people.get(peer) if isinstance(people, Mapping) else None
    own = isinstance(one, Mapping) and isinstance(one.get("historyLimit"), int)
    return _limit(one, "historyLimit") if own else _limit(settings, "dmHistoryLimit")


def _limit(settings: Json, name: str) -> int:
    value = settings.get(name)
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else 0


def first_turn(history: Sequence[Message], max_turns: int) -> int:
    """Where the turns begin that are sent; a summary counts for none and is always sent.

    The limit is kept by leaving out several turns at once, now and then: to leave out one each
    time would make every prompt a new one.
    """
    if max_turns <= 0:
        return 0
    turns = [at for at, message in enumerate(history) if message.role == "user"]
    if turns and summary_in(history[turns[0]]):
        turns = turns[1:]
    over = len(turns) - max_turns
    if over <= 0:
        return 0
    step = max(1, max_turns // _STEP)
    return turns[min(-(-over // step) * step, len(turns) - 1)]


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a model's window is enough to work with."""

    verdict: Literal["ok", "tight", "refused"]
    why: str = ""


def check_window(window: int, fixed: int) -> Fit:
    """A window is too small when the instructions alone take half of one that is small anyway."""
    if window < REFUSE_BELOW and fixed * 2 > window:
        told = f"its window holds {window:,} tokens, and the instructions alone need {fixed:,}"
        return Fit("refused", told)
    if window < WARN_BELOW:
        return Fit("tight", f"its window holds only {window:,} tokens")
    return Fit("ok")


# --- one message -------------------------------------------------------------------------------


def _ready(messages: Sequence[Message], frame: Frame, cuts: Cuts) -> list[Message]:
    """Whole exchanges as they are sent; a message that needs no change is the same object."""
    ready: list[Message] = []
    calls = 1
    for message in pair_calls([m for m in messages if _is_whole(m)]):
        if message.calls:
            calls = len(message.calls)
        if frame.pruning:
            message = cut(message, cuts, frame.pruning)  # noqa: PLW2901 - step by step
        if message.role == "tool":
            message = _shortened(message, _most_chars(frame.window, calls))  # noqa: PLW2901 - same
        elif frame.pictures and message.role == "user":
            images = frame.pictures.get(name_of(message), ())
            message = replace(message, parts=(*message.parts, *images)) if images else message  # noqa: PLW2901 - same
        if (sound := _sound(message)) is not None:
            ready.append(sound)
    return ready


def _is_whole(message: Message) -> bool:
    if message.role != "tool":
        return True
    return len(message.parts) == 1 and isinstance(message.parts[0], ToolReturn)


def _most_chars(window: int, calls: int) -> int:
    share = min(_RESULT_SHARE, _RESULTS_SHARE / calls)
    chars = int(window * BYTES_PER_TOKEN * share)
    return min(max(chars, _MIN_RESULT_CHARS), _MAX_RESULT_CHARS)
