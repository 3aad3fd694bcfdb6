"""Rules about conversations: by their channel, their kind, the beginning of their key. Pure.

Of the rules that are about a conversation, one that denies decides; then one that allows; where
none is about it, the default does.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from homarus.config.schema import SendMatch, SendRule
from homarus.core.keys import channel_in, chat_type_in, request_key

Action: TypeAlias = Literal["allow", "deny"]


def judge(
    rules: Iterable[SendRule],
    default: Action,
    key: str,
    *,
    channel: str = "",
    chat_type: str = "",
) -> Action:
    """What the rules say of a conversation; its key tells the rest of it."""
    lowered = key.strip().lower()
    where, kind = channel or channel_in(lowered), chat_type or chat_type_in(lowered)
    about = {rule.action for rule in rules if _is_about(rule.match, lowered, where, kind)}
    if "deny" in about:
        return "deny"
    return "allow" if "allow" in about else default


def _is_about(match: SendMatch, key: str, channel: str, kind: str) -> bool:
    if match.channel is not None and _name(match.channel) != channel:
        return False
    if match.chat_type is not None and _direct(match.chat_type) != _direct(kind):
        return False
    prefix, raw = _name(match.key_prefix), _name(match.raw_key_prefix)
    short = request_key(key) or ""
    if prefix and not (key.startswith(prefix) or short.startswith(prefix)):
        return False
    return not raw or key.startswith(raw)


def _direct(kind: str) -> str:
    return "direct" if kind == "dm" else kind


def _name(value: str | None) -> str:
    return (value or "").strip().lower()
