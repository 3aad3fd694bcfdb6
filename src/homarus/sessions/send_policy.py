"""Whether a conversation is answered at all: what its entry says, else the rules of the config.

Pure.
"""

from collections.abc import Mapping

from homarus.config import schema
from homarus.core.message import Inbound, Json
from homarus.policy.conversation import Action, judge

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
    kind = _name(chat_type) or _name(found.get("chatType"))
    return judge(rules.rules, rules.default, key, channel=where, chat_type=kind)


def is_mute(
    rules: schema.SendPolicy, key: str, entry: Mapping[str, Json], inbound: Inbound
) -> bool:
    """Whether nothing is said in the chat a message came from."""
    place, kind = inbound.address.channel, inbound.occasion.kind
    return send_policy(rules, key, entry, channel=place, chat_type=kind) == "deny"


def _name(value: Json) -> str:
    return value.strip().lower() if isinstance(value, str) else ""
