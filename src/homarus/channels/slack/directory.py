"""Look up people and conversations of a workspace, and resolve the targets of messages.

Names are for display. What was found is cached for an hour, what was not for a minute, so that a
workspace that answers no lookup is not asked with every message.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from homarus.channels.slack.api import SlackClient
from homarus.channels.slack.fields import get_bool, get_object, get_objects, get_str
from homarus.channels.slack.traits import TRAITS
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

log = logging.getLogger(__name__)

ConversationKind: TypeAlias = Literal["im", "mpim", "channel", "group", ""]

FOUND_S: Final = 3_600.0
MISSING_S: Final = 60.0
MAX_CACHED: Final = 2_000
PAGE: Final = 200
MAX_PAGES: Final = 25
SLACKBOT: Final = "USLACKBOT"  # which Slack does not call a bot
_NAME_CHARS: Final = 80
_ALL_KINDS: Final = "public_channel,private_channel,mpim,im"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Person:
    """A person or a bot. Without `name`, Slack did not say who it is."""

    id: str
    name: str = ""
    handle: str = ""
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class SlackConversation:
    """A conversation; `kind` is "" where Slack did not say it.

    `person` is whom a direct one is with.
    """

    id: str
    kind: ConversationKind = ""
    name: str = ""
    person: str = ""


class _LookupCache(Generic[T]):
    """The results of lookups, bounded and each for a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, T]] = OrderedDict()

    async def get(self, key: str, fetch: Callable[[], Awaitable[T]], missing: T) -> T:
        """Return what is known of a key, or look it up; `missing` when that fails."""
        if (known := self.find(key)) is not None:
            return known
        try:
            found, keep_s = await fetch(), FOUND_S
        except ChannelAuthError:
            raise
        except ChannelError as exc:
            log.info("Slack does not describe %s: %s", one_line(key, 60), exc)
            found, keep_s = missing, MISSING_S
        self.put(key, found, keep_s)
        return found

    def find(self, key: str) -> T | None:
        """Return what is known of a key."""
        entry = self._entries.get(key)
        return entry[1] if entry and self._clock.monotonic() < entry[0] else None

    def put(self, key: str, value: T, keep_s: float = FOUND_S) -> None:
        self._entries[key] = (self._clock.monotonic() + keep_s, value)
        self._entries.move_to_end(key)
        while len(self._entries) > MAX_CACHED:
            self._entries.popitem(last=False)


class SlackDirectory:
    """The people and conversations of one workspace."""

    def __init__(self, api: SlackClient, clock: Clock) -> None:
        self._api = api
        self._people: _LookupCache[Person] = _LookupCache(clock)
        self._conversations: _LookupCache[SlackConversation] = _LookupCache(clock)
        self._chats: _LookupCache[str] = _LookupCache(clock)  # targets, and their conversations

    async def find_person(self, id_: str) -> Person:
        """Return a person; only the id where Slack says no more."""

        async def fetch() -> Person:
            return parse_person(
                get_object(await self._api.call("users.info", {"user": id_}), "user")
            )

        return await self._people.get(id_, fetch, Person(id_))

    async def find_conversation(self, id_: str) -> SlackConversation:
        """Return a conversation; only the id where Slack says no more."""
        if id_.startswith("D"):
            return SlackConversation(id_, "im")

        async def fetch() -> SlackConversation:
            found = await self._api.call("conversations.info", {"channel": id_})
            return parse_conversation(get_object(found, "channel"))

        return await self._conversations.get(id_, fetch, SlackConversation(id_))

    async def resolve_chat(self, target: str) -> str:
        """Return the conversation of a target: its id, `#name`, a person's id or `@handle`.

        Raises SendError when there is none.
        """
        kind, _, rest = target.partition(":")
        chat = rest if rest and kind.lower() in TRAITS.target_kinds else target
        if not TRAITS.normalize_id(chat):
            chat = await self._resolve(chat, self._find_named)
        return await self._resolve(chat, self._open_direct) if chat[0] in "UW" else chat

    async def _resolve(self, target: str, resolve: Callable[[str], Awaitable[str]]) -> str:
        if (known := self._chats.find(target)) is not None:
            return known
        found = await resolve(target)
        self._chats.put(target, found)
        return found

    async def list_conversations(
        self, *, is_member: bool = True
    ) -> AsyncIterator[SlackConversation]:
        """Yield conversations: those of the bot, or all that it can see."""
        method = "users.conversations" if is_member else "conversations.list"
        types = _ALL_KINDS if is_member else "public_channel,private_channel"
        params = {"types": types, "exclude_archived": True}
        async for row in self._rows(method, "channels", params):
            found = parse_conversation(row)
            if found.id:
                self._conversations.put(found.id, found)
                yield found

    async def list_people(self) -> AsyncIterator[Person]:
        """Yield the people of the workspace whose accounts are active."""
        async for row in self._rows("users.list", "members", {}):
            person = parse_person(row)
            if person.id and not get_bool(row, "deleted"):
                self._people.put(person.id, person)
                yield person

    async def _rows(
        self, method: str, name: str, params: Mapping[str, Json]
    ) -> AsyncIterator[Mapping[str, Json]]:
        cursor = ""
        for _ in range(MAX_PAGES):
            own: dict[str, Json] = {**params, "limit": PAGE, "cursor": cursor or None}
            page = await self._api.call(method, own)
            for row in get_objects(page, name):
                yield row
            cursor = get_str(get_object(page, "response_metadata"), "next_cursor")
            if not cursor:
                return

    async def _open_direct(self, person: str) -> str:
        opened = await self._api.call("conversations.open", {"users": person})
        if not (chat := get_str(get_object(opened, "channel"), "id")):
            raise ChannelError("Slack opened a direct chat and did not say which")
        return chat

    async def _find_named(self, name: str) -> str:
        """Return the id of a channel or a person by name. Raises SendError for any other text."""
        wanted = name[1:].lower()
        if name.startswith("#"):
            async for chat in self.list_conversations(is_member=False):
                if chat.name.lower() == wanted:
                    return chat.id
        if name.startswith("@"):
            async for person in self.list_people():
                if person.handle.lower() == wanted:
                    return person.id
        raise SendError(
            f"{one_line(name, 60)!r} names no chat of Slack", retryable=False,
            fix="use a channel's id (C…), a person's (U…), #name or @handle",
        )  # fmt: skip


def parse_person(row: Mapping[str, Json]) -> Person:
    """Return the person of a row of Slack's."""
    profile = get_object(row, "profile")
    names = (get_str(profile, "display_name"), get_str(profile, "real_name"), get_str(row, "name"))
    shown = next((name for name in names if name), "")
    return Person(
        get_str(row, "id"),
        one_line(shown, _NAME_CHARS),
        one_line(get_str(row, "name"), _NAME_CHARS),
        get_bool(row, "is_bot") or get_str(row, "id") == SLACKBOT,
    )


def parse_conversation(row: Mapping[str, Json]) -> SlackConversation:
    """Return the conversation of a row of Slack's."""
    kind: ConversationKind = "channel"
    if get_bool(row, "is_im"):
        kind = "im"
    elif get_bool(row, "is_mpim"):
        kind = "mpim"
    elif get_bool(row, "is_private") or get_bool(row, "is_group"):
        kind = "group"
    name = one_line(get_str(row, "name"), _NAME_CHARS)
    return SlackConversation(get_str(row, "id"), kind, name, get_str(row, "user"))
