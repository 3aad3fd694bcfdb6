"""One session on the gateway: pass its events on in order, after the messages that were missed."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import discord

from homarus.channels.base import TTL_MS, InboundHandler
from homarus.channels.discord.catch_up import (
    MAX_CHANNELS,
    DiscordMissedMessages,
    DiscordReadPosition,
    now_id,
    with_skew,
)
from homarus.channels.discord.channel_directory import THREADS, ChannelDirectory
from homarus.channels.discord.commands import list_commands
from homarus.channels.discord.gateway import MALFORMED, DiscordConnection
from homarus.channels.discord.inbound import DiscordEventTranslator, is_with_bot
from homarus.channels.discord.interactions import InteractionHandler
from homarus.channels.discord.message_sender import DiscordMessageSender
from homarus.channels.discord.rest import DiscordRefusedError, DiscordRest
from homarus.channels.discord.settings import DiscordSettings
from homarus.channels.discord.snowflake import id_at
from homarus.channels.registry import find_traits
from homarus.core.channel_event import InboundEvent, ReactionChanged
from homarus.core.clock import Clock
from homarus.core.errors import ChannelError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Address, Inbound, InboundMetadata, Json
from homarus.core.native_command import NativeCommand
from homarus.core.tasks import task_group
from homarus.policy import access
from homarus.policy.group_policy import ResolvedGroup, resolve_group

log = logging.getLogger(__name__)

MAX_QUEUED: Final = 10_000
_APPROVE: Final = "/approve"
_MAX_STARTERS: Final = 500


@dataclass(frozen=True, slots=True)
class BotParts:
    """What a session is made of."""

    channel: str
    account: str
    settings: DiscordSettings
    token: str
    clock: Clock
    rest: DiscordRest
    directory: ChannelDirectory
    sender: DiscordMessageSender


class GatewaySession:
    """Receive the events of one bot until the connection is lost. `me` is its id."""

    def __init__(
        self, parts: BotParts, me: int, commands: tuple[NativeCommand, ...], receive: InboundHandler
    ) -> None:
        self._parts, self._me, self._commands = parts, me, commands
        self._receive, self._settings = receive, parts.settings
        self._events: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()
        self._held: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._is_ready = False
        self.client = DiscordConnection(parts.rest, parts.settings, parts.clock, self._emit)
        self._translator = DiscordEventTranslator(
            parts.channel, parts.account, me, self.client, parts.directory, OrderedDict()
        )
        self._interactions = InteractionHandler(
            parts.rest, self._translator, self._may_approve, commands
        )
        self._position = DiscordReadPosition(parts.directory)
        self._missed = DiscordMissedMessages(parts.rest, parts.directory, parts.clock)
        self._starters: OrderedDict[str, None] = OrderedDict()  # threads whose start was read
        self._roles: dict[tuple[str, str], tuple[str, ...]] = {}  # of the senders of missed ones
        self._group: asyncio.TaskGroup | None = None
        self._handlers: Mapping[str, Callable[[Any], Awaitable[None]]] = {
            "message": self._on_message,
            "raw_message_edit": self._on_edit,
            "raw_message_delete": self._on_delete,
            "raw_bulk_message_delete": self._on_delete,
            "raw_reaction_add": self._on_reaction,
            "raw_reaction_remove": self._on_reaction,
            "member_join": self._on_join,
            "guild_unavailable": self._on_guild_lost,
            "guild_available": self._on_guild_back,
        }

    async def run(self) -> None:
        """Raise ChannelError when the connection is lost, StoreError when nothing can be stored."""
        parts = self._parts
        self._position.load(await self._receive.load_cursor(), str(self._me))
        parts.directory.find_cached = self.client.find_facts
        try:
            async with task_group() as group:
                self._group = group
                group.create_task(self._pass_on(), name="events of Discord")
                group.create_task(self._list_commands(), name="commands of Discord")
                await self.client.run_session(parts.token)
        finally:
            self._group = None
            parts.directory.find_cached = lambda _channel: None

    def _emit(self, name: str, args: tuple[Any, ...]) -> None:
        if name != "interaction":
            if self._events.qsize() >= MAX_QUEUED:  # they are read again from the history
                raise ChannelError("more events of Discord wait than are kept")
            self._events.put_nowait((name, args))
        elif self._group:  # it waits for nothing: Discord gives it three seconds
            interaction = args[0]
            self._group.create_task(self._interact(interaction), name="interaction of Discord")

    async def _interact(self, interaction: "discord.Interaction[Any]") -> None:
        try:
            place = interaction.channel
            if is_with_bot(interaction) and place is not None:
                self._parts.directory.record_dm(str(place.id), str(interaction.user.id))
            await self._interactions.handle(interaction, self._pass)
        except MALFORMED:
            log.exception("an interaction of Discord cannot be read")

    async def _list_commands(self) -> None:
        await list_commands(self._parts.rest, self._commands)

    # Events in order

    async def _pass_on(self) -> None:
        while True:
            name, args = await self._events.get()
            if name == "connect":
                self._is_ready = False
                self._receive.mark_connected()
            elif name == "ready":
                await self._catch_up()
                self._is_ready = True
                while self._held:
                    await self._pass_event(*self._held.popleft())
            elif self._is_ready:
                await self._pass_event(name, args)
            else:
                self._held.append((name, args))

    async def _pass_event(self, name: str, args: tuple[Any, ...]) -> None:
        handle = self._handlers.get(name)
        if handle is None:
            return
        try:
            await handle(args[0])
        except MALFORMED:  # whatever is wrong with it, the others are read
            log.exception("an event %s of Discord cannot be read", name)

    async def _on_message(self, message: discord.Message) -> None:
        await self._note_dm(message)
        inbound = self._translator.to_message(message)
        self._position.advance(message.id)
        if inbound is not None:
            inbound = await self._with_parent(inbound, message)
        if inbound is not None:
            inbound = await self._with_thread_starter(inbound, message)
            await self._pass(inbound, self._position.to_cursor())

    async def _on_edit(self, raw: discord.RawMessageUpdateEvent) -> None:
        if edit := self._translator.to_edit(raw, self._parts.clock.now_ms()):
            await self._pass(edit)

    async def _on_delete(
        self, raw: discord.RawMessageDeleteEvent | discord.RawBulkMessageDeleteEvent
    ) -> None:
        for deletion in self._translator.to_deletions(raw, self._parts.clock.now_ms()):
            await self._pass(deletion)

    async def _on_reaction(self, raw: discord.RawReactionActionEvent) -> None:
        is_ours = self._parts.sender.is_ours(str(raw.message_id))
        now_ms = self._parts.clock.now_ms()
        reaction = self._translator.to_reaction(raw, is_ours=is_ours, now_ms=now_ms)
        if reaction and self._is_wanted(reaction):
            await self._pass(reaction)

    async def _on_join(self, member: discord.Member) -> None:
        if join := self._translator.to_join(member, self._parts.clock.now_ms()):
            await self._pass(join)

    async def _on_guild_lost(self, guild: discord.Guild) -> None:
        self._position.unread.setdefault(guild.id, self._position.last)

    async def _on_guild_back(self, guild: discord.Guild) -> None:
        """Read the messages of a server that was not available when the others were read."""
        last = self._position.unread.get(guild.id)
        if last is None:
            return
        await self._read_missed(self._readable_channels([guild], with_skew(last)), last)
        del self._position.unread[guild.id]
        await self._receive.save_cursor(self._position.to_cursor())

    async def _pass(self, event: InboundEvent, cursor: Mapping[str, Json] | None = None) -> None:
        """Pass an event on, unless it answers an approval that its sender may not answer."""
        is_approval = isinstance(event, Inbound) and _is_approval(event.text)
        if is_approval and not self._may_approve(event.sender):
            log.warning("%s is not in channels.discord.execApprovals.approvers", event.sender)
            return
        await self._receive(event, cursor)

    def _may_approve(self, user: str) -> bool:
        approvers = self._settings.exec_approvals.approvers
        return not approvers or access.is_named(self._parts.channel, user, approvers, find_traits)

    def _is_wanted(self, reaction: ReactionChanged) -> bool:
        """Return whether reactionNotifications of the server has this reaction."""
        guild = self._group_of(reaction.address, reaction.metadata).guild
        match guild.reaction_notifications if guild else None:
            case "off":
                return False
            case "all":
                return True
            case "allowlist":
                people = (guild.allow_from if guild else None) or ()
                return access.is_named(self._parts.channel, reaction.sender, people, find_traits)
        return reaction.metadata.replies_to_us

    def _group_of(self, address: Address, metadata: InboundMetadata) -> ResolvedGroup:
        return resolve_group(self._settings.common, address, find_traits, metadata)

    async def _note_dm(self, message: discord.Message) -> None:
        """Store a direct chat before its first message: after a crash it is searched for it."""
        channel = message.channel
        if not isinstance(channel, discord.DMChannel) or message.author.id == self._me:
            return
        if self._parts.directory.record_dm(str(channel.id), str(message.author.id)):
            await self._receive.save_cursor(self._position.to_cursor())

    async def _with_parent(self, inbound: Inbound, message: discord.Message) -> Inbound | None:
        """Return a message with the channel above its thread, if the gateway has not sent it.

        The settings of that channel say who is answered in the thread. None when the bot may not
        see the channel.
        """
        if not isinstance(message.channel, discord.PartialMessageable):
            return inbound
        try:
            facts = await self._parts.directory.facts(inbound.address.chat)
        except DiscordRefusedError as exc:
            log.warning("a message in an unknown channel of Discord is ignored: %s", exc)
            return None
        parent = facts.parent if facts.kind in THREADS else ""
        return replace(inbound, metadata=replace(inbound.metadata, parent=parent))

    async def _with_thread_starter(self, inbound: Inbound, message: discord.Message) -> Inbound:
        """Return the first message of a thread that is seen here, with what started the thread."""
        place, chat = message.channel, inbound.address.chat
        if not isinstance(place, discord.Thread) or chat in self._starters:
            return inbound
        self._starters[chat] = None
        while len(self._starters) > _MAX_STARTERS:
            self._starters.popitem(last=False)
        group = self._group_of(inbound.address, inbound.metadata)
        if not _includes_starter(group) or inbound.metadata.quoted or inbound.id == chat:
            return inbound
        # That of a post is in the post itself: a forum has no messages.
        home = chat if isinstance(place.parent, discord.ForumChannel) else place.parent_id
        try:
            starter = await self._parts.rest.get(f"/channels/{home}/messages/{chat}")
        except ChannelError:
            return inbound  # a thread without one, or no permission
        if not isinstance(starter, dict):
            return inbound
        text, author = str(starter.get("content", "")), starter.get("author")
        writer = str(author.get("id")) if isinstance(author, dict) else ""
        is_of_others = bool(text) and writer not in {str(self._me), inbound.sender}
        metadata = replace(inbound.metadata, quoted=text[:4_096], quotes_others=is_of_others)
        return replace(inbound, metadata=metadata)

    # Missed messages

    async def _catch_up(self) -> None:
        position, parts = self._position, self._parts
        if not position.last:  # the first start: what was written before is not answered
            position.advance(now_id(parts.clock))
            await self._receive.save_cursor(position.to_cursor())
            return
        if parts.settings.common.dm_policy != "disabled":
            people = parts.settings.common.allow_from
            ids = [access.normalize_sender_id(parts.channel, one, find_traits) for one in people]
            await self._missed.open_dms(ids)
        self._roles.clear()
        # What is a day old is of no use to its sender any more.
        last = max(position.last, id_at(parts.clock.now_ms() - TTL_MS))
        guilds = self.client.guilds
        position.unread = {guild.id: last for guild in guilds if guild.unavailable}
        channels = [*parts.directory.dms, *self._readable_channels(guilds, with_skew(last))]
        if len(channels) > MAX_CHANNELS:
            log.warning("missed messages are read from %d channels only", MAX_CHANNELS)
        await self._read_missed(channels[:MAX_CHANNELS], last)
        await self._receive.save_cursor(position.to_cursor())

    async def _read_missed(self, channels: Iterable[str], last: int) -> None:
        for channel in channels:
            for row in await self._missed.fetch(channel, last):
                await self._pass_missed(channel, row, last)

    async def _pass_missed(self, channel: str, row: Mapping[str, Json], last: int) -> None:
        """Pass one on; the cursor moves after all, as a crash would lose those of others."""
        try:
            message = self.client.parse_message(channel, row)
            inbound = self._translator.to_message(message)
        except MALFORMED as exc:
            log.warning("a missed message of Discord cannot be read: %s", type(exc).__name__)
            return
        is_edited = message.edited_at is not None and message.id <= last  # passed on before that
        if inbound is not None and not is_edited:
            inbound = await self._with_thread_starter(inbound, message)
            await self._pass(await self._with_roles(inbound))
        self._position.advance(message.id)

    async def _with_roles(self, inbound: Inbound) -> Inbound:
        """Return a message with the roles of its sender, which the REST API does not add."""
        guild, sender = inbound.metadata.guild, inbound.sender
        if not guild or inbound.metadata.is_bot:
            return inbound
        key = (guild, sender)
        if key not in self._roles:
            self._roles[key] = await self._missed.fetch_roles(guild, sender)
        return replace(inbound, metadata=replace(inbound.metadata, roles=self._roles[key]))

    def _readable_channels(self, guilds: Iterable[discord.Guild], last: int) -> list[str]:
        """Return the channels of servers that may have messages since a position."""
        places = list[Any]()
        for guild in guilds:
            places += [*guild.text_channels, *guild.voice_channels, *guild.stage_channels]
            places += guild.threads
        return [
            str(place.id)
            for place in places
            # A new post has the id of its first message, and may have no last one.
            if max(place.id, place.last_message_id or 0) > last and self._is_admitted(place)
        ]

    def _is_admitted(self, place: Any) -> bool:
        metadata = self._translator.describe(place)
        group = self._group_of(Address(self._parts.channel, str(place.id)), metadata)
        is_open = self._settings.common.group_policy == "open"
        return (is_open or group.match_kind != "") and all(one.enabled for one in group.layers)


def _is_approval(text: str) -> bool:
    """Return whether a text is `/approve`, alone or after the name that it is addressed to."""
    body = text.strip().casefold()
    return any(one.startswith(_APPROVE) for one in (body, *body.split(maxsplit=1)[1:]))


def _includes_starter(group: ResolvedGroup) -> bool:
    for layer in group.channel_layers:
        if layer.include_thread_starter is not None:
            return layer.include_thread_starter
    return True
