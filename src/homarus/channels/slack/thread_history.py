"""What was written in a thread before the bot was first addressed there."""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from homarus.channels.slack.api import SlackClient
from homarus.channels.slack.directory import SlackDirectory
from homarus.channels.slack.fields import get_bool, get_object, get_objects, get_str
from homarus.channels.slack.inbound import SlackIdentity
from homarus.channels.slack.text import decode_text, mentioned_people
from homarus.core.errors import ChannelAuthError, ChannelError
from homarus.core.message import Inbound, Json
from homarus.core.text import one_line

MAX_CHARS: Final = 4_096
PAGE: Final = 200
MAX_PAGES: Final = 10
_MAX_THREADS: Final = 1_000
_MAX_LINE_CHARS: Final = 500


class ThreadHistory:
    """Adds the earlier messages of a thread to the first message for us there, as a quotation."""

    def __init__(
        self, api: SlackClient, directory: SlackDirectory, me: SlackIdentity, limit: int
    ) -> None:
        self._api, self._directory, self._me = api, directory, me
        self._limit = min(limit, 200)
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def add_to(self, inbound: Inbound) -> Inbound:
        """Return the message with what precedes it in its thread, if it is the first for us."""
        address, metadata = inbound.address, inbound.metadata
        is_for_us = metadata.mentioned or metadata.replies_to_us or metadata.kind == "direct"
        if not address.thread or not is_for_us or not self._limit or metadata.quoted:
            return inbound
        key = (address.chat, address.thread)
        if key in self._seen:
            return inbound
        self._seen[key] = None
        while len(self._seen) > _MAX_THREADS:
            self._seen.popitem(last=False)
        try:
            before = await self._messages_before(inbound, address.thread)
            lines = [await self._line(one) for one in before]
        except ChannelAuthError:
            raise
        except ChannelError:  # the message itself is there
            return inbound
        quoted = "\n".join(lines)[-MAX_CHARS:]
        has_others = any(
            get_str(one, "user") != inbound.sender and not self._me.is_own(one) for one in before
        )
        return replace(inbound, metadata=replace(metadata, quoted=quoted, quotes_others=has_others))

    async def _messages_before(self, inbound: Inbound, thread: str) -> list[Mapping[str, Json]]:
        params: dict[str, Json] = {"channel": inbound.address.chat, "ts": thread, "limit": PAGE}
        params["latest"] = inbound.id.rpartition(":")[2]
        before: deque[Mapping[str, Json]] = deque(maxlen=self._limit)
        for _ in range(MAX_PAGES):  # Slack gives the oldest first
            page = await self._api.call("conversations.replies", params)
            before.extend(get_objects(page, "messages"))
            params["cursor"] = get_str(get_object(page, "response_metadata"), "next_cursor")
            if not params["cursor"] or not get_bool(page, "has_more"):
                break
        return [one for one in before if get_str(one, "text")]

    async def _line(self, message: Mapping[str, Json]) -> str:
        markup, sender = get_str(message, "text"), get_str(message, "user")
        people = {*mentioned_people(markup), *([sender] if sender else ())}
        names = {each: (await self._directory.find_person(each)).name for each in sorted(people)}
        name = names.get(sender) or get_str(message, "username") or "a bot"
        return one_line(f"{name}: {decode_text(markup, names).text}", _MAX_LINE_CHARS)
