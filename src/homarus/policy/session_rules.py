"""Evaluate rules about sessions, which match by channel, chat type and key prefix.

Of the rules that match a session, one that denies wins over one that allows; if none matches, the
default applies.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from homarus.config.session_rule_schema import SendMatch, SendRule
from homarus.core.session_keys import channel_of, chat_type_of, key_without_agent

RuleAction: TypeAlias = Literal["allow", "deny"]


def evaluate_rules(
    rules: Iterable[SendRule],
    default: RuleAction,
    key: str,
    *,
    channel: str = "",
    chat_type: str = "",
) -> RuleAction:
    """Return the action for a session; its key supplies a channel or chat type not given."""
    lowered = key.strip().lower()
    channel, kind = channel or channel_of(lowered), chat_type or chat_type_of(lowered)
    actions = {rule.action for rule in rules if _matches(rule.match, lowered, channel, kind)}
    if "deny" in actions:
        return "deny"
    return "allow" if "allow" in actions else default


def _matches(match: SendMatch, key: str, channel: str, kind: str) -> bool:
    if match.channel is not None and _normalize(match.channel) != channel:
        return False
    if match.chat_type is not None and _direct(match.chat_type) != _direct(kind):
        return False
    prefix, raw = _normalize(match.key_prefix), _normalize(match.raw_key_prefix)
    short = key_without_agent(key) or ""
    if prefix and not (key.startswith(prefix) or short.startswith(prefix)):
        return False
    return not raw or key.startswith(raw)


def _direct(kind: str) -> str:
    return "direct" if kind == "dm" else kind


def _normalize(value: str | None) -> str:
    return (value or "").strip().lower()
