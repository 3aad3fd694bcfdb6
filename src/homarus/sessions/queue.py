"""What a message does that arrives while its session is being answered: the rules, no queue.

Modes: `steer` tells the live run at its next tool call; `followup` gets a run of its own
afterwards, one message after the other; `collect` waits and is merged with its neighbours into
one question; `steer-backlog` steers and gets a run of its own as well; `interrupt` stops the live
run and takes its place. `steer+backlog` is another word for `steer-backlog`, `queue` for
`followup` (the original reads it as `steer`; the word says otherwise, and no vector asks for it).

Where nothing is said: `collect`, one second of quiet before what waits is started, room for
twenty, and of more than that only a line each is kept.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar, get_args

from homarus.config.schema import InboundWait, Queue
from homarus.core.errors import UserError
from homarus.core.message import UNCARRIED, Json
from homarus.core.text import one_line
from homarus.core.value import dataclass
from homarus.sessions.directives import QueueSetting, Setting, extract_queue
from homarus.sessions.levels import QueueDrop, QueueMode, queue_drop, queue_mode
from homarus.store.journal import Accepted

MAX_LINE_CHARS = 160
ALBUM_MS = 1_000
FIELDS = ("queueMode", "queueDebounceMs", "queueCap", "queueDrop")  # of a session's entry
COLLECTED = "[Queued messages while agent was busy]"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What holds for one message."""

    mode: QueueMode = "collect"
    debounce_ms: int = 1_000
    cap: int = 20
    drop: QueueDrop = "summarize"


def resolve(
    config: Queue,
    *,
    channel: str = "",
    entry: Mapping[str, Json] | None = None,
    inline: QueueSetting | None = None,
    usual_debounce_ms: int | None = None,
) -> QueueSettings:
    """The message's own words, else its session's entry, its channel's, everybody's, the default.

    `usual_debounce_ms` is what a channel asks for by itself; a config says more than it does.
    """
    found, said = entry or {}, inline or QueueSetting()
    name = channel.strip().lower()
    default = QueueSettings()
    return QueueSettings(
        mode=_said(said.mode)
        or queue_mode(_word(found.get("queueMode")))
        or queue_mode(_of_channel(config, name))
        or queue_mode(config.mode)
        or default.mode,
        debounce_ms=_first(
            _said(said.debounce_ms),
            _whole(found.get("queueDebounceMs"), 0),
            config.debounce_ms_by_channel.get(name),
            usual_debounce_ms,
            config.debounce_ms,
            default.debounce_ms,
        ),
        cap=_first(_said(said.cap), _whole(found.get("queueCap"), 1), config.cap, default.cap),
        drop=_said(said.drop)
        or queue_drop(_word(found.get("queueDrop")))
        or config.drop
        or default.drop,
    )


def _of_channel(config: Queue, name: str) -> str | None:
    listed = {**config.by_channel.model_dump(), **(config.by_channel.model_extra or {})}
    return _word(listed.get(name))


def _said(setting: Setting[_T] | None) -> _T | None:
    return setting.value if setting else None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object, least: int) -> int | None:
    """A number of somebody's `sessions.json`; None when it is none, or too small to mean one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value >= least else None


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


@dataclass(frozen=True, slots=True)
class Room(Generic[_T]):
    """Who stays and who goes when one more comes, and whether the newcomer may stay."""

    kept: tuple[_T, ...]
    gone: tuple[_T, ...] = ()
    takes: bool = True


def make_room(waiting: Sequence[_T], cap: int, drop: QueueDrop) -> Room[_T]:
    """Room for one more: the oldest go, or with `new` the newcomer does."""
    too_many = len(waiting) - cap + 1
    if too_many <= 0:
        return Room(tuple(waiting))
    if drop == "new":
        return Room(tuple(waiting), takes=False)
    return Room(tuple(waiting[too_many:]), tuple(waiting[:too_many]))


def summary_line(text: str) -> str:
    """What is kept of a message that had no room: its words in one line, cut."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_LINE_CHARS else flat[: MAX_LINE_CHARS - 1].rstrip() + "…"


def summary_prompt(count: int, lines: Sequence[str]) -> str:
    """What a model is told of messages that had no room; "" when there were none."""
    if not count:
        return ""
    told = [f"[Queue overflow] Dropped {count} message{'' if count == 1 else 's'} due to cap."]
    if lines:
        told += ["Summary:", *(f"- {line}" for line in lines)]
    return "\n".join(told)


def collect_prompt(texts: Sequence[str], summary: str = "") -> str:
    """Several messages as one question."""
    items = [f"---\nQueued #{n}\n{text}".strip() for n, text in enumerate(texts, 1)]
    return "\n\n".join([COLLECTED, *([summary] if summary else []), *items])


def describe(settings: QueueSettings) -> str:
    """The settings as a person would type them."""
    return (
        f"{settings.mode} debounce:{settings.debounce_ms}ms cap:{settings.cap} drop:{settings.drop}"
    )


def answer(
    config: Queue, entry: Mapping[str, Json], setting: QueueSetting, *, channel: str = ""
) -> tuple[str, dict[str, Json]]:
    """`/queue …`: what holds then, and what changes in the session's entry."""
    fields = to_fields(setting)
    after = {name: value for name, value in {**entry, **fields}.items() if value is not None}
    settings = resolve(config, channel=channel, entry=after)
    own = any(name in after for name in FIELDS)
    return f"Queue: {describe(settings)}{' (set for this session)' if own else ''}", fields


def read_args(args: str) -> QueueSetting:
    """What follows `/queue`; a word that means nothing is an error that says which do."""
    rest, found = extract_queue(f"/queue {args}")
    return check(found or QueueSetting(), rest)


def check(setting: QueueSetting, rest: str = "") -> QueueSetting:
    """The same setting; an error when an option means nothing, or when words are left over."""
    options = {"debounce": setting.debounce_ms, "cap": setting.cap, "drop": setting.drop}
    wrong = [f"{name}:{each.raw}" for name, each in options.items() if each and each.value is None]
    if rest or wrong:
        raise UserError(
            f"/queue does not understand {one_line(rest or wrong[0], 40)!r}",
            fix=f"modes: {', '.join(get_args(QueueMode))}; options: debounce:2s cap:20"
            f" drop:{'|'.join(get_args(QueueDrop))}; reset forgets them",
        )
    return setting


def to_fields(setting: QueueSetting) -> dict[str, Json]:
    """What a setting changes in a session's entry; None takes a field away."""
    values = (setting.mode, setting.debounce_ms, setting.cap, setting.drop)
    said = {name: one.value for name, one in zip(FIELDS, values, strict=True) if one}
    return {**(dict.fromkeys(FIELDS) if setting.reset else {}), **said}


def pause_ms(rules: InboundWait, row: Accepted) -> int:
    """How long a person may go on writing before the first message is answered.

    Pictures that were sent together come one by one: the others are waited for in any case.
    """
    if row.channel in UNCARRIED:
        return 0
    is_one_of_several = row.inbound is not None and bool(row.inbound.occasion.album)
    asked_ms = rules.by_channel.get(row.channel, rules.debounce_ms)
    return max(asked_ms, ALBUM_MS) if is_one_of_several else asked_ms
