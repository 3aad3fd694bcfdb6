"""Rules for a message that arrives while its session has an active run. Pure.

Modes: `steer` gives it to the active run at its next tool call; `followup` gets a run of its own
afterwards, one message after the other; `collect` waits and is merged with its neighbours into
one question; `steer-backlog` steers and gets a run of its own as well; `interrupt` stops the
active run and takes its place. `steer+backlog` is an alias of `steer-backlog`, `queue` of
`followup` (OpenClaw reads it as `steer`; the word means the other, and no vector pins it).

Defaults: `collect`, a debounce of one second, a cap of twenty messages, and a summary line for
each message above the cap.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar, get_args

from homarus.config.schema import InboundDebounceConfig, QueueConfig
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import NO_OUTBOX_CHANNELS, Json
from homarus.core.text import one_line
from homarus.sessions.directives import DirectiveValue, QueueDirective, extract_queue
from homarus.sessions.levels import QueueDrop, QueueMode, queue_drop, queue_mode
from homarus.store.journal import InboxRecord

MAX_LINE_CHARS = 160
ALBUM_MS = 1_000
FIELDS = ("queueMode", "queueDebounceMs", "queueCap", "queueDrop")  # of a session's entry
COLLECTED = "[Queued messages while agent was busy]"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The queue settings of one message, with defaults merged."""

    mode: QueueMode = "collect"
    debounce_ms: int = 1_000
    cap: int = 20
    drop: QueueDrop = "summarize"


def resolve_queue_settings(
    config: QueueConfig,
    *,
    channel: str = "",
    entry: Mapping[str, Json] | None = None,
    inline: QueueDirective | None = None,
) -> QueueSettings:
    """Return the settings of a message: its own, its session's, its channel's, or the default.

    A configured debounce time below 0 counts as 0, a cap below 1 as 1.
    """
    stored, given = entry or {}, inline or QueueDirective()
    name = channel.strip().lower()
    default = QueueSettings()
    return QueueSettings(
        mode=_value(given.mode)
        or queue_mode(_word(stored.get("queueMode")))
        or queue_mode(_channel_mode(config, name))
        or queue_mode(config.mode)
        or default.mode,
        debounce_ms=_first(
            0,
            _value(given.debounce_ms),
            _stored_int(stored.get("queueDebounceMs"), 0),
            config.debounce_ms_by_channel.get(name),
            config.debounce_ms,
            default.debounce_ms,
        ),
        cap=_first(
            1, _value(given.cap), _stored_int(stored.get("queueCap"), 1), config.cap, default.cap
        ),
        drop=_value(given.drop)
        or queue_drop(_word(stored.get("queueDrop")))
        or queue_drop(config.drop)
        or default.drop,
    )


def _channel_mode(config: QueueConfig, name: str) -> str | None:
    listed = {**config.by_channel.model_dump(), **(config.by_channel.model_extra or {})}
    return _word(listed.get(name))


def _value(setting: DirectiveValue[_T] | None) -> _T | None:
    return setting.value if setting else None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _stored_int(value: object, min_value: int) -> int | None:
    """Return a number of `sessions.json`; None when it is no number, or below the minimum."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value >= min_value else None


def _first(min_value: int, *values: int | None) -> int:
    return max(min_value, int(next(value for value in values if value is not None)))


@dataclass(frozen=True, slots=True)
class CapDecision(Generic[_T]):
    """Which queued messages stay, which are dropped, and whether the new one is accepted."""

    kept: tuple[_T, ...]
    dropped: tuple[_T, ...] = ()
    is_accepted: bool = True


def apply_cap(waiting: Sequence[_T], cap: int, drop: QueueDrop) -> CapDecision[_T]:
    """Apply the cap to one more message: drop the oldest, or with `new` the new one.

    A cap below one is no cap.
    """
    too_many = len(waiting) - cap + 1
    if cap < 1 or too_many <= 0:
        return CapDecision(tuple(waiting))
    if drop == "new":
        return CapDecision(tuple(waiting), is_accepted=False)
    return CapDecision(tuple(waiting[too_many:]), tuple(waiting[:too_many]))


def summary_line(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Return the summary of a dropped message: its text in one line, truncated."""
    flat = " ".join(text.split())
    return flat if len(flat) <= max_chars else flat[: max(max_chars - 1, 0)].rstrip() + "…"


