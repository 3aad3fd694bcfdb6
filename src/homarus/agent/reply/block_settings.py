"""Resolve how block streaming cuts answers, from the settings of a channel and of all agents.

`blockStreamingCoalesce` of an account or its channel overrides that of `agents.defaults`, key by
key; what neither has comes from the service's traits, and then from `blockStreamingChunk`.
"""

from collections.abc import Callable
from typing import Final

from homarus.agent.reply.blocks import BlockLimits, ChunkLimits, CoalesceLimits
from homarus.config.schema import AgentDefaults, BlockCoalesceConfig
from homarus.core.channel_traits import ChannelTraits
from homarus.core.message import Json

_IDLE_MS: Final = 1_000


def resolve_block_limits(
    defaults: AgentDefaults,
    get_setting: Callable[[str], Json],
    traits: ChannelTraits,
    text_limit: int,
) -> BlockLimits:
    """Return the limits for one chat; `get_setting` returns a setting of its channel by its key.

    No block is longer than a message of the service, `text_limit`: it would be cut once more.
    """
    own = BlockCoalesceConfig.model_validate(get_setting("blockStreamingCoalesce") or {})
    chunk, common = defaults.block_streaming_chunk, defaults.block_streaming_coalesce
    own_limit = get_setting("textChunkLimit")
    limit = min(own_limit, text_limit) if isinstance(own_limit, int) else text_limit
    by_paragraph = get_setting("chunkMode") == "newline"
    max_chars = min(chunk.max_chars, limit)
    chunk_limits = ChunkLimits(
        min(chunk.min_chars, max_chars), max_chars, chunk.break_preference, by_paragraph
    )
    min_chars = _first(own.min_chars, common.min_chars, traits.block_min_chars, chunk.min_chars)
    max_joined = min(_first(own.max_chars, common.max_chars, limit), limit)
    coalesce = CoalesceLimits(
        1 if by_paragraph else min(min_chars, max_joined),
        max_joined,
        _first(own.idle_ms, common.idle_ms, _IDLE_MS) / 1000,
    )
    return BlockLimits(chunk_limits, coalesce, defaults.block_streaming_break == "message_end")


def _first(*values: int | None) -> int:
    """Return the first value that is set."""
    return next(value for value in values if value is not None)
