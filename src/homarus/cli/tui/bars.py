"""The line above the conversation and the one below the input: pure functions of what is known."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from textual.content import Content

from homarus.cli.text_layout import clip, printable, width
from homarus.cli.tui.payload import read_count, read_word
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

_METER_CELLS: Final = 8
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LinkState: TypeAlias = Literal["connecting", "connected", "lost"]
Part: TypeAlias = tuple[str, str]  # text and style


@dataclass(frozen=True, slots=True)
class BarState:
    """Everything that the two lines show."""

    agent: str
    session: str
    model: str = ""
    thinking: str = ""
    link: LinkState = "connecting"
    is_local: bool = False
    context_tokens: int = 0
    window: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None
    queue_mode: str = ""
    queue_depth: int = 0
    waiting: str = ""  # what is waited for; empty when nothing runs
    waiting_s: int = 0
    tick: int = 0
    elsewhere: int = 0  # approvals of other sessions


def read_row(row: Mapping[str, Json]) -> dict[str, Json]:
    """Return what the bars show of a session's row."""
    provider, model = read_word(row.get("modelProvider")), read_word(row.get("model"))
    return {
        "model": f"{provider}/{model}" if provider and model else model,
        "context_tokens": read_count(row.get("totalTokens")),
        "window": read_count(row.get("contextTokens")),
        "queue_mode": read_word(row.get("queueMode")),
        "queue_depth": read_count(row.get("queueDepth")),
    }


def draw_header(state: BarState, columns: int) -> Content:
    """Return agent and session at the left, model, thinking and connection at the right."""
    mark, style, words = {
        "connected": ("●", "$success", "local" if state.is_local else "gateway"),
        "connecting": ("◌", "$warning", "connecting"),
        "lost": ("○", "$error", "reconnecting"),
    }[state.link]
    model = _plain(state.model, 60)
    thinking = f"think {_plain(state.thinking, 12)}" if state.thinking else ""
    name = _plain(state.agent, 30)
    left: list[Part] = [(f" {name}", "bold $accent")]
    session = _plain(state.session, 120)
    optional: list[list[Part]] = [
        [(" · ", "$muted"), (session, "$foreground")] if session else [],
        [(f"{model}  ", "$foreground")] if model else [],
        [(f"{thinking}  ", "$muted")] if thinking else [],
    ]
    end: list[Part] = [(f"{mark} ", style), (f"{words} ", "$muted")]
    if columns < 60:
        end = [(f"{mark} ", style)]
        model = model.rpartition("/")[2]
        optional[1] = [(f"{clip(model, columns // 3)} ", "$foreground")] if model else []
        optional[2] = []
    room = columns - _width(left) - _width(end) - _width(optional[1]) - _width(optional[2])
    if session:
        shown = clip(session, max(0, room - 4)) if room > 8 else ""
        left += [(" · ", "$muted"), (shown, "$foreground")] if shown else []
    right = [*optional[1], *optional[2], *end]
    gap = max(0, columns - _width(left) - _width(right))
    return Content.assemble(*left, " " * gap, *right)


def draw_status(state: BarState, columns: int) -> Content:
    """Return the context and the cost at the left, what runs and the queue at the right.

    What does not fit is left out, the least important first.
    """
    frame = _FRAMES[state.tick % len(_FRAMES)]
    running: list[Part] = []
    if state.waiting:
        words = f"{frame} {_plain(state.waiting, 40)} {state.waiting_s} s"
        running = [(words, "$secondary"), (" · Esc stops", "$muted")]
    queue = f"queue: {_plain(state.queue_mode, 20)}" if state.queue_mode else ""
    if state.queue_depth:
        queue = f"{state.queue_depth} queued · {_plain(state.queue_mode, 20)}"
    approvals = f"{state.elsewhere} approvals elsewhere" if state.elsewhere else ""
    parts: list[tuple[int, list[Part], bool]] = [  # importance, parts, whether at the right
        (1, _context(state, has_meter=columns >= 60), False),
        (3, [(_cost(state.cost_usd), "$foreground")] if state.cost_usd is not None else [], False),
        (
            6,
            [(f"{_short(state.total_tokens)} used", "$muted")] if state.total_tokens else [],
            False,
        ),
        (2, [(approvals, "$warning")] if approvals else [], True),
        (4 if state.queue_depth else 5, [(queue, "$muted")] if queue else [], True),
        (0, running or [("F1 help", "$muted")], True),
    ]
    shown = [each for each in parts if each[1]]
    while _needed(shown) > columns and len(shown) > 1:
        shown.remove(max(shown, key=lambda each: each[0]))
    left = _join([each for _, each, is_right in shown if not is_right])
    right = _join([each for _, each, is_right in shown if is_right])
    gap = max(0, columns - 2 - _width(left) - _width(right))
    return Content.assemble(" ", *left, " " * gap, *right)


def _context(state: BarState, *, has_meter: bool) -> list[Part]:
    if not state.window:
        return []
    share = min(1.0, state.context_tokens / state.window)
    full = round(share * _METER_CELLS)
    tone = "$error" if share > 0.9 else "$warning" if share > 0.7 else "$success"
    meter: list[Part] = [("▰" * full, tone), ("▱" * (_METER_CELLS - full), "$muted")]
    words = f"{share:.0%} of {_short(state.window)}"
    return [*(meter if has_meter else []), (f"{' ' if has_meter else ''}{words}", "$muted")]


def _needed(parts: Sequence[tuple[int, list[Part], bool]]) -> int:
    return sum(_width(each) + 3 for _, each, _ in parts) + 2


def _join(groups: Sequence[list[Part]]) -> list[Part]:
    found: list[Part] = []
    for group in groups:
        found += [(" · ", "$muted")] if found else []
        found += group
    return found


def _width(parts: Sequence[Part]) -> int:
    return sum(width(text) for text, _ in parts)


def _short(count: int) -> str:
    """Format a number of tokens: `12.3k`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.3g}k" if count < 999_500 else f"{count / 1_000_000:.3g}M"


def _cost(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def _plain(text: str, max_chars: int) -> str:
    return printable(one_line(text, max_chars))
