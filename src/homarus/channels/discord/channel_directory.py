"""Find the channel that an address means, and what is known of it.

A chat with a person is `user:<id>`; its channel is asked for once. Facts about other channels come
from the gateway's cache, else from one request.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from homarus.channels.discord.outbound import USER, channel_of, require_id
from homarus.channels.discord.rest import DiscordRest
from homarus.core.errors import ChannelError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Json

FORUMS: Final = frozenset({15, 16})  # a forum and a media channel: they consist of threads
THREADED: Final = frozenset({0, 5})  # whose messages can have a thread: text and announcements
THREADS: Final = frozenset({10, 11, 12})
_MAX_KNOWN: Final = 2_000

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """A channel: its kind by Discord's number, its server and the channel above it."""

    kind: int = 0
    guild: str = ""
    parent: str = ""


class ChannelDirectory:
    """The channels of one bot. `find_cached` returns what the gateway knows, None if nothing."""

    def __init__(self, rest: DiscordRest) -> None:
        self._rest = rest
        self.find_cached: Callable[[str], ChannelFacts | None] = lambda _channel: None
        self._dms: OrderedDict[str, str] = OrderedDict()  # users by channel
        self._facts: OrderedDict[str, ChannelFacts] = OrderedDict()

    @property
    def dms(self) -> Mapping[str, str]:
        """The users by the ids of their direct channels, the latest last."""
        return self._dms

    def record_dm(self, channel: str, user: str) -> bool:
        """Record the direct channel of a user; return whether it is new."""
        is_new = self._dms.get(channel) != user
        _remember(self._dms, channel, user)
        return is_new

    async def open_dm(self, user: str) -> str:
        """Return the direct channel of a user."""
        known = next((channel for channel, each in self._dms.items() if each == user), "")
        if known:
            return known
        found = await self._rest.call("POST", "/users/@me/channels", {"recipient_id": user})
        channel = str(found.get("id") or "") if isinstance(found, dict) else ""
        if not channel:
            raise ChannelError("Discord gave no channel for this person")
        self.record_dm(channel, user)
        return channel

    async def resolve(self, to: Address) -> str:
        """Return the id of the channel to send to."""
        if channel := channel_of(to):
            return channel
        return await self.open_dm(require_id(to.chat.removeprefix(USER), "person"))

    async def facts(self, channel: str) -> ChannelFacts:
        """Return what is known of a channel."""
        if found := self.find_cached(channel) or self._facts.get(channel):
            return found
        data = await self._rest.get(f"/channels/{channel}")
        facts = _facts(data if isinstance(data, dict) else {})
        _remember(self._facts, channel, facts)
        return facts


def _facts(data: Mapping[str, Json]) -> ChannelFacts:
    kind = data.get("type")
    texts = (str(data.get(name) or "") for name in ("guild_id", "parent_id"))
    return ChannelFacts(kind if isinstance(kind, int) else 0, *texts)


def _remember(known: OrderedDict[str, V], key: str, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > _MAX_KNOWN:
        known.popitem(last=False)
