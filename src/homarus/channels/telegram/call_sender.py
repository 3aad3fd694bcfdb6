"""Send calls, with fallbacks after Telegram refused one.

A refused call had no effect, so a fallback cannot send the message twice: text without markup when
Telegram cannot parse it, a group's new id, an image as a plain file.
"""

import logging
from collections.abc import Callable

from homarus.channels.base import BeforeWrite
from homarus.channels.service_client import UploadFile, load_upload
from homarus.channels.telegram.api import BotApiClient, TelegramRefusedError
from homarus.channels.telegram.outbound import FIELD_FALLBACKS, MAX_PHOTO_BYTES, BotApiCall
from homarus.core.message import Json

log = logging.getLogger(__name__)


class CallSender:
    """Send the calls of one bot to its chats."""

    def __init__(
        self, api: BotApiClient, max_bytes: int, on_chat_moved: Callable[[str, str], None]
    ) -> None:
        self._api, self._max_bytes, self._on_chat_moved = api, max_bytes, on_chat_moved
        self._moved: dict[str, str] = {}  # groups that became supergroups

    async def send(self, call: BotApiCall, before_write: BeforeWrite | None = None) -> Json:
        """Send a call, with fallbacks. Raises TelegramRefusedError when none is left."""
        if moved := self._moved.get(str(call.params["chat_id"])):
            call = call.moved(moved)
        media = call.media
        file = await load_upload(media, self._max_bytes) if media and media.path else None
        if file and call.field == "photo" and len(file.content) > MAX_PHOTO_BYTES:
            call = call.as_file("document")
        while True:
            try:
                return await self._ask(call, file, before_write)
            except TelegramRefusedError as exc:
                other = self._other_way(call, exc)
                if other is None:
                    raise
                call = other

    def record_migration(self, chat: str, to: str) -> None:
        """Record the new id of a group that became a supergroup."""
        if self._moved.get(chat) != to:
            log.warning("the group %s is %s now", chat, to)
            self._moved[chat] = to
            self._on_chat_moved(chat, to)

    async def _ask(
        self, call: BotApiCall, file: UploadFile | None, before_write: BeforeWrite | None
    ) -> Json:
        if file:
            return await self._api.upload(call.method, call.params, call.field, file, before_write)
        params = {**call.params, call.field: call.media.ref} if call.media else call.params
        return await self._api.call(call.method, params, before_write=before_write)

    def _other_way(self, call: BotApiCall, refusal: TelegramRefusedError) -> BotApiCall | None:
        """Return the next fallback; each is used once."""
        chat = str(call.params["chat_id"])
        if refusal.moved_to and chat not in self._moved:
            self.record_migration(chat, refusal.moved_to)
            return call.moved(refusal.moved_to)
        if "can't parse entities" in refusal.reason and "parse_mode" in call.params:
            from homarus.channels.markup import plain

            # Without Telegram's text: it quotes the message.
            log.warning("Telegram cannot read our markup, the words go without")
            return call.with_text(plain(call.params[call.text_param], "telegram"))
        for text, field in FIELD_FALLBACKS:
            if text in refusal.reason and call.field not in {"", field}:
                return call.as_file(field)
        return None
