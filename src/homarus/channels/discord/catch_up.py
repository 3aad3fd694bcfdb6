"""Fetch the messages that came while the bot was not connected.

The gateway reports what happens while it is connected, and repeats it after a short break
(RESUME). The cursor has the id of the newest message that was passed on: ids grow with time, and
events are passed on in order, so that every message before it was. After a new connection, the
messages since then are read from the direct chats that are known, from those of `allowFrom`, and
from the channels that the config admits. A message that comes twice is dropped by its id.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from homarus.channels.discord.channel_directory import ChannelDirectory
from homarus.channels.discord.rest import DiscordRefusedError, DiscordRest
from homarus.channels.discord.snowflake import id_at, is_id
from homarus.core.clock import Clock
from homarus.core.errors import SendError
from homarus.core.message import Json

log = logging.getLogger(__name__)

MAX_CHANNELS: Final = 200
MAX_PAGES, PAGE = 5, 100
_MAX_OPENED: Final = 20  # direct chats of `allowFrom` that are asked for
_MAX_DMS: Final = 200  # in the cursor
_SKEW_MS: Final = 30_000  # events of several channels are not quite in the order of their ids
_MAX_WAIT_S: Final = 60.0
_MAX_WAITS: Final = 10  # for one request


class DiscordReadPosition:
    """How far one bot has read, and the direct chats that it knows."""

    def __init__(self, directory: ChannelDirectory) -> None:
        self._directory = directory
        self._me = ""
        self.last = 0  # the newest message that was passed on; 0: none ever
        self.unread: dict[int, int] = {}  # servers that are not available, and where to read on

    def load(self, cursor: Mapping[str, Json] | None, me: str) -> None:
        """Load the stored cursor, unless it is of another bot."""
        self._me, self.last = me, 0
        if not cursor or cursor.get("bot") != me:
            return
        last, dms = str(cursor.get("last", "")), cursor.get("dms")
        self.last = int(last) if is_id(last) else 0
        for channel, user in dms.items() if isinstance(dms, dict) else ():
            if is_id(str(channel)) and is_id(str(user)):
                self._directory.record_dm(str(channel), str(user))

    def advance(self, message_id: int) -> None:
        """Record that a message was passed on."""
        self.last = max(self.last, message_id)

    def to_cursor(self) -> dict[str, Json]:
        """Return the cursor to store."""
        dms = dict([*self._directory.dms.items()][-_MAX_DMS:])
        last = min((self.last, *self.unread.values()))
        return {"bot": self._me, "last": str(last), "dms": dms}


class DiscordMissedMessages:
    """Find the messages since a position."""

    def __init__(self, rest: DiscordRest, directory: ChannelDirectory, clock: Clock) -> None:
        self._rest, self._directory, self._clock = rest, directory, clock

    async def open_dms(self, people: Iterable[str]) -> None:
        """Make sure that the direct chats of these people are known."""
        known = {*self._directory.dms.values()}
        for user in [each for each in people if is_id(each) and each not in known][:_MAX_OPENED]:
            try:
                await self._directory.open_dm(user)
            except SendError as exc:  # a person who left, or a limit
                log.info("the direct chat of %s is not known: %s", user, exc)

    async def fetch(self, channel: str, last: int) -> list[Mapping[str, Json]]:
        """Return the messages of a channel after a position, the oldest first."""
        after = with_skew(last)
        found = dict[int, Mapping[str, Json]]()
        for _ in range(MAX_PAGES):
            rows = await self._page(channel, after)
            new = {int(row["id"]): row for row in rows if is_id(str(row.get("id")))}
            found |= new
            if len(rows) < PAGE:
                break
            after = max(new, default=after)
        else:
            log.warning("channel %s has more missed messages than are read", channel)
        return [found[id_] for id_ in sorted(found)]

    async def fetch_roles(self, guild: str, user: str) -> tuple[str, ...]:
        """Return the roles of a member; none of a person who left."""
        try:
            member = await self._get(f"/guilds/{guild}/members/{user}")
        except DiscordRefusedError:
            return ()
        roles = member.get("roles") if isinstance(member, dict) else ()
        return tuple(map(str, roles or ()))

    async def _page(self, channel: str, after: int) -> list[Mapping[str, Json]]:
        try:
            rows = await self._get(f"/channels/{channel}/messages", after=str(after), limit=PAGE)
        except DiscordRefusedError as exc:
            log.info("missed messages of channel %s cannot be read: %s", channel, exc)
            return []
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    async def _get(self, path: str, **query: str | int) -> Json:
        """Return what a request answers, after the waits that rate limits demand.

        Without them the account would start again, and run into the same limit each time.
        """
        for _ in range(_MAX_WAITS):
            try:
                return await self._rest.get(path, **query)
            except SendError as exc:
                if exc.after_s is None or exc.after_s > _MAX_WAIT_S:
                    raise
                await self._clock.sleep(exc.after_s)
        return await self._rest.get(path, **query)


def now_id(clock: Clock) -> int:
    """Return the id of a message that is written now."""
    return id_at(clock.now_ms())


def with_skew(last: int) -> int:
    """Return the position from which messages are read: some are older than those after them."""
    return max(0, last - (_SKEW_MS << 22))
