"""A strict fake of Discord: its REST API and its gateway, on one port.

A green test against it shows that we agree with ourselves about Discord, and no more: nobody at
Discord wrote it. What it sends to the gateway is parsed by discord.py's own types.

It refuses unknown fields and texts that are too long, checks components and files, returns the
first message for a nonce that it remembers, replays events to a session that resumes, and keeps
the books, by which tests judge:

    async with DiscordServer() as discord:
        discord.say("hello")                      # a person writes to the bot
        ... a channel with apiRoot discord.url, gatewayUrl discord.gateway_url, discord.token ...
        assert [m["content"] for m in discord.sent(discord.dm(ADA))] == ["hi"]

Trouble befalls the next requests of a route, when a test says so: `discord.trouble("POST messages",
status=429, retry_after=1)`; `taken=True` does the request before the answer is lost, status 0 hangs
up, `times` says how often.
"""

from homarus.testing.discord_server.server import DiscordServer, RecordedRequest, RequestFault
from homarus.testing.discord_server.state import (
    ADA,
    BOT,
    CHANNEL,
    EVE,
    FORUM,
    GUILD,
    OWN_ROLE,
    ROLE,
)

__all__ = [
    "ADA",
    "BOT",
    "CHANNEL",
    "EVE",
    "FORUM",
    "GUILD",
    "OWN_ROLE",
    "ROLE",
    "DiscordServer",
    "RecordedRequest",
    "RequestFault",
]
