"""The Matrix channel: it reads while it is logged in, and sends under idempotency keys."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from homarus.channels.base import (
    BeforeWrite,
    Capabilities,
    ChannelContext,
    InboundHandler,
    Receipt,
    SendRetryPolicy,
)
from homarus.channels.matrix.account import MatrixAccount
from homarus.channels.matrix.api import (
    CLIENT_V1,
    HomeserverClient,
    MatrixRefusedError,
    Object,
    get_objects,
    get_str,
)
from homarus.channels.matrix.content import (
    edit_content,
    encrypted_media_content,
    media_content,
    reaction_content,
    text_content,
    transaction,
)
from homarus.channels.matrix.events import MESSAGE, MatrixIdentity, QuotedMessage
from homarus.channels.matrix.login import Login
from homarus.channels.matrix.settings import MEDIA_MAX_MB, TEXT_LIMIT, MatrixSettings
from homarus.channels.matrix.sync import SyncLoop
from homarus.channels.matrix.traits import TRAITS
from homarus.channels.service_client import load_upload
from homarus.core.chat_action import ChatAction
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Address, Json, Media, Outbound
from homarus.core.tasks import task_group

if TYPE_CHECKING:
    from homarus.channels.matrix.encryption.crypto import MatrixCrypto

LOGIN_TIMEOUT_S: Final = 10.0  # how long a message waits for the login
TYPING_S: Final = 20.0
REACTION: Final = "m.reaction"


class MatrixChannel:
    """One account on one homeserver."""

    def __init__(self, context: ChannelContext, settings: MatrixSettings) -> None:
        self.name, self.account = context.channel, context.account
        self._settings, self._clock, self._state = settings, context.clock, context.state
        self._login = Login(settings, context.account, context.state)
        self._max_bytes = int((settings.common.media_max_mb or MEDIA_MAX_MB) * 1024 * 1024)
        self.capabilities = Capabilities(
            text_limit=settings.common.text_chunk_limit or TEXT_LIMIT,
            dialect=TRAITS.dialect,
            idempotent=True,
            media_max_bytes=self._max_bytes,
            typing_s=TYPING_S,
            retry=SendRetryPolicy.from_settings(settings.common.retry),
        )
        self._account: MatrixAccount | None = None  # while it runs
        self._ready = asyncio.Event()
        self._strikes = dict[str, int]()

    async def run(self, receive: InboundHandler) -> None:
        """Log in and read, until cancelled."""
        server, me = await self._login.sign_in()
        account = MatrixAccount(server, me, self._settings.thread_replies)
        try:
            if self._settings.encryption:
                account.crypto = await self._open_crypto(server, me)
            identity = await self._load_identity(account)
            if max_bytes := await server.upload_max_bytes():
                max_bytes = min(max_bytes, self._max_bytes)
                self.capabilities = replace(self.capabilities, media_max_bytes=max_bytes)
            async with task_group() as group:
                self._account = account
                self._ready.set()
                receive.mark_connected()
                sync_loop = SyncLoop(
                    account,
                    self._settings,
                    identity,
                    clock=self._clock,
                    group=group,
                    strikes=self._strikes,
                )
                if account.crypto:
                    watch = account.crypto.watch_unreadable(partial(_send_notice, account))
                    group.create_task(watch, name="unreadable messages of Matrix")
                await sync_loop.run(receive)
        finally:
            self._account = None
            self._ready.clear()
            if account.crypto:
                account.crypto.close()
            await server.close()

    async def send(self, message: Outbound) -> Receipt:
        return await self.send_marked(message)

    async def send_marked(
        self, message: Outbound, before_write: BeforeWrite | None = None
    ) -> Receipt:
        """Send each file as one event, the text with the first file if there is one."""
        account = await self._wait_for_login()
        room = await account.room_for(message.address.chat)
        extras, thread = message.extras, message.address.thread
        if extras.media:
            return await self._send_media(account, room, message, before_write)
        plain = _plain(message.text)
        if extras.replaces:
            content = edit_content(message.text, plain, extras.replaces)
        else:
            content = text_content(message.text, plain, reply_to=extras.reply_to, thread=thread)
        key = transaction(message.key)
        sent = await account.send_event(room, MESSAGE, content, key, before_write=before_write)
        account.cache_event(extras.replaces or sent, QuotedMessage(account.me, plain, thread))
        return Receipt(sent)

    async def show_typing(self, to: Address, *, on: bool) -> None:
        account = await self._wait_for_login()
        room = await account.room_for(to.chat)
        typing = {"typing": on, "timeout": int(TYPING_S * 1000)} if on else {"typing": False}
        await account.server.put("rooms", room, "typing", account.me, data=typing)

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        """Edit our own message; homeservers accept an edit of any, so it is checked first."""
        account = await self._wait_for_login()
        room = await account.room_for(to.chat)
        before = await account.find_event(room, message_id)
        if before is None or before.sender != account.me:
            raise SendError(f"{message_id} is no message of ours in {room}", retryable=False)
        plain = _plain(text)
        await account.send_event(room, MESSAGE, edit_content(text, plain, message_id))
        account.cache_event(message_id, replace(before, text=plain))

    async def delete(self, to: Address, message_id: str) -> None:
        account = await self._wait_for_login()
        await _redact(account, await account.room_for(to.chat), message_id)

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        account = await self._wait_for_login()
        room = await account.room_for(to.chat)
        if not emoji:
            for reaction in await _our_reactions(account, room, message_id):
                await _redact(account, room, reaction)
            return
        try:
            await account.send_event(room, REACTION, reaction_content(message_id, emoji))
        except MatrixRefusedError as exc:
            if exc.errcode != "M_DUPLICATE_ANNOTATION":  # it is there already
                raise

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Json]:
        from homarus.channels.matrix.chat_actions import run_chat_action

        account = await self._wait_for_login()
        room = "" if action.name == "channel-list" else await account.room_for(to.chat)
        return await run_chat_action(account, room, action)

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        account = await self._wait_for_login()
        if account.crypto is None or not media.ref.startswith("{"):
            return await account.server.download(media.ref, max_bytes)
        from homarus.channels.matrix.encryption.attachments import decrypt_file, file_address

        sealed = await account.server.download(file_address(media.ref), max_bytes)
        return await asyncio.to_thread(decrypt_file, media.ref, sealed)

    async def run_key_action(self, name: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Do what an operator wants with devices and keys. Raises SendError without encryption."""
        account = await self._wait_for_login()
        if account.crypto is None:
            raise SendError(
                f"{self.name}:{self.account} is not encrypted", retryable=False,
                fix="set encryption to true",
            )  # fmt: skip
        from homarus.channels.matrix.encryption.operator import run_key_action

        return await run_key_action(account.crypto, name, params)

    async def probe(self) -> str:
        """Return our name, by the current connection or by a temporary one."""
        if account := self._account:
            return get_str(await account.server.get("account", "whoami"), "user_id")
        server, me = await self._login.sign_in()
        await server.close()
        return me

    @property
    def unreadable_count(self) -> int:
        crypto = self._account.crypto if self._account else None
        return crypto.count_waiting() if crypto else 0

    async def _wait_for_login(self) -> MatrixAccount:
        if self._account is None:
            try:
                async with asyncio.timeout(LOGIN_TIMEOUT_S):
                    await self._ready.wait()
            except TimeoutError as exc:
                raise SendError("Matrix is not connected", retryable=True) from exc
        if self._account is None:
            raise SendError("Matrix is not connected", retryable=True)
        return self._account

    async def _load_identity(self, account: MatrixAccount) -> MatrixIdentity:
        try:
            response: Object = await account.server.get("profile", account.me, "displayname")
        except MatrixRefusedError:  # a file without a name
            response = {}
        return MatrixIdentity(
            self.name,
            self.account,
            account.me,
            get_str(response, "displayname").strip(),
            self._settings.thread_replies,
            decrypts_files=account.crypto is not None,
        )

    async def _open_crypto(self, server: HomeserverClient, me: str) -> "MatrixCrypto":
        from homarus.channels.matrix.encrypted import key_file, open_crypto

        if self._state is None:
            raise ChannelError("there is no folder for the keys of Matrix")
        file, trust = key_file(self._state, self.account), self._settings.encryption_trust
        mine = (me, self._login.device)
        crypto = await open_crypto(server, mine, file, self._clock, trust=trust)
        try:
            await crypto.start()
        except BaseException as exc:
            crypto.close()
            if isinstance(exc, ChannelAuthError) and await self._login.replace_device():
                raise ChannelError(f"{exc.message}; it signs in as a new device") from exc
            raise
        return crypto

    async def _send_media(
        self,
        account: MatrixAccount,
        room: str,
        message: Outbound,
        before_write: BeforeWrite | None,
    ) -> Receipt:
        extras, sent = message.extras, ""
        html, plain = message.text, _plain(message.text)
        for number, media in enumerate(extras.media):
            file = await load_upload(media, self.capabilities.media_max_bytes)
            name = file.name.encode("utf-8", "replace").decode("utf-8")
            content = await _upload(
                account,
                room,
                replace(media, name=name),
                file.content,
                html=html,
                plain=plain,
                as_voice=extras.as_voice,
                reply_to=extras.reply_to,
                thread=message.address.thread,
            )
            key = transaction(message.key, str(number))
            sent = await account.send_event(room, MESSAGE, content, key, before_write=before_write)
            shown = QuotedMessage(account.me, plain or name, message.address.thread)
            account.cache_event(sent, shown)
            html = plain = ""
        return Receipt(sent)


