"""Render a session's messages as they are sent. Pure, and byte for byte the same every time.

    rendered = render(session.messages, params, rendered, now_ms)   # before each request
    ModelRequest(model, system, rendered.messages, tools)

Broken messages are sanitized, very long results truncated, rejected messages, turns beyond the
limit and old results left out. A request is the previous one with something appended: a change in
the middle waits until the prompt is new anyway (another model, a compaction, a cold cache, a step
of the turn limit). That keeps the vendor's prompt cache valid.

A rendering is extended, not repeated: a request in a long session costs what it adds.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from homarus.agent.context.image_refs import NamedImages, name_of
from homarus.agent.context.pruning import NO_CUTS, PrunedResults, apply_pruning, is_due, prune
from homarus.agent.context.sanitize import is_single_result, sanitize_message, truncate_result
from homarus.agent.context.tokens import (
    BYTES_PER_TOKEN,
    TokenMeasurement,
    estimate_tokens,
    message_tokens,
)
from homarus.config.schema import ContextPruningConfig
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Json, Message
from homarus.core.session_keys import parse_agent_key, thread_parent
from homarus.sessions.rejection import is_answer, leave_out_rejected
from homarus.sessions.transcript import pair_calls, summary_in

WARN_BELOW, REFUSE_BELOW = 32_000, 16_000  # context window in tokens
_RESULT_SHARE = 0.3  # of the window, for all results of one message's calls
_MAX_RESULT_CHARS, _MIN_RESULT_CHARS = 400_000, 200
_STEP = 4  # a turn limit leaves out a quarter of its turns at once


@dataclass(frozen=True, slots=True)
class RenderParams:
    """What a rendering depends on, apart from the messages.

    `fixed` estimates the tokens of the system prompt and the tools; `pruning` None: no pruning.
    """

    model: str
    window: int
    fixed: int = 0
    max_turns: int = 0  # 0: no limit
    pruning: ContextPruningConfig | None = None
    images: NamedImages | None = None


@dataclass(frozen=True, slots=True)
class RenderedContext:
    """The messages as they are sent, and the state that the next rendering continues from."""

    messages: tuple[Message, ...] = ()
    estimate: int = 0  # tokens, with the fixed part
    measured: TokenMeasurement | None = None
    params: RenderParams = RenderParams("", 0)
    head: Message | None = None  # the session's first message
    start: int = 0  # the index of the first message that is sent
    cuts: PrunedResults = NO_CUTS
    since_ms: int = -1  # answers before this time measured another prompt
    settled: int = 0  # how many messages of the session can no longer change
    last: Message | None = None  # the last of them
    sent: tuple[Message, ...] = ()  # how they are sent
    sent_guess: int = 0  # their estimate in tokens

    @property
    def tokens(self) -> int:
        """The expected count of a request with these messages, with a margin."""
        return estimate_tokens(self.estimate, self.measured)


NOT_RENDERED: Final = RenderedContext()


def render(
    history: Sequence[Message], params: RenderParams, rendered: RenderedContext, now_ms: int
) -> RenderedContext:
    """Render the messages; `rendered` is the previous rendering."""
    if not history or rendered.head != history[0]:
        rendered = NOT_RENDERED
    start = first_turn(history, params.max_turns)
    cuts = rendered.cuts
    if params.pruning and is_due(params.pruning, history, now_ms):
        valid = [message for message in history[start:] if is_single_result(message)]
        cuts = prune(valid, params.pruning, params.window, cuts)
    if not _can_extend(rendered, history, params, start, cuts):
        rendered = _start(rendered, history, params, start=start, cuts=cuts, now_ms=now_ms)
    return _extend(rendered, history, params)


def _can_extend(
    rendered: RenderedContext,
    history: Sequence[Message],
    params: RenderParams,
    start: int,
    cuts: PrunedResults,
) -> bool:
    if rendered.params != params or (rendered.start, rendered.cuts) != (start, cuts):
        return False
    if rendered.settled > len(history):
        return False
    return rendered.settled <= start or history[rendered.settled - 1] is rendered.last


def _start(
    before: RenderedContext,
    history: Sequence[Message],
    params: RenderParams,
    *,
    start: int,
    cuts: PrunedResults,
    now_ms: int,
) -> RenderedContext:
    """Start a prompt that is new from its first message on."""
    summary = [m for m in history[:1] if summary_in(m)]
    sent = tuple(_prepare(summary, params, cuts)) if start else ()
    same_model = before.params.model == params.model
    return RenderedContext(
        measured=before.measured if same_model else None,
        params=params,
        head=history[0] if history else None,
        start=start,
        cuts=cuts,
        since_ms=now_ms if start or cuts else summary[0].at_ms if summary else -1,
        settled=start,
        sent=sent,
        sent_guess=params.fixed + sum(map(message_tokens, sent)),
    )


def _extend(
    rendered: RenderedContext, history: Sequence[Message], params: RenderParams
) -> RenderedContext:
    settled = max(_settled_count(history), rendered.settled)
    new = _prepare(history[rendered.settled : settled], params, rendered.cuts)
    tail = _prepare(history[settled:], params, rendered.cuts)
    sent = (*rendered.sent, *new) if new else rendered.sent
    sent_guess, measured = _measure(rendered, new, rendered.sent_guess, rendered.measured)
    estimate, measured = _measure(rendered, tail, sent_guess, measured)
    return replace(
        rendered,
        messages=(*sent, *tail),
        estimate=estimate,
        measured=measured,
        settled=settled,
        last=history[settled - 1] if settled else None,
        sent=sent,
        sent_guess=sent_guess,
    )


def _settled_count(history: Sequence[Message]) -> int:
    """Return how many messages can no longer change.

    Before the last answer each call has its result or never will, and no message will be rejected.
    """
    last = len(history) - 1
    for at in range(last, -1, -1):
        if is_answer(history[at]):
            return at if at == last or history[at].calls else at + 1
    return 0


def _measure(
    rendered: RenderedContext,
    messages: Sequence[Message],
    estimate: int,
    measured: TokenMeasurement | None,
) -> tuple[int, TokenMeasurement | None]:
    """Return the estimate with these messages, and the newest measurement among them."""
    for message in messages:
        origin = message.origin
        counted = origin.usage.prompt if origin and origin.model == rendered.params.model else 0
        if counted > 0 and message.at_ms > rendered.since_ms:
            measured = TokenMeasurement(estimate, counted)
        estimate += message_tokens(message)
    return estimate, measured


# --- turns and windows -------------------------------------------------------------------------


def turn_limit(channels: Mapping[str, Json], key: str) -> int:
    """Return how many turns of a session are sent, by its channel's settings; 0: all."""
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
    """Return where the turns start that are sent; a summary is always sent and does not count.

    Several turns are left out at once: leaving out one each time would make every prompt a new one.
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
class WindowFit:
    """Whether a model's context window is large enough."""

    verdict: Literal["ok", "tight", "refused"]
    reason: str = ""


