"""Resolve whether replies to a session are allowed: its entry, else the config. Pure."""

from collections.abc import Mapping

from homarus.config import schema
from homarus.core.message import Inbound, Json
from homarus.policy.session_rules import RuleAction, evaluate_rules

ACTIONS: tuple[RuleAction, ...] = ("allow", "deny")


def send_policy(
    rules: schema.SendPolicyConfig,
    key: str = "",
    entry: Mapping[str, Json] | None = None,
    *,
    channel: str = "",
    chat_type: str = "",
) -> RuleAction:
    """Return the action for a session; `channel` is that of the message, if there is one."""
    stored = entry or {}
    own = next((action for action in ACTIONS if stored.get("sendPolicy") == action), None)
    if own:
        return own
    channel_name = (
        _name(channel) or _name(stored.get("channel")) or _name(stored.get("lastChannel"))
    )
    kind = _name(chat_type) or _name(stored.get("chatType"))
    return evaluate_rules(rules.rules, rules.default, key, channel=channel_name, chat_type=kind)


def is_muted(
    rules: schema.SendPolicyConfig, key: str, entry: Mapping[str, Json], inbound: Inbound
) -> bool:
    """Return whether replies to the chat of a message are denied."""
    channel, kind = inbound.address.channel, inbound.metadata.kind
    return send_policy(rules, key, entry, channel=channel, chat_type=kind) == "deny"


def _name(value: Json) -> str:
    return value.strip().lower() if isinstance(value, str) else ""
