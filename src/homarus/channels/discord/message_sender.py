"""Send messages, each at most once, and find out whether one arrived.

A message has a nonce made of its idempotency key: Discord returns the first message when it gets
the same nonce again, for a few minutes. After that, and for posts of a forum, which have no nonce,
the messages since the first attempt are searched.

A reply may start a thread: in a channel with `autoThread` under the message that it answers. Such a
thread has the id of that message, so that starting it twice is one thread.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from homarus.channels.base import BeforeWrite, Receipt
from homarus.channels.discord.channel_directory import (
    FORUMS,
    THREADED,
    THREADS,
    ChannelDirectory,
    ChannelFacts,
)
from homarus.channels.discord.outbound import (
    MAX_TITLE_CHARS,
    USER,
    edit_json,
    message_json,
    nonce_for,
    require_id,
)
from homarus.channels.discord.rest import THREAD_EXISTS, DiscordRefusedError, DiscordRest
from homarus.channels.discord.snowflake import id_at, is_id
from homarus.channels.service_client import UploadFile, load_upload
from homarus.core.errors import ChannelError, SendError
from homarus.core.message import Json, Outbound
from homarus.core.text import one_line

log = logging.getLogger(__name__)

NONCE_MEMORY_S: Final = 60.0  # Discord says "a few minutes"
_SKEW_MS: Final = 30_000  # between our clock and that of Discord
_MAX_PAGES, _PAGE = 5, 100
_MAX_SENT: Final = 2_000


class DiscordMessageSender:
    """Send the messages of one bot. `opens_thread` tells channels where replies have a thread."""

    def __init__(
        self,
        rest: DiscordRest,
        channels: ChannelDirectory,
        max_bytes: int,
        opens_thread: Callable[[str, ChannelFacts], bool],
    ) -> None:
        self._rest, self._channels, self._max_bytes = rest, channels, max_bytes
        self._opens_thread = opens_thread
        self._me = ""
        self._sent: OrderedDict[str, str] = OrderedDict()  # our recent messages, with their keys

    def is_ours(self, message_id: str) -> bool:
        """Return whether a message was sent by this process."""
        return message_id in self._sent

    async def send(self, message: Outbound, before_write: BeforeWrite | None = None) -> Receipt:
        """Send a message, or edit the one that it replaces."""
        extras = message.extras
        channel = await self._channels.resolve(message.address)
        if extras.replaces:
            path = f"/channels/{channel}/messages/{require_id(extras.replaces, 'message')}"
            # Without the buttons of the message that is replaced, such as a prompt's.
            data: dict[str, Json] = {"components": [], **edit_json(message)}
            await self._rest.call("PATCH", path, data, before_write=before_write)
            return Receipt(extras.replaces)
        if extras.thread_title:
            return await self._send_thread(channel, message, before_write)
        thread = await self._start_reply_thread(channel, message)
        found = await self._post(f"/channels/{thread or channel}/messages", message, before_write)
        return self._receipt(message, found, thread)

    async def look_up(self, message: Outbound) -> Receipt | None:
        """Return the receipt of a message that arrived since its first attempt started."""
        try:
            return await self._find(message)
        except DiscordRefusedError:  # nothing arrived where we may not write
            return None

    async def _find(self, message: Outbound) -> Receipt | None:
        channel = await self._channels.resolve(message.address)
        title = message.extras.thread_title
        if title and (await self._channels.facts(channel)).kind in FORUMS:
            return await self._find_post(channel, message)
        thread = await self._reply_thread(channel, message)
        for place in filter(None, (thread, channel)):
            if found := await self._find_message(place, message):
                if title:
                    return await self._start_titled_thread(channel, found, title)
                return Receipt(found, thread if place == thread else "")
        return None

    async def load_identity(self) -> Mapping[str, Json]:
        """Return our own user. Raises ChannelError when the login fails."""
        found = await self._rest.get("/users/@me")
        me = found if isinstance(found, dict) else {}
        self._me = str(me.get("id") or "")
        if not self._me:
            raise ChannelError("Discord did not say who we are")
        return me

    # Threads

    async def _send_thread(
        self, channel: str, message: Outbound, before_write: BeforeWrite | None
    ) -> Receipt:
        """Send a message that starts a thread; in a forum it is a post."""
        title = one_line(message.extras.thread_title, MAX_TITLE_CHARS)
        kind = (await self._channels.facts(channel)).kind
        if kind in FORUMS:
            data = message_json(message)
            for name in ("nonce", "enforce_nonce", "message_reference"):
                data.pop(name, None)
            post = {"name": title, "message": data}
            found = await self._post(f"/channels/{channel}/threads", message, before_write, post)
            thread = _id_of(found)
            self._record_sent(thread, message.key)
            return Receipt(thread, thread)
        if kind not in THREADED:
            raise SendError("Discord has no threads in this chat", retryable=False)
        found = await self._post(f"/channels/{channel}/messages", message, before_write)
        first = _id_of(found)
        self._record_sent(first, message.key)
        return await self._start_titled_thread(channel, first, title)

    async def _start_titled_thread(self, channel: str, message_id: str, title: str) -> Receipt:
        """Start the thread of a message that is sent, which must not be sent again for it."""
        try:
            await self._start_thread(channel, message_id, one_line(title, MAX_TITLE_CHARS))
        except DiscordRefusedError as exc:
            log.warning("message %s has no thread: %s", message_id, exc)
            return Receipt(message_id)
        except SendError as exc:
            raise ChannelError(f"the message is sent, its thread not yet started: {exc}") from exc
        return Receipt(message_id, message_id)

    async def _start_reply_thread(self, channel: str, message: Outbound) -> str:
        """Return the thread under the message that this one answers, started if need be."""
        thread = await self._reply_thread(channel, message)
        if thread:
            title = one_line(message.text, MAX_TITLE_CHARS) or "Reply"
            try:
                await self._start_thread(channel, thread, title)
            except DiscordRefusedError:  # no permission, or the message is gone
                return ""
        return thread

    async def _reply_thread(self, channel: str, message: Outbound) -> str:
        """Return the id of the thread that the reply belongs to; "" for none."""
        to, answered = message.address, message.extras.thread_on
        if to.thread or to.chat.startswith(USER) or not is_id(answered):
            return ""
        facts = await self._channels.facts(channel)
        opens = facts.kind not in THREADS and self._opens_thread(channel, facts)
        return answered if opens else ""

    async def _start_thread(self, channel: str, message_id: str, title: str) -> None:
        path = f"/channels/{channel}/messages/{message_id}/threads"
        try:
            await self._rest.call("POST", path, {"name": title})
        except DiscordRefusedError as exc:
            if exc.number != THREAD_EXISTS:
                raise

    # Messages

    async def _post(
        self,
        path: str,
        message: Outbound,
        before_write: BeforeWrite | None,
        data: dict[str, Json] | None = None,
    ) -> Json:
        data = message_json(message) if data is None else data
        inner = data.get("message", data)
        files = await self._load_files(message)
        if not files:
            if not inner.keys() & {"content", "poll", "components"}:
                raise SendError("the message is empty", retryable=False)
            return await self._rest.call("POST", path, data, before_write=before_write)
        inner["attachments"] = [
            {"id": number, "filename": file.name} for number, file in enumerate(files.values())
        ]
        return await self._rest.upload(path, json.dumps(data), files, before_write)

    async def _load_files(self, message: Outbound) -> dict[str, UploadFile]:
        return {
            f"files[{number}]": await load_upload(media, self._max_bytes)
            for number, media in enumerate(message.extras.media)
        }

    def _receipt(self, message: Outbound, found: Json, thread: str) -> Receipt:
        id_ = _id_of(found)
        self._record_sent(id_, message.key)
        return Receipt(id_, thread)

    def _record_sent(self, id_: str, key: str) -> None:
        self._sent[id_] = key
        while len(self._sent) > _MAX_SENT:
            self._sent.popitem(last=False)

    async def _find_message(self, channel: str, message: Outbound) -> str:
        """Return the id of our message with this nonce, or with this text; "" if there is none."""
        me = self._me or str((await self.load_identity())["id"])
        after = id_at(message.started_ms - _SKEW_MS) if message.started_ms else 0
        for _ in range(_MAX_PAGES):
            try:
                rows = await self._rest.get(
                    f"/channels/{channel}/messages", limit=_PAGE, **_after(after)
                )
            except DiscordRefusedError:
                return ""  # there is no such thread
            found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            for row in found:
                if _author(row) == me and self._is_same(row, message):
                    return str(row["id"])
            if not after or len(found) < _PAGE:
                return ""
            after = max(int(row["id"]) for row in found)
        return ""

    def _is_same(self, row: Mapping[str, Json], message: Outbound) -> bool:
        if nonce := row.get("nonce"):
            return str(nonce) == nonce_for(message.key)
        if self._sent.get(str(row.get("id")), message.key) != message.key:
            return False  # another message of ours with the same text
        if poll := message.extras.poll:
            question = (row.get("poll") or {}).get("question") or {}
            return bool(question.get("text") == poll.question)
        names = [str(each.get("filename")) for each in row.get("attachments") or ()]
        is_same_text = str(row.get("content", "")).strip() == message.text.strip()
        return is_same_text and len(names) == len(message.extras.media)

    async def _find_post(self, forum: str, message: Outbound) -> Receipt | None:
        """Return the post of a forum with this title that is ours and new enough."""
        me = self._me or str((await self.load_identity())["id"])
        guild = (await self._channels.facts(forum)).guild
        found = await self._rest.get(f"/guilds/{guild}/threads/active")
        rows = found.get("threads") if isinstance(found, dict) else None
        title = one_line(message.extras.thread_title, MAX_TITLE_CHARS)
        after = id_at(message.started_ms - _SKEW_MS) if message.started_ms else 0
        for row in rows if isinstance(rows, list) else ():
            is_ours = (str(row.get("owner_id")), str(row.get("parent_id"))) == (me, forum)
            if is_ours and row.get("name") == title and int(row["id"]) >= after:
                return Receipt(str(row["id"]), str(row["id"]))
        return None


def _after(after: int) -> dict[str, str]:
    return {"after": str(after)} if after else {}


def _author(row: Mapping[str, Json]) -> str:
    author = row.get("author")
    return str(author.get("id")) if isinstance(author, dict) else ""


def _id_of(found: Json) -> str:
    id_ = str(found.get("id") or "") if isinstance(found, dict) else ""
    if not id_:
        raise ChannelError("Discord did not say which message it took")
    return id_
