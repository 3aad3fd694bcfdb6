"""The manner in which one run is told to one chat: settings put together, nothing decided later."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from homarus.agent.reply.blocks import NATURAL_MS, Chunking, Coalescing
from homarus.agent.reply.typing import INTERVAL_S, TypingMode, typing_mode
from homarus.config.schema import AgentEntry, BlockCoalesce, Config, HumanDelay
from homarus.core.keys import normalize_agent_id
from homarus.core.message import Address, Json
from homarus.core.value import dataclass
from homarus.sessions.levels import (
    ReasoningLevel,
    UsageDisplay,
    VerboseLevel,
    reasoning_level,
    usage_display,
    verbose_level,
)

Boundary: TypeAlias = Literal["text_end", "message_end"]

_IDLE_MS = 1_000
_CLOSING_CHARS = 16  # room for the last line of a code fence that had to be cut


@dataclass(frozen=True, slots=True)
class Manner:
    """How a run is told.

    `streams`: in blocks while it is being made. `ack_max_chars` is set for a heartbeat's run: an
    answer no longer than this beside `HEARTBEAT_OK` is none. `unasked`: nobody waits for it, so
    silence may be said anywhere. `delay_ms` lies between two blocks.
    """

    streams: bool = False
    boundary: Boundary = "text_end"
    chunking: Chunking = Chunking()
    coalescing: Coalescing | None = None
    delay_ms: tuple[int, int] | None = None
    reasoning: ReasoningLevel = "off"
    verbose: VerboseLevel = "off"
    usage: UsageDisplay = "off"
    prefix: str = ""
    identity: str = ""
    thinking: str = "off"
    typing: TypingMode = "instant"
    typing_interval_s: float = INTERVAL_S
    here: Address | None = None
    session_key: str = ""
    new_session: str = ""  # its id, when the run begins a conversation anew
    ack_max_chars: int | None = None
    unasked: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a run is told, and what is known about it there.

    `channel` is the channel's section of the config, `entry` the session's record; `verbose` and
    `reasoning` are what the message itself asks for.
    """

    here: Address | None = None
    channel: Mapping[str, Json] | None = None
    entry: Mapping[str, Json] | None = None
    session_key: str = ""
    new_session: str = ""
    thinking: str = "off"
    verbose: str | None = None
    reasoning: str | None = None
    text_limit: int = 4_000
    group: bool = False
    mentioned: bool = False
    heartbeat_chars: int | None = None
    unasked: bool = False


def manner(config: Config, agent_id: str, at: Surroundings) -> Manner:
    """The manner for one run: the session's own settings, else the channel's, else the agent's."""
    defaults, heartbeat = config.agents.defaults, at.heartbeat_chars is not None
    agent = _agent(config, agent_id)
    chunk, limit = defaults.block_streaming_chunk, max(_CLOSING_CHARS * 2, at.text_limit)
    most = min(chunk.max_chars, limit - _CLOSING_CHARS)
    chunking = Chunking(
        min_chars=min(chunk.min_chars, most),
        max_chars=most,
        prefer=chunk.break_preference,
        by_paragraph=_setting(at, "chunkMode") == "newline",
    )
    streams = _setting(at, "blockStreaming")
    if not isinstance(streams, bool):
        streams = defaults.block_streaming_default == "on"
    identity = (agent.identity.name or "") if agent else ""
    interval_s = config.session.typing_interval_seconds or defaults.typing_interval_seconds
    return Manner(
        streams=streams and not heartbeat,
        boundary=defaults.block_streaming_break,
        chunking=chunking,
        coalescing=_coalescing(defaults.block_streaming_coalesce, chunking, at, limit),
        delay_ms=_delay_ms(agent.human_delay if agent else HumanDelay(), defaults.human_delay),
        reasoning="off"
        if heartbeat
        else reasoning_level(at.reasoning or _word(at, "reasoningLevel")) or "off",
        verbose="off"
        if heartbeat
        else verbose_level(at.verbose or _word(at, "verboseLevel")) or defaults.verbose_default,
        usage=usage_display(_word(at, "responseUsage")) or "off",
        prefix=_prefix(config, at, identity),
        identity=identity,
        thinking=at.thinking,
        typing=typing_mode(
            config.session.typing_mode or defaults.typing_mode,
            group=at.group,
            mentioned=at.mentioned,
            heartbeat=heartbeat,
        ),
        typing_interval_s=float(interval_s or INTERVAL_S),
        here=at.here,
        session_key=at.session_key,
        new_session=at.new_session,
        ack_max_chars=at.heartbeat_chars,
        unasked=at.unasked or heartbeat,
    )


def _agent(config: Config, agent_id: str) -> AgentEntry | None:
    entries = (entry for entry in config.agents.list if normalize_agent_id(entry.id) == agent_id)
    return next(entries, None)


def _setting(at: Surroundings, name: str) -> Json:
    """What the channel's section says for this account, else for all of them."""
    channel = at.channel or {}
    accounts = channel.get("accounts")
    own = accounts.get(at.here.account) if isinstance(accounts, Mapping) and at.here else None
    if isinstance(own, Mapping) and own.get(name) is not None:
        return own[name]
    return channel.get(name)


def _coalescing(
    common: BlockCoalesce, chunking: Chunking, at: Surroundings, limit: int
) -> Coalescing:
    found = _setting(at, "blockStreamingCoalesce")
    own = found if isinstance(found, Mapping) else {}
    idle_ms = next(
        (ms for ms in (_number(own, "idleMs"), common.idle_ms, _IDLE_MS) if ms is not None), 0
    )
    most = min(limit, _number(own, "maxChars") or common.max_chars or limit)
    least = _number(own, "minChars") or common.min_chars or chunking.min_chars
    return Coalescing(min(least, most), most, idle_ms / 1000)


def _number(settings: Mapping[str, Json], name: str) -> int | None:
    value = settings.get(name)
    return value if type(value) is int and value >= 0 else None


def _word(at: Surroundings, name: str) -> str | None:
    """A setting of the session's record, which others may have written."""
    value = (at.entry or {}).get(name)
    return value if isinstance(value, str) else None


def _delay_ms(own: HumanDelay, common: HumanDelay) -> tuple[int, int] | None:
    mode = own.mode or common.mode or "off"
    if mode == "off":
        return None
    if mode == "natural":
        return NATURAL_MS
    low = own.min_ms if own.min_ms is not None else common.min_ms
    high = own.max_ms if own.max_ms is not None else common.max_ms
    low = NATURAL_MS[0] if low is None else low
    return low, max(low, NATURAL_MS[1] if high is None else high)


def _prefix(config: Config, at: Surroundings, identity: str) -> str:
    own = _setting(at, "responsePrefix")
    template = own if isinstance(own, str) else config.messages.response_prefix or ""
    if template.strip().lower() == "auto":
        return f"[{identity}]" if identity else ""
    return template
