"""Whether a conversation is answered at all: what its entry says, else the rules of the config.

Pure. Of the rules that are about a conversation, one that denies decides; then one that allows;
where none is about it, the default does.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from homarus.config import schema
from homarus.core.keys import request_key
from homarus.core.message import Inbound, Json
from homarus.sessions.reset import channel_in

Action: TypeAlias = Literal["allow", "deny"]

ACTIONS: tuple[Action, ...] = ("allow", "deny")


def send_policy(
    rules: schema.SendPolicy,
    key: str = "",
    entry: Mapping[str, Json] | None = None,
    *,
    channel: str = "",
    chat_type: str = "",
) -> Action:
    """What holds for a conversation. `channel` is where a message for it came from."""
    found = entry or {}
    own = next((action for action in ACTIONS if found.get("sendPolicy") == action), None)
    if own:
        return own
    where = _name(channel) or _name(found.get("channel")) or _name(found.get("lastChannel"))
    kind = _name(chat_type) or _name(found.get("chatType")) or _chat_type(key)
    about = {
        rule.action
        for rule in rules.rules
        if _is_about(rule.match, key.lower(), where or channel_in(key), kind)
    }
    return next((action for action in ("deny", "allow") if action in about), rules.default)


def is_mute(
    rules: schema.SendPolicy, key: str, entry: Mapping[str, Json], inbound: Inbound
) -> bool:
    """Whether nothing is said in the chat a message came from."""
    place, kind = inbound.address.channel, inbound.occasion.kind
    return send_policy(rules, key, entry, channel=place, chat_type=kind) == "deny"


def _is_about(match: schema.SendMatch, key: str, channel: str, kind: str) -> bool:
    if match.channel is not None and _name(match.channel) != channel:
        return False
    if match.chat_type is not None and _direct(match.chat_type) != _direct(kind):
        return False
    prefix, raw = _name(match.key_prefix), _name(match.raw_key_prefix)
    short = request_key(key) or ""
    if prefix and not (key.startswith(prefix) or short.startswith(prefix)):
        return False
    return not raw or key.startswith(raw)


def _chat_type(key: str) -> str:
    marks = {*key.lower().split(":")}
    return "group" if "group" in marks else "channel" if "channel" in marks else "direct"


def _direct(kind: str) -> str:
    return "direct" if kind == "dm" else kind


def _name(value: Json) -> str:
    return value.strip().lower() if isinstance(value, str) else ""
