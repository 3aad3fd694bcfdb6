"""IRC: one account is a nick on a server. Rooms and direct messages, by lines of 512 bytes.

Our own client: pydle, the library for it, asks the server about strangers at every start, reports
our own words back, and does not say when a line is on its way. `line` is the protocol, `wire` a
connection, `presence` our being on a server, `account` the channel.
"""

import logging
from typing import Final

from homarus.channels.base import Channel, Place
from homarus.channels.irc.settings import Settings
from homarus.channels.irc.traits import TRAITS

LABEL: Final = TRAITS.title

log = logging.getLogger(__name__)

__all__ = ["LABEL", "TRAITS", "Settings", "create"]


def create(place: Place, settings: Settings) -> Channel:
    """One account; connects to nothing."""
    from homarus.channels.irc.account import IrcChannel

    secret = settings.password or settings.password_file or settings.nickserv.password
    if secret and not settings.tls and settings.host not in {"localhost", "127.0.0.1", "::1"}:
        log.warning("the password for %s goes over the net in the clear: tls is off", settings.host)
    return IrcChannel(place, settings)
