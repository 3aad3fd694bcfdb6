"""The Telegram channel: one bot.

Telegram takes the next poll, or the response to a webhook, as confirmation, so nothing is
acknowledged. Only a button press is answered, as the button shows a clock until it is. The updates
of a poll are passed on in order, and the offset is stored with each message as cursor. The cursor
belongs to one bot: another token resets it. Telegram may restart its numbers after a week without
messages, so a cursor that old is not used: duplicates are recognised by message id.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from homarus.channels.base import Capabilities, Place, Receipt, Receive
from homarus.channels.telegram.api import BotApi, Refused
from homarus.channels.telegram.fields import flag, number, part, text
from homarus.channels.telegram.inbound import KINDS, REACTION, Me, Reader, is_press, is_reaction
from homarus.channels.telegram.outbound import (
    Call,
    call_for,
    chat_id,
    draft_call,
    edit_call,
    is_private,
    known_number,
    place,
)
from homarus.channels.telegram.post import Post
from homarus.channels.telegram.settings import (
    API_ROOT,
    Settings,
    find_secret,
    find_token,
    listed_commands,
)
from homarus.channels.telegram.traits import TRAITS
from homarus.core.errors import ChannelError, MediaTooLarge, StoreError
from homarus.core.message import Address, Inbound, Json, Media, Outbound

log = logging.getLogger(__name__)

POLL_S: Final = 30
MIN_POLL_S: Final = 1.0
CAPTION_UNITS: Final = 1_024
TYPING_S: Final = 5.0
MAX_FETCH_BYTES: Final = 20 * 1024 * 1024  # the limit of Telegram's own server
_STALE_MS: Final = 6 * 24 * 3600 * 1000
_SENT_KEPT: Final = 2_000


class Telegram:
    """One bot. See channels/base for what each method guarantees."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self.name, self.account = place.channel, place.account
        self.capabilities = Capabilities(
            text_limit=settings.text_limit,
            unit="utf16",
            dialect=TRAITS.dialect,
            caption_limit=CAPTION_UNITS,
            media_max_bytes=settings.media_max_bytes,
            typing_s=TYPING_S,
            retry=settings.retries,
        )
        self._place, self._settings, self._clock = place, settings, place.clock
        self._secret = find_secret(settings)
        self._api = BotApi(
            settings.api_root,
            find_token(settings, place.account, place.env),
            timeout_s=float(settings.timeout_seconds),
            proxy=settings.proxy or "",
        )
        self._post = Post(self._api, settings.media_max_bytes)
        self._reader: Reader | None = None
        self._receive: Receive | None = None  # while Telegram may send webhooks
        self._listed: list[dict[str, str]] | None = None  # the commands that were set
        self._undraftable: set[str] = set()
        self._sent: dict[tuple[str, int], str | None] = {}  # our recent messages, with their topics

    # Receiving

    async def run(self, receive: Receive) -> None:
        async with self._api.in_use():
            me = await self._introduce()
            receive.connected()
            self._reader = Reader(
                self.name, self.account, me, self._settings.reaction_notifications
            )
            await self._list_commands()
            if self.path:
                await self._serve_webhook(receive)
            else:
                await self._poll(receive, me)

    async def _introduce(self) -> Me:
        response = await self._api.call("getMe")
        found = response if isinstance(response, dict) else {}
        me = Me(
            number(found, "id"),
            text(found, "username"),
            flag(found, "can_read_all_group_messages"),
        )
        if not me.id:
            raise ChannelError("Telegram did not say who we are")
        if self._settings.common.groups and not me.reads_all:
            log.info(
                "@%s sees only commands, mentions and replies in groups; /setprivacy of @BotFather"
                " changes that",
                me.username,
            )
        return me

    async def _list_commands(self) -> None:
        commands = listed_commands(self._settings, self._place.commands)
        if commands == self._listed:
            return
        try:
            if commands:
                await self._api.call("setMyCommands", {"commands": commands})
            else:
                await self._api.call("deleteMyCommands")
        except ChannelError as exc:
            log.warning("Telegram does not list our commands: %s", exc)
        else:
            self._listed = commands

    async def _poll(self, receive: Receive, me: Me) -> None:
        try:
            await self._api.call("deleteWebhook")
        except Refused as exc:
            log.warning("a webhook may still be set: %s", exc)
        offset = self._begin(await receive.cursor(), me)
        heard_ms = self._clock.now_ms()
        while True:
            if self._clock.now_ms() - heard_ms > _STALE_MS:
                offset = 0
            asked: dict[str, Json] = {"timeout": POLL_S, "allowed_updates": self._wanted()}
            if offset:
                asked["offset"] = offset
            asked_s = self._clock.monotonic()
            updates = await self._api.call("getUpdates", asked, wait_s=POLL_S)
            if not isinstance(updates, list):
                raise ChannelError("Telegram did not answer getUpdates with updates")
            if not updates and self._clock.monotonic() - asked_s < MIN_POLL_S:
                await self._clock.sleep(MIN_POLL_S)  # a server without long polling
            if updates:
                offset = await self._handle_updates(updates, receive, me)
                heard_ms = self._clock.now_ms()

    def _begin(self, cursor: Mapping[str, Json] | None, me: Me) -> int:
        stored = cursor or {}
        is_ours = number(stored, "bot") in {0, me.id}
        at_ms = number(stored, "atMs")
        is_fresh = not at_ms or self._clock.now_ms() - at_ms <= _STALE_MS
        return number(stored, "offset") if is_ours and is_fresh else 0

    async def _handle_updates(self, updates: list[Json], receive: Receive, me: Me) -> int:
        """Pass on the updates, and return the offset after them.

        The offset follows the received numbers, not the requested one, as Telegram may restart
        them. They are passed on in order, so that a stop in the middle resumes after the last
        stored one.
        """
        after = 0
        for update in sorted(updates, key=_number_of):
            if not (id_ := _number_of(update)):
                log.warning("an update without a number is passed over")
                continue
            after = max(after, id_ + 1)
            cursor = {"offset": after, "bot": me.id, "atMs": self._clock.now_ms()}
            await self._pass_on(update, receive, cursor)
        if not after:  # it would return the same again, at once and forever
            raise ChannelError("Telegram gave updates that have no number")
        return after

    async def _pass_on(
        self, update: Mapping[str, Json], receive: Receive, cursor: Mapping[str, Json] | None
    ) -> None:
        if inbound := self._read(update):
            await receive(inbound, cursor)
        if pressed := is_press(update):  # for any sender: the button waits
            await self._answer_press(pressed)

    async def _answer_press(self, pressed: str) -> None:
        try:
            await self._api.call("answerCallbackQuery", {"callback_query_id": pressed})
        except ChannelError as exc:  # the message is stored: not fatal
            log.warning("a button goes on waiting: %s", exc)

    def _read(self, update: Mapping[str, Json]) -> Inbound | None:
        assert self._reader is not None  # noqa: S101 - it is made before anything is read
        inbound = self._reader.read(update, self._clock.now_ms())
        if inbound is None:
            self._skip(update)
            return None
        return self._own_reaction(inbound) if is_reaction(inbound) else inbound

    def _skip(self, update: Mapping[str, Json]) -> None:
        said = part(update, "message")
        if new := number(said, "migrate_to_chat_id"):
            self._post.note_move(str(number(part(said, "chat"), "id")), str(new))
        elif kind := next((name for name in (*KINDS, REACTION) if name in update), ""):
            id_ = number(update, "update_id")
            log.info("update %d is passed over: nothing to read in its %s", id_, kind)

    def _own_reaction(self, inbound: Inbound) -> Inbound | None:
        """Return whether a reaction is passed on: to our messages, or to all if set."""
        key = (inbound.address.chat, int(inbound.occasion.reply_to))
        if key in self._sent:
            to = replace(inbound.address, thread=self._sent[key])
            return replace(inbound, address=to, occasion=replace(inbound.occasion, answers_us=True))
        return inbound if self._settings.reaction_notifications == "all" else None

    def _wanted(self) -> list[str]:
        asked = self._settings.reaction_notifications != "off"
        return [*KINDS, REACTION] if asked else list(KINDS)

    # Webhooks

    @property
    def path(self) -> str:
        return self._settings.path

    async def _serve_webhook(self, receive: Receive) -> None:
        asked = {
            "url": self._settings.public_url,
            "secret_token": self._secret,
            "allowed_updates": self._wanted(),
        }
        self._receive = receive  # it may send a webhook before it has responded
        try:
            await self._api.call("setWebhook", asked)
            await asyncio.Event().wait()
        finally:
            self._receive = None

    def admits(self, headers: Mapping[str, str]) -> bool:
        from homarus.channels.signatures import check_telegram  # only with webhooks

        return bool(self.path) and check_telegram(headers, self._secret)

    async def hear(self, headers: Mapping[str, str], body: bytes) -> int:
        if not self.admits(headers):
            return 401
        if self._receive is None:
            return 503
        try:
            update = json.loads(body)
        except (ValueError, RecursionError):
            return 400
        if not isinstance(update, dict):
            return 400
        try:
            await self._pass_on(update, self._receive, None)
        except StoreError as exc:
            log.warning("an update could not be kept, Telegram will bring it again: %s", exc)
            return 503
        return 200

    # Sending

    async def send(self, message: Outbound) -> Receipt:
        call = call_for(message, self._settings)
        try:
            sent = await self._post.do(call)
        except Refused as exc:
            if message.extras.replaces and _is_unchanged(exc):
                return Receipt(str(known_number(message.extras.replaces, message.address)))
            raise
        id_ = number(sent, "message_id") if isinstance(sent, dict) else 0
        if id_:
            self._remember(message.address, id_)
        return Receipt(str(id_ or ""))

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        try:
            await self._post.do(edit_call(to, message_id, text, self._settings))
        except Refused as exc:
            if not _is_unchanged(exc):
                raise

    async def delete(self, to: Address, message_id: str) -> None:
        asked = {"chat_id": chat_id(to.chat), "message_id": known_number(message_id, to)}
        await self._post.do(Call("deleteMessage", asked))

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        reaction = [{"type": "emoji", "emoji": emoji}] if emoji else []
        which = {"chat_id": chat_id(to.chat), "message_id": known_number(message_id, to)}
        await self._post.do(Call("setMessageReaction", {**which, "reaction": reaction}))

    async def show_typing(self, to: Address, *, on: bool) -> None:
        if on:  # it expires
            await self._post.do(
                Call("sendChatAction", {**place(to, typing=True), "action": "typing"})
            )

    def can_draft(self, to: Address) -> bool:
        return is_private(to.chat) and not {to.chat, ""} & self._undraftable

    async def draft(self, to: Address, key: str, text: str) -> None:
        if not self.can_draft(to):
            return
        try:
            await self._post.do(draft_call(to, key, text))
        except Refused as exc:
            # An older server, or a chat without drafts: the answer itself will arrive.
            self._undraftable.add("" if exc.is_unknown_method else to.chat)

    def _remember(self, to: Address, message: int) -> None:
        if self._settings.reaction_notifications == "off":
            return
        self._sent[(to.chat, message)] = to.thread
        if len(self._sent) > _SENT_KEPT:
            del self._sent[next(iter(self._sent))]

    # Files and health

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        is_theirs = self._settings.api_root.rstrip("/") == API_ROOT
        most = min(max_bytes, MAX_FETCH_BYTES) if is_theirs else max_bytes
        if media.size > most:
            raise MediaTooLarge(f"the file has {media.size} bytes, and {most} is the most")
        try:
            response = await self._api.call("getFile", {"file_id": media.ref})
        except Refused as exc:
            if "file is too big" in exc.reason:
                raise MediaTooLarge(str(exc)) from exc
            raise
        found = response if isinstance(response, dict) else {}
        path = text(found, "file_path")
        if number(found, "file_size") > most:
            raise MediaTooLarge(f"the file has {number(found, 'file_size')} bytes")
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise ChannelError(
                "the Bot API server does not give its files over HTTP",
                fix="start it without --local",
            )
        return await self._api.download(path, most)

    async def probe(self) -> str:
        response = await self._api.call("getMe")
        name = text(part({"me": response}, "me"), "username")
        if not name:
            raise ChannelError("Telegram did not say who we are")
        return f"@{name}"


def _number_of(update: Json) -> int:
    return number(update, "update_id") if isinstance(update, dict) else 0


def _is_unchanged(refusal: Refused) -> bool:
    return "message is not modified" in refusal.reason
