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
from contextlib import nullcontext
from dataclasses import replace
from typing import Final, Literal

from homarus.channels.base import (
    BeforeWrite,
    Capabilities,
    ChannelContext,
    InboundHandler,
    Receipt,
    WebhookRequest,
    WebhookResponse,
)
from homarus.channels.telegram.api import BotApiClient, TelegramRefusedError
from homarus.channels.telegram.call_sender import CallSender
from homarus.channels.telegram.fields import get_bool, get_int, get_object, get_str
from homarus.channels.telegram.inbound import (
    KINDS,
    REACTION,
    TelegramIdentity,
    UpdateTranslator,
    callback_query_id,
)
from homarus.channels.telegram.outbound import (
    BotApiCall,
    chat_id,
    check_poll,
    draft_call,
    edit_call,
    is_private,
    require_message_id,
    send_call,
    target_params,
)
from homarus.channels.telegram.settings import (
    API_ROOT,
    TelegramSettings,
    find_secret,
    find_token,
    listed_commands,
)
from homarus.channels.telegram.traits import TRAITS
from homarus.core.channel_event import InboundEvent, ReactionChanged
from homarus.core.chat_action import ChatAction
from homarus.core.errors import ChannelError, MediaTooLargeError, StoreError
from homarus.core.message import Address, Json, Media, Outbound, Poll
from homarus.core.native_command import NativeCommand

log = logging.getLogger(__name__)

POLL_TIMEOUT_S: Final = 30
MIN_POLL_S: Final = 1.0
CAPTION_UNITS: Final = 1_024
TYPING_S: Final = 5.0
MAX_FETCH_BYTES: Final = 20 * 1024 * 1024  # the limit of Telegram's own server
_STALE_MS: Final = 6 * 24 * 3600 * 1000
_MAX_SENT: Final = 2_000
MAX_BUTTONS: Final = 100
_BUTTON_CHATS: Final[dict[str, Literal["direct", "group"]]] = {"dm": "direct", "group": "group"}


