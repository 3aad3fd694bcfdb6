"""IRC: one account is a nick on a server; channels and direct messages, in lines of 512 bytes.

It has its own client: pydle, the library for it, queries the server about unknown users at every
start, echoes our own messages, and does not report when a line was sent. `message` is the protocol,
`connection` a connection, `client` our registration on a server, `adapter` the channel.
"""

import logging
from typing import Final

from homarus.channels.base import Channel, ChannelContext
from homarus.channels.irc.settings import IrcSettings as Settings
from homarus.channels.irc.traits import TRAITS

LABEL: Final = TRAITS.title

log = logging.getLogger(__name__)

__all__ = ["LABEL", "TRAITS", "Settings", "create"]


def create(context: ChannelContext, settings: Settings) -> Channel:
    """Return one account, not connected."""
    from homarus.channels.irc.adapter import IrcChannel

    secret = settings.password or settings.password_file or settings.nickserv.password
    if secret and not settings.tls and settings.host not in {"localhost", "127.0.0.1", "::1"}:
        log.warning("the password for %s goes over the net in the clear: tls is off", settings.host)
    return IrcChannel(context, settings)
