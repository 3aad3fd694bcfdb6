"""Reply settings: of the message, the session, the channel and the agent."""

from typing import Any

import pytest

from homarus.agent.reply.blocks import BlockLimits, ChunkLimits, CoalesceLimits
from homarus.agent.reply.settings import ReplySettings, ReplyTarget, resolve_reply_settings
from homarus.channels.registry import find_traits
from homarus.config.schema import Config
from homarus.core.message import Address

HERE = Address("telegram", "42", "work")


def made(config: dict[str, Any] | None = None, **known: Any) -> ReplySettings:
    at = ReplyTarget(address=HERE, **known)
    return resolve_reply_settings(Config.model_validate(config or {}), "main", at)


def test_reply_settings_defaults_add_nothing() -> None:
    found = made()
    assert not found.streams
    assert (found.verbose, found.reasoning, found.usage, found.prefix) == ("off", "off", "off", "")
    assert (found.typing, found.typing_interval_s, found.delay_ms) == ("instant", 6.0, None)


def test_reply_settings_account_overrides_channel_and_default() -> None:
    config = {"agents": {"defaults": {"blockStreamingDefault": "on"}}}
    assert made(config).streams
    assert not made(config, channel={"blockStreaming": False}).streams
    accounts = {"accounts": {"work": {"blockStreaming": True}}, "blockStreaming": False}
    assert made(config, channel=accounts).streams
    assert not made(
        config, channel={"accounts": {"home": {"blockStreaming": True}}} | {"blockStreaming": False}
    ).streams


def test_block_limits_default_to_chunk_and_traits() -> None:
    on = {"agents": {"defaults": {"blockStreamingDefault": "on"}}}
    assert made().blocks is None
    assert made(on).blocks == BlockLimits(ChunkLimits(800, 1_200), CoalesceLimits(800, 4_000, 1.0))
    discord = made(on, traits=find_traits("discord")).blocks
    assert discord and discord.coalesce == CoalesceLimits(1_500, 4_000, 1.0)
    irc = made(on, traits=find_traits("irc")).blocks
    assert irc and irc.coalesce.min_chars == 300


def test_block_limits_are_within_the_message_of_the_service() -> None:
    on = {"agents": {"defaults": {"blockStreamingDefault": "on"}}}
    discord = made(on, traits=find_traits("discord"), text_limit=2_000).blocks
    assert discord and discord.chunk.max_chars == 1_200
    assert discord.coalesce == CoalesceLimits(1_500, 2_000, 1.0)
    irc = made(on, traits=find_traits("irc"), text_limit=350).blocks
    assert irc and irc.chunk == ChunkLimits(350, 350)
    assert irc.coalesce == CoalesceLimits(300, 350, 1.0)
    long = made(on, channel={"textChunkLimit": 9_000}, text_limit=2_000).blocks
    assert long and long.coalesce.max_chars == 2_000


def test_block_limits_account_overrides_channel_and_defaults() -> None:
    defaults = {
        "blockStreamingDefault": "on",
        "blockStreamingBreak": "message_end",
        "blockStreamingChunk": {"minChars": 100, "maxChars": 900, "breakPreference": "newline"},
        "blockStreamingCoalesce": {"minChars": 200, "maxChars": 1_000, "idleMs": 50},
    }
    config = {"agents": {"defaults": defaults}}
    channel = {
        "textChunkLimit": 700,
        "blockStreamingCoalesce": {"minChars": 300},
        "accounts": {"work": {"blockStreamingCoalesce": {"idleMs": 0}}},
    }
    found = made(config, channel=channel).blocks
    assert found == BlockLimits(
        ChunkLimits(100, 700, "newline"), CoalesceLimits(200, 700, 0.0), waits_for_end=True
    )


def test_block_limits_chunk_mode_newline_sends_each_paragraph() -> None:
    channel = {"blockStreaming": True, "chunkMode": "newline"}
    found = made(channel=channel).blocks
    assert found and found.chunk.by_paragraph and found.coalesce.min_chars == 1


def test_block_limits_with_shown_reasoning_wait_for_the_message() -> None:
    channel = {"blockStreaming": True}
    shown = made(channel=channel, reasoning="on").blocks
    live = made(channel=channel, reasoning="stream").blocks
    assert shown and shown.waits_for_end and live and not live.waits_for_end


def test_block_limits_are_none_where_no_person_waits() -> None:
    channel = {"blockStreaming": True}
    assert made(channel=channel, unasked=True).blocks is None
    assert made(channel=channel, heartbeat_chars=30).blocks is None


@pytest.mark.parametrize(
    ("common", "own", "delay_ms"),
    [
        ({}, {}, None),
        ({"mode": "natural"}, {}, (800, 2_500)),
        ({"mode": "natural"}, {"mode": "off"}, None),
        ({"mode": "custom", "minMs": 10, "maxMs": 20}, {}, (10, 20)),
        ({"mode": "custom", "minMs": 10}, {"maxMs": 5}, (10, 10)),
        ({"mode": "custom"}, {}, (800, 2_500)),
    ],
)
def test_reply_settings_human_delay_own_overrides_common(
    common: dict[str, Any], own: dict[str, Any], delay_ms: tuple[int, int] | None
) -> None:
    entry = {"id": "main", "humanDelay": own}
    config = {"agents": {"defaults": {"humanDelay": common}, "list": [entry]}}
    assert made(config).delay_ms == delay_ms


def test_reply_settings_message_overrides_session_and_config() -> None:
    config = {"agents": {"defaults": {"verboseDefault": "on"}}}
    assert made(config).verbose == "on"
    entry = {"verboseLevel": "full", "reasoningLevel": "stream", "responseUsage": "on"}
    found = made(config, entry=entry)
    assert (found.verbose, found.reasoning, found.usage) == ("full", "stream", "tokens")
    found = made(config, entry=entry, verbose="off", reasoning="on")
    assert (found.verbose, found.reasoning) == ("off", "on")
    assert made(config, entry={"verboseLevel": 3, "responseUsage": ["x"]}).verbose == "on"


def test_reply_settings_prefix_by_channel_and_auto_is_name() -> None:
    config = {
        "messages": {"responsePrefix": "auto"},
        "agents": {"list": [{"id": "main", "identity": {"name": "Ada"}}]},
    }
    assert made(config).prefix == "[Ada]"
    assert made({"messages": {"responsePrefix": "auto"}}).prefix == ""
    assert made(config, channel={"responsePrefix": "({model})"}).prefix == "({model})"
    assert made(config, channel={"responsePrefix": ""}).prefix == ""


def test_reply_settings_heartbeat_is_quiet() -> None:
    config = {"agents": {"defaults": {"blockStreamingDefault": "on", "typingMode": "instant"}}}
    found = made(config, heartbeat_chars=30, entry={"verboseLevel": "full", "reasoningLevel": "on"})
    assert not found.streams and found.unasked
    assert (found.typing, found.verbose, found.reasoning) == ("never", "off", "off")
    assert found.ack_max_chars == 30


def test_reply_settings_typing_session_overrides_agents() -> None:
    config: dict[str, Any] = {
        "agents": {"defaults": {"typingMode": "thinking", "typingIntervalSeconds": 3}}
    }
    assert (made(config).typing, made(config).typing_interval_s) == ("thinking", 3.0)
    config["session"] = {"typingMode": "never", "typingIntervalSeconds": 9}
    assert (made(config).typing, made(config).typing_interval_s) == ("never", 9.0)
    assert (
        made(group=True).typing == "message"
        and made(group=True, mentioned=True).typing == "instant"
    )