class TelegramChannel:
    """One bot. See channels/base for what each method guarantees."""

    def __init__(self, context: ChannelContext, settings: TelegramSettings) -> None:
        self.name, self.account = context.channel, context.account
        buttons = settings.capabilities.inline_buttons
        self.capabilities = Capabilities(
            text_limit=settings.text_limit,
            unit="utf16",
            dialect=TRAITS.dialect,
            caption_limit=CAPTION_UNITS,
            media_max_bytes=settings.media_max_bytes,
            max_buttons=MAX_BUTTONS if buttons != "off" else 0,
            button_chats=_BUTTON_CHATS.get(buttons, "all"),
            typing_s=TYPING_S,
            retry=settings.retries,
        )
        self._context, self._settings, self._clock = context, settings, context.clock
        self._secret = find_secret(settings)
        self._api = BotApiClient(
            settings.api_root,
            find_token(settings, context.account, context.env),
            timeout_s=float(settings.timeout_seconds),
            proxy=settings.proxy or "",
            tries_in_parallel=settings.network.auto_select_family is not False,
        )
        self._sender = CallSender(self._api, settings.media_max_bytes, context.on_chat_moved)
        self._translator: UpdateTranslator | None = None
        self._receive: InboundHandler | None = None  # while Telegram may send webhooks
        self._listed: list[dict[str, str]] | None = None  # the commands that were set
        self._undraftable: set[str] = set()
        self._sent: dict[tuple[str, int], str | None] = {}  # our recent messages, with their topics

    # Receiving

    async def run(self, receive: InboundHandler) -> None:
        async with self._api.in_use():
            me = await self._load_identity()
            receive.mark_connected()
            self._translator = UpdateTranslator(
                self.name, self.account, me, self._settings.reaction_notifications
            )
            await self._list_commands()
            if self.path:
                await self._serve_webhook(receive)
            else:
                await self._poll(receive, me)

    async def _load_identity(self) -> TelegramIdentity:
        response = await self._api.call("getMe")
        found = response if isinstance(response, dict) else {}
        me = TelegramIdentity(
            get_int(found, "id"),
            get_str(found, "username"),
            get_bool(found, "can_read_all_group_messages"),
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
        lists, skills = self._settings.commands, tuple[NativeCommand, ...]()
        if lists.native is not False:
            skills = await asyncio.to_thread(self._context.skill_commands, lists.native_skills)
        commands = listed_commands(self._settings, self._context.commands, skills)
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

    async def _poll(self, receive: InboundHandler, me: TelegramIdentity) -> None:
        try:
            await self._api.call("deleteWebhook")
        except TelegramRefusedError as exc:
            log.warning("a webhook may still be set: %s", exc)
        offset = self._start_offset(await receive.load_cursor(), me)
        last_update_ms = self._clock.now_ms()
        while True:
            if self._clock.now_ms() - last_update_ms > _STALE_MS:
                offset = 0
            params: dict[str, Json] = {"timeout": POLL_TIMEOUT_S, "allowed_updates": self._wanted()}
            if offset:
                params["offset"] = offset
            polled_s = self._clock.monotonic()
            updates = await self._api.call("getUpdates", params, wait_s=POLL_TIMEOUT_S)
            if not isinstance(updates, list):
                raise ChannelError("Telegram did not answer getUpdates with updates")
            if not updates and self._clock.monotonic() - polled_s < MIN_POLL_S:
                await self._clock.sleep(MIN_POLL_S)  # a server without long polling
            if updates:
                offset = await self._handle_updates(updates, receive, me)
                last_update_ms = self._clock.now_ms()

    def _start_offset(self, cursor: Mapping[str, Json] | None, me: TelegramIdentity) -> int:
        stored = cursor or {}
        is_ours = get_int(stored, "bot") in {0, me.id}
        at_ms = get_int(stored, "atMs")
        is_fresh = not at_ms or self._clock.now_ms() - at_ms <= _STALE_MS
        return get_int(stored, "offset") if is_ours and is_fresh else 0

    async def _handle_updates(
        self, updates: list[Json], receive: InboundHandler, me: TelegramIdentity
    ) -> int:
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
            await self._handle_update(update, receive, cursor)
        if not after:  # it would return the same again, at once and forever
            raise ChannelError("Telegram gave updates that have no number")
        return after

    async def _handle_update(
        self, update: Mapping[str, Json], receive: InboundHandler, cursor: Mapping[str, Json] | None
    ) -> None:
        if event := self._to_event(update):
            await receive(event, cursor)
        if pressed := callback_query_id(update):  # for any sender: the button waits
            await self._answer_press(pressed, "" if event else "This button no longer works.")

    async def _answer_press(self, pressed: str, notice: str) -> None:
        params = {"callback_query_id": pressed} | ({"text": notice} if notice else {})
        try:
            await self._api.call("answerCallbackQuery", params)
        except ChannelError as exc:  # the message is stored: not fatal
            log.warning("a button goes on waiting: %s", exc)

    def _to_event(self, update: Mapping[str, Json]) -> InboundEvent | None:
        assert self._translator is not None  # noqa: S101 - it is made before anything is read
        event = self._translator.to_event(update, self._clock.now_ms())
        if event is None:
            self._skip(update)
        return self._own_reaction(event) if isinstance(event, ReactionChanged) else event

    def _skip(self, update: Mapping[str, Json]) -> None:
        message = get_object(update, "message")
        if new := get_int(message, "migrate_to_chat_id"):
            self._sender.record_migration(str(get_int(get_object(message, "chat"), "id")), str(new))
        elif kind := next((name for name in (*KINDS, REACTION) if name in update), ""):
            id_ = get_int(update, "update_id")
            log.info("update %d is passed over: nothing to read in its %s", id_, kind)

    def _own_reaction(self, reaction: ReactionChanged) -> ReactionChanged | None:
        """Return a reaction that is passed on: to our messages, or to all if set."""
        key = (reaction.address.chat, int(reaction.message_id))
        if key in self._sent:
            to = replace(reaction.address, thread=self._sent[key])
            return replace(
                reaction, address=to, metadata=replace(reaction.metadata, replies_to_us=True)
            )
        return reaction if self._settings.reaction_notifications == "all" else None

    def _wanted(self) -> list[str]:
        has_reactions = self._settings.reaction_notifications != "off"
        return [*KINDS, REACTION] if has_reactions else list(KINDS)

    # Webhooks

    @property
    def path(self) -> str:
        return self._settings.path

    @property
    def webhook_address(self) -> tuple[str, int] | None:
        return self._settings.webhook_address

    async def _serve_webhook(self, receive: InboundHandler) -> None:
        params = {
            "url": self._settings.public_url,
            "secret_token": self._secret,
            "allowed_updates": self._wanted(),
        }
        own = self.webhook_address
        listener = self._context.serve_webhook(self, own) if own else nullcontext()
        self._receive = receive  # it may send a webhook before it has responded
        try:
            async with listener:
                await self._api.call("setWebhook", params)
                await asyncio.Event().wait()
        finally:
            self._receive = None

    def verify_request(self, request: WebhookRequest) -> bool:
        from homarus.channels.signatures import verify_telegram  # only with webhooks

        is_post = bool(self.path) and request.method == "POST"
        return is_post and verify_telegram(request.headers, self._secret)

    async def handle_webhook(self, request: WebhookRequest) -> WebhookResponse:
        if not self.verify_request(request):
            return WebhookResponse(401)
        if self._receive is None:
            return WebhookResponse(503)
        try:
            update = json.loads(request.body)
        except (ValueError, RecursionError):
            return WebhookResponse(400)
        if not isinstance(update, dict):
            return WebhookResponse(400)
        try:
            await self._handle_update(update, self._receive, None)
        except StoreError as exc:
            log.warning("an update could not be kept, Telegram will bring it again: %s", exc)
            return WebhookResponse(503)
        return WebhookResponse()

    # Sending

    async def send(self, message: Outbound) -> Receipt:
        return await self.send_marked(message)

    async def send_marked(
        self, message: Outbound, before_write: BeforeWrite | None = None
    ) -> Receipt:
        call = send_call(message, self._settings)
        try:
            sent = await self._sender.send(call, before_write)
        except TelegramRefusedError as exc:
            if message.extras.replaces and _is_unchanged(exc):
                return Receipt(str(require_message_id(message.extras.replaces, message.address)))
            raise
        id_ = get_int(sent, "message_id") if isinstance(sent, dict) else 0
        if id_:
            self._record_sent(message.address, id_)
        return Receipt(str(id_ or ""))

    def check_poll(self, to: Address, poll: Poll) -> None:
        check_poll(poll)

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        try:
            await self._sender.send(edit_call(to, message_id, text, self._settings))
        except TelegramRefusedError as exc:
            if not _is_unchanged(exc):
                raise

    async def delete(self, to: Address, message_id: str) -> None:
        params = {"chat_id": chat_id(to.chat), "message_id": require_message_id(message_id, to)}
        await self._sender.send(BotApiCall("deleteMessage", params))

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        reaction = [{"type": "emoji", "emoji": emoji}] if emoji else []
        message_ref = {
            "chat_id": chat_id(to.chat),
            "message_id": require_message_id(message_id, to),
        }
        await self._sender.send(
            BotApiCall("setMessageReaction", {**message_ref, "reaction": reaction})
        )

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Json]:
        from homarus.channels.telegram.chat_actions import run_chat_action

        return await run_chat_action(self._sender, to, action)

    async def show_typing(self, to: Address, *, on: bool) -> None:
        if on:  # it expires
            await self._sender.send(
                BotApiCall("sendChatAction", {**target_params(to, typing=True), "action": "typing"})
            )

    def can_draft(self, to: Address) -> bool:
        return is_private(to.chat) and not {to.chat, ""} & self._undraftable

    async def draft(self, to: Address, key: str, text: str) -> None:
        if not self.can_draft(to):
            return
        try:
            await self._sender.send(draft_call(to, key, text))
        except TelegramRefusedError as exc:
            # An older server, or a chat without drafts: the answer itself will arrive.
            self._undraftable.add("" if exc.is_unknown_method else to.chat)

    def _record_sent(self, to: Address, message: int) -> None:
        if self._settings.reaction_notifications == "off":
            return
        self._sent[(to.chat, message)] = to.thread
        if len(self._sent) > _MAX_SENT:
            del self._sent[next(iter(self._sent))]

    # Files and health

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        is_official = self._settings.api_root.rstrip("/") == API_ROOT
        limit_bytes = min(max_bytes, MAX_FETCH_BYTES) if is_official else max_bytes
        if media.size > limit_bytes:
            raise MediaTooLargeError(
                f"the file has {media.size} bytes, and {limit_bytes} is the most"
            )
        try:
            response = await self._api.call("getFile", {"file_id": media.ref})
        except TelegramRefusedError as exc:
            if "file is too big" in exc.reason:
                raise MediaTooLargeError(str(exc)) from exc
            raise
        found = response if isinstance(response, dict) else {}
        path = get_str(found, "file_path")
        if get_int(found, "file_size") > limit_bytes:
            raise MediaTooLargeError(f"the file has {get_int(found, 'file_size')} bytes")
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise ChannelError(
                "the Bot API server does not give its files over HTTP",
                fix="start it without --local",
            )
        return await self._api.download(path, limit_bytes)

    async def probe(self) -> str:
        response = await self._api.call("getMe")
        name = get_str(get_object({"me": response}, "me"), "username")
        if not name:
            raise ChannelError("Telegram did not say who we are")
        return f"@{name}"


def _number_of(update: Json) -> int:
    return get_int(update, "update_id") if isinstance(update, dict) else 0


def _is_unchanged(refusal: TelegramRefusedError) -> bool:
    return "message is not modified" in refusal.reason