async def _upload(
    account: MatrixAccount, room: str, media: Media, content: bytes, **words: Any
) -> Object:
    """Upload a file, encrypted if the room is, and return the content of its message."""
    if not await account.is_encrypted(room):
        url = await account.server.upload(content, media.mime, media.name)
        return media_content(media, url, len(content), **words)
    if account.crypto is None:
        return media_content(media, "", len(content), **words)  # which is refused when it is sent
    from homarus.channels.matrix.encryption.attachments import encrypt_file

    sealed, file = await asyncio.to_thread(encrypt_file, content)
    file["url"] = await account.server.upload(sealed, "application/octet-stream", "file")
    return encrypted_media_content(media, file, len(content), **words)


async def _send_notice(account: MatrixAccount, room: str, text: str) -> None:
    content = {"msgtype": "m.notice", "body": text, "m.mentions": {}}
    await account.send_event(room, MESSAGE, content)


async def _redact(account: MatrixAccount, room: str, event_id: str) -> None:
    transaction_id = transaction(event_id, "redact")
    await account.server.put("rooms", room, "redact", event_id, transaction_id, data={})


async def _our_reactions(account: MatrixAccount, room: str, message_id: str) -> list[str]:
    context = ("rooms", room, "relations", message_id, "m.annotation", REACTION)
    response = await account.server.get(*context, base=CLIENT_V1, query={"limit": 100})
    ours = (event for event in get_objects(response, "chunk") if event.get("sender") == account.me)
    return [get_str(event, "event_id") for event in ours]


def _plain(text: str) -> str:
    """Return the text for clients that show no markup."""
    if "<" not in text and "&" not in text:
        return text
    from homarus.channels.markup import plain

    return plain(text, "matrix")