def recent_summary_lines(lines: Sequence[str], cap: int) -> list[str]:
    """Return the lines of the last dropped messages, at most as many as the queue holds."""
    return list(lines[-max(cap, 0) :])


def summary_prompt(
    count: int, lines: Sequence[str], *, noun: str = "message", title: str = ""
) -> str:
    """Return the text that tells a model of dropped messages; "" without any."""
    if count < 1:
        return ""
    plural = "" if count == 1 else "s"
    prompt = [title or f"[Queue overflow] Dropped {count} {noun}{plural} due to cap."]
    if lines:
        prompt += ["Summary:", *(f"- {line}" for line in lines)]
    return "\n".join(prompt)


def collect_prompt(texts: Sequence[str], summary: str = "") -> str:
    """Merge several messages into one."""
    items = [f"---\nQueued #{n}\n{text}".strip() for n, text in enumerate(texts, 1)]
    return "\n\n".join([COLLECTED, *([summary] if summary else []), *items])


def format_queue_settings(settings: QueueSettings) -> str:
    """Return the settings in the syntax of `/queue`."""
    return (
        f"{settings.mode} debounce:{settings.debounce_ms}ms cap:{settings.cap} drop:{settings.drop}"
    )


def apply_queue_command(
    config: QueueConfig, entry: Mapping[str, Json], setting: QueueDirective, *, channel: str = ""
) -> tuple[str, dict[str, Json]]:
    """Return the reply to `/queue …` and the fields it changes in the session's entry."""
    fields = to_fields(setting)
    after = {name: value for name, value in {**entry, **fields}.items() if value is not None}
    settings = resolve_queue_settings(config, channel=channel, entry=after)
    own = any(name in after for name in FIELDS)
    return (
        f"Queue: {format_queue_settings(settings)}{' (set for this session)' if own else ''}",
        fields,
    )


def parse_queue_args(args: str) -> QueueDirective:
    """Parse the arguments of `/queue`; raises UserError for an unknown word."""
    rest, found = extract_queue(f"/queue {args}")
    return check_queue_directive(found or QueueDirective(), rest)


def check_queue_directive(setting: QueueDirective, rest: str = "") -> QueueDirective:
    """Return the directive; raises UserError for an invalid option or other text."""
    options = {"debounce": setting.debounce_ms, "cap": setting.cap, "drop": setting.drop}
    wrong = [f"{name}:{each.raw}" for name, each in options.items() if each and each.value is None]
    if rest or wrong:
        raise UserError(
            f"/queue does not understand {one_line(rest or wrong[0], 40)!r}",
            fix=f"modes: {', '.join(get_args(QueueMode))}; options: debounce:2s cap:20"
            f" drop:{'|'.join(get_args(QueueDrop))}; reset forgets them",
        )
    return setting


def to_fields(setting: QueueDirective) -> dict[str, Json]:
    """Return the fields of a session's entry that a directive changes; None removes one."""
    values = (setting.mode, setting.debounce_ms, setting.cap, setting.drop)
    given = {name: one.value for name, one in zip(FIELDS, values, strict=True) if one}
    return {**(dict.fromkeys(FIELDS) if setting.reset else {}), **given}


def inbound_debounce_ms(rules: InboundDebounceConfig, record: InboxRecord) -> int:
    """Return how long to wait for more messages of a person before the first run.

    The images of an album arrive one by one: the wait is never shorter than theirs.
    """
    if record.channel in NO_OUTBOX_CHANNELS or (record.inbound and record.inbound.is_internal):
        return 0
    is_of_album = record.inbound is not None and bool(record.inbound.metadata.album)
    debounce_ms = rules.by_channel.get(record.channel, rules.debounce_ms)
    return max(debounce_ms, ALBUM_MS) if is_of_album else debounce_ms
