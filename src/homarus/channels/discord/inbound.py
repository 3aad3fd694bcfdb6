"""Translate what the gateway reports to messages and events.

Ids are numbers and never names. A message has its own id, which is unique on Discord. A direct chat
is `user:<id>`; a thread is a chat of its own, whose parent is its channel. The names by which the
config may write a server or a channel are given only where no other has them.
"""

import re
from collections import OrderedDict
from typing import Any, Final

import discord

from homarus.channels.discord.channel_directory import ChannelDirectory
from homarus.channels.discord.content import (
    mentioned_names,
    message_media,
    message_text,
    readable,
)
from homarus.channels.discord.outbound import USER
from homarus.channels.discord.snowflake import time_of
from homarus.core.channel_event import (
    MemberJoined,
    MessageDeleted,
    MessageEdited,
    ReactionChanged,
)
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import DIRECT, Address, Inbound, InboundMetadata
from homarus.core.text import one_line

_READ_TYPES: Final = frozenset({0, 19, 20, 23})  # written by people: plain, replies, commands
_MAX_QUOTED_CHARS: Final = 4_096
_OLD_EDIT_MS: Final = 60_000  # an update of a message edited long ago is not an edit
_MAX_EDITS: Final = 1_000
_NOT_SLUG: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class DiscordEventTranslator:
    """Translate the events of one bot; `me` is its id."""

    channel: str
    account: str
    me: int
    client: discord.Client
    directory: ChannelDirectory
    edits: OrderedDict[str, None]

    def to_message(self, message: discord.Message) -> Inbound | None:
        """Return a message of another; None when it has nothing to read."""
        if message.author.id == self.me or message.type.value not in _READ_TYPES:
            return None
        names = mentioned_names(message) | self._own_names(message)
        snapshots = message.message_snapshots
        source = snapshots[0] if snapshots else message
        text, media = message_text(source, names), message_media(source)
        address = self._message_address(message)
        if address is None or not (text or media):
            return None
        metadata = replace(
            self._quoting(message, self.describe(message.channel, message.author)),
            mentioned=self._mentions_us(message),
            forwarded="another user" if snapshots else "",
            is_bot=message.author.bot or message.webhook_id is not None,
        )
        others = message.mentions or message.role_mentions
        metadata = replace(metadata, mentions_others=bool(others) and not metadata.mentioned)
        return Inbound(
            str(message.id),
            address,
            str(message.author.id),
            text,
            at_ms=time_of(message.id),
            metadata=metadata,
            media=media,
        )

    def to_edit(self, raw: discord.RawMessageUpdateEvent, now_ms: int) -> MessageEdited | None:
        """Return an edit; None when only embeds changed, as Discord adds them later."""
        message, before = raw.message, raw.cached_message
        edited_at = message.edited_at
        if edited_at is None or (before and before.content == message.content):
            return None
        edited_ms = round(edited_at.timestamp() * 1000)
        id_, inbound = f"{message.id}:edit:{edited_ms}", self.to_message(message)
        is_old = before is None and now_ms - edited_ms > _OLD_EDIT_MS
        if inbound is None or is_old or id_ in self.edits:
            return None
        self.edits[id_] = None
        while len(self.edits) > _MAX_EDITS:
            self.edits.popitem(last=False)
        return MessageEdited(
            id_,
            inbound.address,
            inbound.sender,
            inbound.id,
            inbound.text,
            edited_ms,
            inbound.metadata,
        )

    def to_deletions(
        self, raw: discord.RawMessageDeleteEvent | discord.RawBulkMessageDeleteEvent, now_ms: int
    ) -> list[MessageDeleted]:
        """Return the deletion of each message that was not ours; who did it is not said."""
        if isinstance(raw, discord.RawMessageDeleteEvent):
            ids, cached = {raw.message_id}, [raw.cached_message] if raw.cached_message else []
        else:
            ids, cached = raw.message_ids, raw.cached_messages
        place = self._place(raw.channel_id)
        address = self._address(place, raw.channel_id)
        if address is None:
            return []
        authors = {message.id: message.author for message in cached}
        found = list[MessageDeleted]()
        for id_ in sorted(ids):
            author = authors.get(id_)
            if author is not None and author.id == self.me:
                continue
            # In a direct chat only the author can delete a message.
            user = address.chat.removeprefix(USER) if raw.guild_id is None else ""
            sender = str(author.id) if author else user
            metadata = self.describe(place, author)
            found.append(
                MessageDeleted(f"{id_}:deleted", address, sender, str(id_), now_ms, metadata)
            )
        return found

    def to_reaction(
        self, raw: discord.RawReactionActionEvent, *, is_ours: bool, now_ms: int
    ) -> ReactionChanged | None:
        """Return a reaction of another to a message."""
        place = self._place(raw.channel_id)
        address = self._address(place, raw.channel_id)
        if raw.user_id == self.me or address is None:
            return None
        emoji = f":{raw.emoji.name}:" if raw.emoji.id else raw.emoji.name
        is_added = raw.event_type == "REACTION_ADD"
        is_ours = is_ours or raw.message_author_id == self.me
        metadata = replace(self.describe(place, raw.member), replies_to_us=is_ours)
        return ReactionChanged(
            f"reaction:{raw.message_id}:{raw.user_id}:{emoji}:{now_ms}",
            address,
            str(raw.user_id),
            str(raw.message_id),
            (emoji,) if is_added else (),
            () if is_added else (emoji,),
            now_ms,
            metadata,
        )

    def to_join(self, member: discord.Member, now_ms: int) -> MemberJoined | None:
        """Return that a person joined, in the channel where the server announces it."""
        place = member.guild.system_channel
        if place is None or member.id == self.me:
            return None
        address = self._address(place, place.id)
        metadata = self.describe(place, member)
        assert address is not None  # noqa: S101 - it is a channel of a server
        return MemberJoined(f"join:{member.id}:{now_ms}", address, str(member.id), now_ms, metadata)

    def to_interaction_chat(
        self, interaction: "discord.Interaction[Any]"
    ) -> tuple[Address, InboundMetadata] | None:
        """Return the chat of an interaction, and who did it; None for a chat without the bot."""
        place, user = interaction.channel, interaction.user
        if interaction.guild_id is None and not is_with_bot(interaction):
            return None
        if interaction.guild_id is None:
            return Address(self.channel, f"{USER}{user.id}", self.account), replace(
                DIRECT, name=user.display_name, handle=user.name, is_bot=user.bot
            )
        address = self._address(place, place.id) if place else None
        return (address, self.describe(place, user)) if address else None

    # Chats and people

    def _message_address(self, message: discord.Message) -> Address | None:
        if message.guild is None and getattr(message.channel, "guild_id", None) is None:
            chat = f"{USER}{message.author.id}"
            return Address(self.channel, chat, self.account)
        return self._address(message.channel, message.channel.id)

    def _address(self, place: Any, channel_id: int) -> Address | None:
        user = self.directory.dms.get(str(channel_id))
        if user:
            return Address(self.channel, f"{USER}{user}", self.account)
        if place is None or isinstance(place, discord.DMChannel | discord.GroupChannel):
            return None
        return Address(self.channel, str(channel_id), self.account)

    def _place(self, channel_id: int) -> Any:
        return self.client.get_channel(channel_id)

    def describe(self, place: Any, user: Any = None) -> InboundMetadata:
        """Return what Discord says about a chat and a person in it."""
        person: dict[str, Any] = {
            "name": getattr(user, "display_name", ""),
            "handle": getattr(user, "name", ""),
            "is_bot": bool(getattr(user, "bot", False)),
        }
        guild: discord.Guild | None = getattr(place, "guild", None)
        guild_id = str(guild.id) if guild else str(getattr(place, "guild_id", None) or "")
        if not guild_id:
            return InboundMetadata(**person)
        roles = [str(one.id) for one in getattr(user, "roles", ()) if str(one.id) != guild_id]
        parent = place.parent if isinstance(place, discord.Thread) else None
        parent_id = place.parent_id if isinstance(place, discord.Thread) else ""
        title = f"#{getattr(place, 'name', '')}" + (f" in #{parent.name}" if parent else "")
        return InboundMetadata(
            "channel",
            title=one_line(f"{guild.name} {title}" if guild else title, 200),
            parent=str(parent_id),
            guild=guild_id,
            roles=tuple(roles),
            guild_slug=self._guild_slug(guild),
            slugs=_channel_slugs(guild, parent or place),
            **person,
        )

    def _guild_slug(self, guild: discord.Guild | None) -> str:
        wanted = slug(guild.name) if guild and guild.name else ""
        has_it = sum(slug(each.name or "") == wanted for each in self.client.guilds)
        return wanted if wanted and has_it == 1 else ""

    def _mentions_us(self, message: discord.Message) -> bool:
        if any(user.id == self.me for user in message.mentions):
            return True
        own = message.guild.self_role if message.guild else None
        return own is not None and any(role.id == own.id for role in message.role_mentions)

    def _own_names(self, message: discord.Message) -> dict[str, str]:
        """Return our user name, a single word, for our ids: a command may follow it."""
        user, role = self.client.user, message.guild.self_role if message.guild else None
        return {str(one.id): user.name for one in (user, role) if one} if user else {}

    def _quoting(self, message: discord.Message, metadata: InboundMetadata) -> InboundMetadata:
        reference = message.reference
        if reference is None or not reference.message_id or message.message_snapshots:
            return metadata
        to = reference.resolved or reference.cached_message
        if not isinstance(to, discord.Message):
            return replace(metadata, reply_to=str(reference.message_id))
        return replace(
            metadata,
            reply_to=str(to.id),
            replies_to_us=to.author.id == self.me,
            quoted=readable(to.content, mentioned_names(to))[:_MAX_QUOTED_CHARS],
        )


def is_with_bot(interaction: "discord.Interaction[Any]") -> bool:
    """Return whether an interaction is in the direct chat of its user and the bot.

    A user who has installed the application has its commands in chats with other users too.
    """
    return interaction.guild_id is None and not interaction.context.private_channel


def slug(name: str) -> str:
    """Return a name as the config writes it: lower case, with `-` between words."""
    return _NOT_SLUG.sub("-", name.lower()).strip("-")


def _channel_slugs(guild: discord.Guild | None, place: Any) -> tuple[str, ...]:
    """Return the name of a channel, if no other of the server has it; of a thread, anyone may."""
    if guild is None or isinstance(place, discord.Thread):
        return ()
    wanted = slug(getattr(place, "name", "") or "")
    has_it = sum(slug(each.name) == wanted for each in guild.channels)
    return (wanted,) if wanted and has_it == 1 else ()
