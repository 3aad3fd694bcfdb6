"""Read the messages that were sent while we were not connected.

Slack offers again only what it sent and we did not acknowledge. The cursor has the last stored
message of each conversation and thread that was used lately, and of all; after each connect, what
is newer is read from the history, at most of a day. Duplicates are dropped by the journal.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, TypeVar

from homarus.channels.base import TTL_MS
from homarus.channels.slack.api import SlackClient
from homarus.channels.slack.directory import SlackConversation, SlackDirectory
from homarus.channels.slack.fields import get_bool, get_int, get_object, get_objects, get_str
from homarus.channels.slack.inbound import SlackIdentity
from homarus.channels.slack.timestamps import is_ts, ts_from_ms
from homarus.core.clock import Clock
from homarus.core.errors import SendError
from homarus.core.message import Json

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_PLACES: Final = 100  # conversations and threads in the cursor
MAX_READ: Final = 100  # conversations, and threads, that are read after a start
MAX_READ_AGAIN: Final = 10  # the same after Slack asked for another connection, as every hour
MAX_MISSED: Final = 200  # messages of each
PAGE: Final = 100
MAX_WAIT_S: Final = 300.0  # for one rate limit: Slack says how long
MAX_ATTEMPTS: Final = 5


class SlackReadPosition:
    """How far the account has read: the cursor of the channel."""

    def __init__(self, me: SlackIdentity) -> None:
        self._me = me
        self.last = ""  # the newest message of any conversation
        self.places: dict[str, str] = {}  # `C1`, or `C1/ts` for a thread, and its newest message

    def load(self, stored: Mapping[str, Json] | None, now_ms: int) -> bool:
        """Load a stored cursor; return False when there is none of this bot."""
        cursor = stored or {}
        if cursor.get("bot") != self._me.user or cursor.get("team") != self._me.team:
            self.last, self.places = ts_from_ms(now_ms + 1), {}  # not what was just before
            return False
        last, places = get_str(cursor, "last"), get_object(cursor, "places")
        self.last = last if is_ts(last) else ts_from_ms(now_ms)
        self.places = {place: ts for place, ts in places.items() if _is_position(place, ts)}
        return True

    def encode(self) -> dict[str, Json]:
        """Return the cursor."""
        return {
            "bot": self._me.user,
            "team": self._me.team,
            "last": self.last,
            "places": dict(self.places),
        }

    def after(self, chat: str, thread: str | None, ts: str) -> "SlackReadPosition":
        """Return the position after a message."""
        new = SlackReadPosition(self._me)
        place = f"{chat}/{thread}" if thread else chat
        newest = max(ts, self.places.get(place, ""), key=_order)
        places = {name: at for name, at in self.places.items() if name != place} | {place: newest}
        new.places = dict([*places.items()][-MAX_PLACES:])
        new.last = max(ts, self.last, key=_order)
        return new


class SlackMissedMessages:
    """Reads what is newer than the position, as events of Slack's."""

    def __init__(self, api: SlackClient, directory: SlackDirectory, clock: Clock) -> None:
        self._api, self._directory, self._clock = api, directory, clock

    async def read(
        self, position: SlackReadPosition, *, needs_all: bool
    ) -> AsyncIterator[Mapping[str, Json]]:
        """Yield the messages of each conversation and its threads, in order."""
        limit = MAX_READ if needs_all else MAX_READ_AGAIN
        floor = ts_from_ms(self._clock.now_ms() - TTL_MS)
        threads = {name: ts for name, ts in position.places.items() if "/" in name}
        for chat in (await self._conversations(position, needs_all=needs_all))[:limit]:
            oldest = max(position.places.get(chat.id, position.last), floor, key=_order)
            found = await self._messages("conversations.history", {"channel": chat.id}, oldest)
            for message in found:
                yield _as_event(message, chat)
                if get_int(message, "reply_count"):
                    threads.setdefault(f"{chat.id}/{get_str(message, 'ts')}", oldest)
        for name, ts in [*threads.items()][-limit:]:
            chat_id, _, thread = name.partition("/")
            params = {"channel": chat_id, "ts": thread}
            oldest = max(ts, floor, key=_order)
            for message in await self._messages("conversations.replies", params, oldest):
                if get_str(message, "ts") != thread:
                    yield _as_event(message, await self._directory.find_conversation(chat_id))

    async def _conversations(
        self, position: SlackReadPosition, *, needs_all: bool
    ) -> list[SlackConversation]:
        """Return the conversations to read, those that were used last first."""
        known = [name for name in reversed(position.places) if "/" not in name]
        rows = {name: SlackConversation(name) for name in known}
        if not needs_all:
            return [*rows.values()]
        try:
            rows |= await self._with_waits(self._list)
        except SendError as exc:
            if exc.retryable:  # the cursor would pass what is in those that are not listed
                raise
            log.warning("Slack does not list the conversations of the bot: %s", exc)
        return [*rows.values()]

    async def _list(self) -> dict[str, SlackConversation]:
        return {chat.id: chat async for chat in self._directory.list_conversations()}

    async def _messages(
        self, method: str, params: Mapping[str, Json], oldest: str
    ) -> list[Mapping[str, Json]]:
        """Return the messages after a timestamp, oldest first."""
        found, cursor = list[Mapping[str, Json]](), ""
        while len(found) < MAX_MISSED:
            own: dict[str, Json] = {**params, "oldest": oldest, "limit": PAGE}
            page = await self._page(method, own | ({"cursor": cursor} if cursor else {}))
            found += get_objects(page, "messages")
            cursor = get_str(get_object(page, "response_metadata"), "next_cursor")
            if not cursor or not get_bool(page, "has_more"):
                break
        else:
            log.warning("more than %d messages of %s were missed", MAX_MISSED, params["channel"])
        ordered = sorted((one for one in found if is_ts(get_str(one, "ts"))), key=_ts_order)
        return [one for one in ordered if _ts_order(one) > _order(oldest)]

    async def _page(self, method: str, params: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return one page; an empty one of a conversation that Slack does not show."""
        try:
            return await self._with_waits(lambda: self._api.call(method, params))
        except SendError as exc:
            if exc.retryable:
                raise
            log.info("missed messages of %s cannot be read: %s", params["channel"], exc)
            return {}

    async def _with_waits(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return a result, after the waits that Slack demands: many calls exceed its rate limit."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return await work()
            except SendError as exc:
                if not exc.retryable:
                    raise
                await self._clock.sleep(min(exc.after_s or 1.0, MAX_WAIT_S))
        return await work()


def _as_event(message: Mapping[str, Json], chat: SlackConversation) -> Mapping[str, Json]:
    """Return a message of the history as the event that Slack would have sent."""
    return {**message, "type": "message", "channel": chat.id, "channel_type": chat.kind}


def _is_position(place: Json, ts: Json) -> bool:
    return isinstance(place, str) and isinstance(ts, str) and is_ts(ts)


def _order(ts: str) -> float:
    return float(ts) if is_ts(ts) else 0.0


def _ts_order(message: Mapping[str, Json]) -> float:
    return _order(get_str(message, "ts"))
