"""Whether an agent may write to another chat than the one it answers: `tools.message`."""

from collections.abc import Collection

from homarus.config.tools_schema import MessageToolConfig
from homarus.core.message import Address


def find_cross_context_refusal(
    rules: MessageToolConfig,
    here: Address | None,
    channel: str,
    shown: str,
    accounts: Collection[tuple[str, str]],
) -> tuple[str, str] | None:
    """Return why nothing is written to another chat, and the fix; None: the settings allow it.

    The current chat counts if it is one of a chat service, not a terminal or a client. `shown` is
    the other chat, as people read it, and `channel` its channel.
    """
    if here is None or (here.channel, here.account) not in accounts:
        return None
    is_same_channel = channel == here.channel
    own = rules.cross_context
    is_allowed = own.allow_within_provider if is_same_channel else own.allow_across_providers
    if is_allowed or rules.allow_cross_context_send:
        return None
    name = "allowWithinProvider" if is_same_channel else "allowAcrossProviders"
    reason = f"from a chat on {here.channel} nothing is written to {shown}"
    return reason, f"your person can allow it: tools.message.crossContext.{name}"
