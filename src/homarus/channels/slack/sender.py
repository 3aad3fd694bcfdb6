"""Send messages and files, and find out whether one arrived.

What the chat does not show comes before `before_write`: opening a direct chat, uploading a file.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Final

from homarus.channels.base import TTL_MS, BeforeWrite, Receipt
from homarus.channels.service_client import load_upload
from homarus.channels.slack.api import SlackClient, SlackRefusedError
from homarus.channels.slack.directory import SlackDirectory
from homarus.channels.slack.fields import get_bool, get_object, get_objects, get_str
from homarus.channels.slack.outbound import edit_params, key_of, post_params, thread_for
from homarus.channels.slack.timestamps import require_ts, ts_from_ms
from homarus.core.clock import Clock
from homarus.core.errors import ChannelError, SendError
from homarus.core.message import Json, Outbound
from homarus.core.text import repair_surrogates

PAGE: Final = 200
MAX_PAGES: Final = 10  # of a conversation, when a message is looked up
_MAX_UPLOADS: Final = 500


class SlackMessageSender:
    """Sends the messages of one account."""

    def __init__(
        self, api: SlackClient, directory: SlackDirectory, clock: Clock, *, max_bytes: int
    ) -> None:
        self._api, self._directory, self._clock = api, directory, clock
        self._max_bytes = max_bytes
        self._uploads: OrderedDict[str, str] = OrderedDict()  # by key: the file that was uploaded

    async def send(self, message: Outbound, before_write: BeforeWrite | None = None) -> Receipt:
        """Send a message as one call. Raises SlackRefusedError, SendError and ChannelError."""
        chat = await self._directory.resolve_chat(message.address.chat)
        extras = message.extras
        if extras.media:
            return await self._send_file(message, chat, before_write)
        if extras.replaces:
            params = edit_params(message.address, chat, extras.replaces, message)
            await self._api.call("chat.update", params, before_write=before_write)
            return Receipt(require_ts(extras.replaces, message.address))
        sent = await self._api.call(
            "chat.postMessage", post_params(message, chat), before_write=before_write
        )
        ts = get_str(sent, "ts")
        return Receipt(ts, ts if extras.thread_title and not message.address.thread else "")

    async def look_up(self, message: Outbound) -> Receipt | None:
        """Return the receipt of what was sent under this key, None if it never arrived.

        Raises SendError for a file that an earlier process uploaded, as it has no key to find it
        by, and for a message that is not among the ones that are read.
        """
        chat = await self._directory.resolve_chat(message.address.chat)
        thread, file = thread_for(message), self._uploads.get(message.key, "")
        if message.extras.media and not file:
            raise SendError("Slack cannot be asked whether a file arrived", retryable=False)
        async for found in self._recent(chat, thread):
            files = {get_str(one, "id") for one in get_objects(found, "files")}
            if (file and file in files) or (not file and key_of(found) == message.key):
                ts = get_str(found, "ts")
                return Receipt(ts, ts if message.extras.thread_title and not thread else "")
        return None

    async def _recent(self, chat: str, thread: str) -> AsyncIterator[Mapping[str, Json]]:
        """Yield the messages of a conversation or a thread that may be ours: those of a day."""
        method = "conversations.replies" if thread else "conversations.history"
        params: dict[str, Json] = {
            "channel": chat,
            "oldest": ts_from_ms(self._clock.now_ms() - TTL_MS),
            "limit": PAGE,
            "include_all_metadata": True,
        }
        if thread:
            params["ts"] = thread
        for _ in range(MAX_PAGES):
            try:
                page = await self._api.call(method, params)
            except SlackRefusedError as exc:
                if exc.error in {"channel_not_found", "thread_not_found", "not_in_channel"}:
                    return  # nothing of ours can be there
                raise ChannelError(str(exc)) from exc
            for found in get_objects(page, "messages"):
                yield found
            cursor = get_str(get_object(page, "response_metadata"), "next_cursor")
            if not cursor or not get_bool(page, "has_more"):
                return
            params["cursor"] = cursor
        raise SendError(
            f"more than {PAGE * MAX_PAGES} messages of a day would have to be read",
            retryable=False,
        )

    async def _send_file(
        self, message: Outbound, chat: str, before_write: BeforeWrite | None
    ) -> Receipt:
        if len(message.extras.media) > 1 or message.extras.replaces:
            raise SendError(
                "Slack gets one file with a message, and none in an edit", retryable=False
            )
        file = await load_upload(message.extras.media[0], self._max_bytes)
        if not file.content:
            raise SendError(f"{file.name} is empty, which Slack does not take", retryable=False)
        name = repair_surrogates(file.name)
        given = await self._api.call(
            "files.getUploadURLExternal", {"filename": name, "length": len(file.content)}
        )
        id_, url = get_str(given, "file_id"), get_str(given, "upload_url")
        await self._api.upload(url, file.content)
        params: dict[str, Json] = {"files": [{"id": id_, "title": name}], "channel_id": chat}
        if message.text.strip():
            params["initial_comment"] = message.text
        if thread := thread_for(message):
            params["thread_ts"] = thread
        self._uploads[message.key] = id_
        while len(self._uploads) > _MAX_UPLOADS:
            self._uploads.popitem(last=False)
        await self._api.call("files.completeUploadExternal", params, before_write=before_write)
        return Receipt(await self._find_share(id_, chat))

    async def _find_share(self, file: str, chat: str) -> str:
        """Return the message with a file; "" where Slack has not posted it yet."""
        try:
            found = await self._api.call("files.info", {"file": file})
        except ChannelError:  # it was sent: the receipt is not worth a failure
            return ""
        shares = get_object(get_object(found, "file"), "shares")
        for kind in ("public", "private"):
            for share in get_objects(get_object(shares, kind), chat):
                return get_str(share, "ts")
        return ""
