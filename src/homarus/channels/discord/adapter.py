"""The Discord channel: one bot.

Messages come by the gateway (gateway.py, session.py), and are sent by the REST API (rest.py,
message_sender.py), so that the library retries nothing.
"""

import asyncio
import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final
from urllib.parse import quote, urlsplit

from homarus.channels.base import (
    BeforeWrite,
    Capabilities,
    ChannelContext,
    InboundHandler,
    Receipt,
)
from homarus.channels.discord.channel_directory import ChannelDirectory, ChannelFacts
from homarus.channels.discord.commands import listable
from homarus.channels.discord.message_sender import NONCE_MEMORY_S, DiscordMessageSender
from homarus.channels.discord.outbound import (
    MAX_BUTTONS,
    MAX_FILES,
    check_poll,
    edit_json,
    require_id,
)
from homarus.channels.discord.rest import DiscordRest
from homarus.channels.discord.settings import API_ROOT, DiscordSettings, find_token
from homarus.channels.discord.traits import TRAITS
from homarus.channels.registry import find_traits
from homarus.channels.service_client import ServiceClient
from homarus.core.chat_action import ChatAction
from homarus.core.errors import ChannelError, MediaTooLargeError
from homarus.core.message import Address, InboundMetadata, Json, Media, Outbound, Poll
from homarus.core.native_command import NativeCommand
from homarus.policy.group_policy import resolve_group

log = logging.getLogger(__name__)

TYPING_S: Final = 10.0
_FILE_HOSTS: Final = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
_EXPIRED: Final = frozenset({403, 404})
_UNSIGNED: Final = (403, b"")  # what an address without its signature would be answered


