"""Check the chat that a model wants the answer of a job announced in.

Such a delivery writes to a chat like the `message` tool, and so the same settings apply.
"""

from collections.abc import Collection, Mapping

from homarus.config.tools_schema import MessageToolConfig
from homarus.core.errors import ToolError
from homarus.core.message import Address, Json
from homarus.core.text import one_line
from homarus.tools.cross_context import find_cross_context_refusal
from homarus.tools.tool import Messenger, ToolContext


def check_announced_chat(
    rules: MessageToolConfig,
    ctx: ToolContext,
    delivery: Mapping[str, Json],
    channels: Collection[str],
) -> None:
    """Raise ToolError for a chat that this conversation may not write to.

    `channels` are those of the config: one that does not run now may run when the job does.
    """
    here, messenger = ctx.here, ctx.messenger
    channel, chat = (_text(delivery.get(name)) for name in ("channel", "to"))
    channel = "" if channel.lower() == "last" else channel.lower()
    if delivery.get("mode", "announce") != "announce" or not (channel or chat):
        return  # the chat of the conversation, or the last one of the main session
    if here is None or messenger is None:
        return
    head, colon, rest = chat.partition(":")
    if not channel and colon and head.lower() in channels:
        channel, chat = head.lower(), rest.strip()
    to = _resolve(messenger, here, channel, chat, delivery)
    if (to.channel, to.chat, to.account) == (here.channel, here.chat, here.account):
        return
    shown = one_line(f"{to.channel}:{to.chat}" if to.chat else to.channel, 80)
    refusal = find_cross_context_refusal(rules, here, to.channel, shown, messenger.accounts())
    if refusal:
        raise ToolError(refusal[0], fix=refusal[1])


def _resolve(
    messenger: Messenger, here: Address, channel: str, chat: str, delivery: Mapping[str, Json]
) -> Address:
    """Return the chat; one of a service that does not run now is taken as it is written."""
    account = _text(delivery.get("accountId"))
    try:
        return messenger.resolve_address(chat, channel=channel, account=account, here=here)
    except ToolError:
        return Address(channel or here.channel, chat, account or "default")


def _text(value: Json) -> str:
    return str(value).strip() if isinstance(value, str | int) else ""
