"""Resolve the settings of a reply from the session, its channel, the agent and the defaults."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from homarus.agent.reply.blocks import NATURAL_MS, BlockLimits
from homarus.agent.reply.typing_policy import INTERVAL_S, TypingMode, typing_mode
from homarus.config.schema import AgentEntry, Config, HumanDelayConfig
from homarus.core.channel_traits import UNKNOWN_CHANNEL, ChannelTraits
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Address, Json
from homarus.core.session_keys import normalize_agent_id
from homarus.sessions.levels import (
    ReasoningLevel,
    UsageDisplay,
    VerboseLevel,
    reasoning_level,
    usage_display,
    verbose_level,
)

DEFAULT_TEXT_LIMIT: Final = 4_000  # characters of a message, where the service is not known


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """How the reply of one run is built.

    `streams`: the text of each message is sent when the message is saved, or before, in blocks of
    the size that `blocks` says. `ack_max_chars` is set
    for the run of a heartbeat: text no longer than this next to `HEARTBEAT_OK` is ignored.
    `unasked`: no person waits for the reply, so the silent word counts anywhere in it.
    `delay_ms` is the range of the delay between two blocks. `reports_tool_error`: a run without
    any text for the chat names the tool that failed.
    """

    streams: bool = False
    blocks: BlockLimits | None = None
    delay_ms: tuple[int, int] | None = None
    reasoning: ReasoningLevel = "off"
    verbose: VerboseLevel = "off"
    usage: UsageDisplay = "off"
    prefix: str = ""
    identity: str = ""
    thinking: str = "off"
    typing: TypingMode = "instant"
    typing_interval_s: float = INTERVAL_S
    address: Address | None = None
    session_key: str = ""
    new_session: str = ""  # the id of a session that starts with this run
    ack_max_chars: int | None = None
    unasked: bool = False
    reports_tool_error: bool = True


@dataclass(frozen=True, slots=True)
class ReplyTarget:
    """The chat that a reply goes to.

    `channel` is the channel's section of the config, `entry` the session's entry; `verbose` and
    `reasoning` are options of the message itself. `text_limit` is the longest message of the
    service.
    """

    address: Address | None = None
    channel: Mapping[str, Json] | None = None
    entry: Mapping[str, Json] | None = None
    session_key: str = ""
    new_session: str = ""
    thinking: str = "off"
    verbose: str | None = None
    reasoning: str | None = None
    group: bool = False
    mentioned: bool = False
    heartbeat_chars: int | None = None
    unasked: bool = False
    hides_tool_errors: bool = False
    traits: ChannelTraits = UNKNOWN_CHANNEL
    text_limit: int = DEFAULT_TEXT_LIMIT


def resolve_reply_settings(config: Config, agent_id: str, at: ReplyTarget) -> ReplySettings:
    """Return the settings of one run: the session's, else the channel's, else the agent's."""
    defaults, heartbeat = config.agents.defaults, at.heartbeat_chars is not None
    agent = _agent(config, agent_id)
    streams = _setting(at, "blockStreaming")
    if not isinstance(streams, bool):
        streams = defaults.block_streaming_default == "on"
    streams = streams and not heartbeat
    # A heartbeat has the option of its own message alone.
    reasoning = reasoning_level(at.reasoning or ("" if heartbeat else _word(at, "reasoningLevel")))
    identity = (agent.identity.name or "") if agent else ""
    interval_s = config.session.typing_interval_seconds or defaults.typing_interval_seconds
    return ReplySettings(
        streams=streams,
        blocks=_block_limits(config, at, reasoning) if streams and not at.unasked else None,
        delay_ms=_delay_ms(
            agent.human_delay if agent else HumanDelayConfig(), defaults.human_delay
        ),
        reasoning=reasoning or "off",
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
        address=at.address,
        session_key=at.session_key,
        new_session=at.new_session,
        ack_max_chars=at.heartbeat_chars,
        unasked=at.unasked or heartbeat,
        reports_tool_error=not (config.messages.suppress_tool_errors or at.hides_tool_errors),
    )


def _block_limits(config: Config, at: ReplyTarget, reasoning: ReasoningLevel | None) -> BlockLimits:
    from homarus.agent.reply.block_settings import resolve_block_limits  # only for streamed blocks

    limits = resolve_block_limits(
        config.agents.defaults, partial(_setting, at), at.traits, at.text_limit
    )
    # The reasoning comes before the text of its message, and is complete with the message.
    return replace(limits, waits_for_end=True) if reasoning == "on" else limits


def _agent(config: Config, agent_id: str) -> AgentEntry | None:
    entries = (entry for entry in config.agents.list if normalize_agent_id(entry.id) == agent_id)
    return next(entries, None)


def _setting(at: ReplyTarget, name: str) -> Json:
    """Return a setting of this account, else of its channel."""
    channel = at.channel or {}
    accounts = channel.get("accounts")
    own = accounts.get(at.address.account) if isinstance(accounts, Mapping) and at.address else None
    if isinstance(own, Mapping) and own.get(name) is not None:
        return own[name]
    return channel.get(name)


def _word(at: ReplyTarget, name: str) -> str | None:
    """Return a text of the session's entry, which other programs may have written."""
    value = (at.entry or {}).get(name)
    return value if isinstance(value, str) else None


def _delay_ms(own: HumanDelayConfig, common: HumanDelayConfig) -> tuple[int, int] | None:
    mode = own.mode or common.mode or "off"
    if mode == "off":
        return None
    if mode == "natural":
        return NATURAL_MS
    low = own.min_ms if own.min_ms is not None else common.min_ms
    high = own.max_ms if own.max_ms is not None else common.max_ms
    low = NATURAL_MS[0] if low is None else low
    return low, max(low, NATURAL_MS[1] if high is None else high)


def _prefix(config: Config, at: ReplyTarget, identity: str) -> str:
    own = _setting(at, "responsePrefix")
    template = own if isinstance(own, str) else config.messages.response_prefix or ""
    if template.strip().lower() == "auto":
        return f"[{identity}]" if identity else ""
    return template