class DiscordChannel:
    """One bot. See channels/base for what each method guarantees."""

    def __init__(self, context: ChannelContext, settings: DiscordSettings) -> None:
        self.name, self.account = context.channel, context.account
        self.capabilities = Capabilities(
            text_limit=settings.text_limit,
            unit="utf16",
            max_lines=settings.max_lines_per_message,
            dialect=TRAITS.dialect,
            idempotent=True,
            idempotent_s=NONCE_MEMORY_S,
            caption_limit=settings.text_limit,
            media_max_bytes=settings.media_max_bytes,
            max_files=MAX_FILES,
            max_buttons=MAX_BUTTONS,
            has_new_threads=True,
            typing_s=TYPING_S,
            retry=settings.retries,
        )
        self._context, self._settings = context, settings
        self._token = find_token(settings, context.account, context.env)
        self._rest = DiscordRest(settings.api_root, self._token, proxy=settings.proxy or "")
        self._directory = ChannelDirectory(self._rest)
        self._sender = DiscordMessageSender(
            self._rest, self._directory, settings.media_max_bytes, self._opens_thread
        )

    # Receiving

    async def run(self, receive: InboundHandler) -> None:
        # The library takes most of a second to import.
        module = await asyncio.to_thread(import_module, "homarus.channels.discord.session")
        async with self._rest.in_use():
            me = await self._sender.load_identity()
            parts = module.BotParts(
                self.name,
                self.account,
                self._settings,
                self._token,
                self._context.clock,
                self._rest,
                self._directory,
                self._sender,
            )
            commands = await self._commands()
            await module.GatewaySession(parts, int(me["id"]), commands, receive).run()

    async def _commands(self) -> tuple[NativeCommand, ...]:
        lists, skills = self._settings.commands, tuple[NativeCommand, ...]()
        if lists.native is False:
            return ()
        if lists.native_skills is not False:
            skills = await asyncio.to_thread(self._context.skill_commands, lists.native_skills)
        return listable((*self._context.commands, *skills))

    def _opens_thread(self, channel: str, facts: ChannelFacts) -> bool:
        """Return whether replies in a channel have a thread (`autoThread`)."""
        metadata = InboundMetadata("channel", parent=facts.parent, guild=facts.guild)
        found = resolve_group(
            self._settings.common, Address(self.name, channel), find_traits, metadata
        )
        for layer in found.channel_layers:
            if layer.auto_thread is not None:
                return layer.auto_thread
        return False

    # Sending

    async def send(self, message: Outbound) -> Receipt:
        return await self.send_marked(message)

    async def send_marked(
        self, message: Outbound, before_write: BeforeWrite | None = None
    ) -> Receipt:
        async with self._rest.in_use():
            return await self._sender.send(message, before_write)

    async def look_up(self, message: Outbound) -> Receipt | None:
        async with self._rest.in_use():
            return await self._sender.look_up(message)

    def check_poll(self, to: Address, poll: Poll) -> None:
        check_poll(poll)

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        path = await self._message_path(to, message_id)
        await self._rest.call("PATCH", path, edit_json(Outbound(to, text)))

    async def delete(self, to: Address, message_id: str) -> None:
        await self._rest.call("DELETE", await self._message_path(to, message_id))

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        path = await self._message_path(to, message_id)
        if emoji:
            await self._rest.call("PUT", f"{path}/reactions/{_emoji(emoji)}/@me")
            return
        found = await self._rest.get(path)
        for each in found.get("reactions") or () if isinstance(found, dict) else ():
            if each.get("me"):
                mine = each.get("emoji") or {}
                name = f"{mine['name']}:{mine['id']}" if mine.get("id") else str(mine.get("name"))
                await self._rest.call("DELETE", f"{path}/reactions/{quote(name, safe=':')}/@me")

    async def show_typing(self, to: Address, *, on: bool) -> None:
        if on:  # it expires
            channel = await self._directory.resolve(to)
            await self._rest.call("POST", f"/channels/{channel}/typing")

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Json]:
        from homarus.channels.discord.chat_actions import check_enabled, run_chat_action

        check_enabled(action.name, self._settings.common.actions)
        async with self._rest.in_use():
            return await run_chat_action(self._rest, self._directory, to, action)

    async def _message_path(self, to: Address, message_id: str) -> str:
        id_ = require_id(message_id, "message")
        return f"/channels/{await self._directory.resolve(to)}/messages/{id_}"

    # Files and health

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        if media.size > max_bytes:
            raise MediaTooLargeError(
                f"the file has {media.size} bytes, and {max_bytes} is the most"
            )
        is_signed = "?" in media.ref or "/attachments/" not in media.ref
        status, content = _UNSIGNED
        if is_signed:
            status, content = await self._download(media.ref, max_bytes)
        if status in _EXPIRED:  # the signature of an address is valid for a day
            self._check_address(media.ref)
            data = {"attachment_urls": [media.ref]}
            found = await self._rest.call("POST", "/attachments/refresh-urls", data)
            rows = found.get("refreshed_urls") if isinstance(found, dict) else None
            new = rows[0].get("refreshed") if isinstance(rows, list) and rows else None
            status, content = await self._download(str(new or ""), max_bytes)
        if status != 200:
            raise ChannelError(f"Discord did not give the file: it answered {status}")
        return content

    async def _download(self, url: str, max_bytes: int) -> tuple[int, bytes]:
        """Return the status and the content of a file of Discord's own servers."""
        self._check_address(url)
        address = urlsplit(url)
        client = ServiceClient(
            "Discord",
            f"{address.scheme}://{address.netloc}",
            proxy=self._settings.proxy or "",
        )
        try:
            query = f"?{address.query}" if address.query else ""
            answer = await client.download(f"{address.path}{query}", max_bytes)
        finally:
            await client.close()
        return answer.status, answer.body

    def _check_address(self, url: str) -> None:
        address, root = urlsplit(url), urlsplit(self._settings.api_root)
        is_ours = self._settings.api_root != API_ROOT and address.netloc == root.netloc
        if not is_ours and (address.scheme != "https" or address.netloc not in _FILE_HOSTS):
            raise ChannelError("the file is not on a server of Discord's")

    async def probe(self) -> str:
        async with self._rest.in_use():
            me: Mapping[str, Any] = await self._sender.load_identity()
        return f"@{me.get('username', '')}"


def _emoji(emoji: str) -> str:
    """Return an emoji for a URL: a character, or `name:id` of one of a server's own."""
    return quote(emoji.strip("<>").removeprefix("a:").strip(":"), safe=":")