def check_window(window: int, fixed: int) -> WindowFit:
    """Refuse a small window when the instructions alone take half of it."""
    if window < REFUSE_BELOW and fixed * 2 > window:
        counted = f"its window holds {window:,} tokens, and the instructions alone need {fixed:,}"
        return WindowFit("refused", counted)
    if window < WARN_BELOW:
        return WindowFit("tight", f"its window holds only {window:,} tokens")
    return WindowFit("ok")


# --- messages ----------------------------------------------------------------------------------


def _prepare(
    messages: Sequence[Message], params: RenderParams, cuts: PrunedResults
) -> list[Message]:
    """Return complete turns as they are sent; an unchanged message is the same object."""
    prepared: list[Message] = []
    calls = 1
    valid = [m for m in messages if is_single_result(m)]
    for message in pair_calls(leave_out_rejected(valid)):
        if message.role == "assistant":
            calls = len(message.calls) or 1
        if message.role == "tool":
            result = apply_pruning(message, cuts, params.pruning) if params.pruning else message
            sanitized = sanitize_message(
                truncate_result(result, max_result_chars(params.window, calls))
            )
        else:
            sanitized = sanitize_message(_with_images(message, params.images))
        if sanitized is not None:
            prepared.append(sanitized)
    return prepared


def _with_images(message: Message, named_images: NamedImages | None) -> Message:
    images = named_images.get(name_of(message)) if named_images and message.role == "user" else None
    return replace(message, parts=(*message.parts, *images)) if images else message


def max_result_chars(window: int, calls: int = 1) -> int:
    """Return how long a result may be when there are so many calls."""
    chars = int(window * BYTES_PER_TOKEN * _RESULT_SHARE / calls)
    return min(max(chars, _MIN_RESULT_CHARS), _MAX_RESULT_CHARS)
