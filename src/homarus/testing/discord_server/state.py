"""What the fake knows: users, one server with channels and roles, messages and nonces."""

import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

EPOCH_MS: Final = 1_420_070_400_000
BOT, ADA, EVE = 900_000_000_000_000_001, 110_000_000_000_000_001, 666_000_000_000_000_001
GUILD, CHANNEL = 500_000_000_000_000_001, 500_000_000_000_000_011
FORUM, EVERYONE = 500_000_000_000_000_015, GUILD
ROLE, OWN_ROLE = 500_000_000_000_000_021, 500_000_000_000_000_022
TEXT, DM, PUBLIC_THREAD, FORUM_KIND = 0, 1, 11, 15
_MENTION: Final = re.compile(r"<@(!?|&)([0-9]+)>")
_PERMISSIONS: Final = str(1 << 10 | 1 << 11 | 1 << 16)


class FakeDiscordError(Exception):
    """A refusal, with Discord's own code for the reason."""

    def __init__(self, status: int, number: int, message: str, **more: Json) -> None:
        super().__init__(message)
        self.status, self.body = status, {"code": number, "message": message, **more}


@dataclass(slots=True)
class FakeChannel:
    """A channel with its messages by id."""

    data: dict[str, Any]
    messages: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)
    pins: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.data["id"])


class DiscordState:
    """Everything there is."""

    def __init__(self, username: str = "lobster_bot") -> None:
        self._last_id = 0
        self.users: dict[str, dict[str, Any]] = {}
        for id_, name in ((ADA, "ada"), (EVE, "eve")):
            self.add_user(id_, name)
        self.me = self.add_user(BOT, username, bot=True)
        self.channels: dict[str, FakeChannel] = {}
        self.roles = [
            _role(EVERYONE, "@everyone"),
            _role(ROLE, "crew"),
            _role(OWN_ROLE, username, managed=True, tags={"bot_id": str(BOT)}),
        ]
        self.members: dict[str, list[str]] = {
            str(ADA): [],
            str(EVE): [],
            str(BOT): [str(OWN_ROLE)],
        }
        self.banned: set[str] = set()
        self.add_channel(CHANNEL, "general")
        self.add_channel(FORUM, "ideas", FORUM_KIND)
        self.nonces: dict[tuple[str, str], str] = {}  # message ids
        self.commands: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.refused_channels: set[str] = set()  # the bot may not write there

    def next_id(self) -> str:
        """Return an id that is newer than all others."""
        now = (time.time_ns() // 1_000_000 - EPOCH_MS) << 22
        self._last_id = max(self._last_id + 1, now)
        return str(self._last_id)

    def add_user(self, id_: int, name: str, *, bot: bool = False) -> dict[str, Any]:
        user = {
            "id": str(id_),
            "username": name,
            "discriminator": "0",
            "global_name": name.title(),
            "avatar": None,
            "bot": bot,
        }
        self.users[str(id_)] = user
        return user

    def add_channel(self, id_: int | str, name: str, kind: int = TEXT, **more: Json) -> FakeChannel:
        data = {
            "id": str(id_),
            "type": kind,
            "name": name,
            "guild_id": str(GUILD),
            "position": 0,
            "permission_overwrites": [],
            "parent_id": None,
            "topic": None,
            "last_message_id": None,
            **more,
        }
        if kind == FORUM_KIND:
            data |= {"available_tags": [], "default_reaction_emoji": None, "flags": 0}
        channel = self.channels[str(id_)] = FakeChannel(data)
        return channel

    def add_thread(self, parent: str, name: str, id_: str, owner: int) -> FakeChannel:
        now = _iso(time.time_ns() // 1_000_000)
        return self.add_channel(
            id_,
            name,
            PUBLIC_THREAD,
            parent_id=parent,
            owner_id=str(owner),
            message_count=0,
            member_count=1,
            thread_metadata={
                "archived": False,
                "auto_archive_duration": 1440,
                "archive_timestamp": now,
                "locked": False,
                "create_timestamp": now,
            },
        )

    def dm(self, user: int | str) -> FakeChannel:
        """Return the direct channel of a person and the bot."""
        person = str(user)
        for channel in self.channels.values():
            if channel.data["type"] == DM and channel.data["recipients"][0]["id"] == person:
                return channel
        if person not in self.users:
            raise FakeDiscordError(400, 50033, "Invalid Recipient(s)")
        id_ = self.next_id()
        people = [self.users[person]]
        data = {"id": id_, "type": DM, "recipients": people, "last_message_id": None}
        channel = self.channels[id_] = FakeChannel(data)
        return channel

    def channel(self, id_: str) -> FakeChannel:
        if found := self.channels.get(id_):
            return found
        raise FakeDiscordError(404, 10003, "Unknown Channel")

    def message(self, channel: str, id_: str) -> dict[str, Any]:
        if found := self.channel(channel).messages.get(id_):
            return found
        raise FakeDiscordError(404, 10008, "Unknown Message")

    def add_message(
        self, channel: FakeChannel, author: str, content: str, **more: Json
    ) -> dict[str, Any]:
        """Add a message as it is stored; the gateway and the answer have more fields."""
        found = _MENTION.findall(content)
        people = [self.users[id_] for sign, id_ in found if sign != "&" and id_ in self.users]
        id_ = str(more.get("id") or self.next_id())
        message: dict[str, Any] = {
            "id": id_,
            "type": 0,
            "channel_id": channel.id,
            "content": content,
            "author": self.users[author],
            "attachments": [],
            "embeds": [],
            "mentions": people,
            "mention_roles": [id_ for sign, id_ in found if sign == "&"],
            "mention_everyone": False,
            "pinned": False,
            "tts": False,
            "timestamp": _iso((int(id_) >> 22) + EPOCH_MS),
            "edited_timestamp": None,
            "flags": 0,
            "components": [],
            **more,
        }
        if reply := message.get("message_reference"):
            message |= {
                "type": 19,
                "referenced_message": channel.messages.get(str(reply["message_id"])),
            }
        channel.messages[id_] = message
        channel.data["last_message_id"] = id_
        return message

    def member(self, user: str) -> dict[str, Any]:
        if user not in self.members:
            raise FakeDiscordError(404, 10007, "Unknown Member")
        return {
            "user": self.users[user],
            "nick": None,
            "roles": self.members[user],
            "joined_at": "2026-01-01T00:00:00+00:00",
            "deaf": False,
            "mute": False,
            "flags": 0,
        }

    def guild_json(self) -> dict[str, Any]:
        """Return the server as GUILD_CREATE has it."""
        own = [channel.data for channel in self.channels.values() if "guild_id" in channel.data]
        threads = [data for data in own if data["type"] == PUBLIC_THREAD]
        return {
            "id": str(GUILD),
            "name": "Harbour",
            "owner_id": str(ADA),
            "roles": self.roles,
            "emojis": [],
            "stickers": [],
            "features": [],
            "channels": [data for data in own if data not in threads],
            "threads": threads,
            "members": [self.member(str(BOT))],
            "member_count": len(self.members),
            "presences": [],
            "voice_states": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "system_channel_id": str(CHANNEL),
            "system_channel_flags": 0,
            "unavailable": False,
            "large": False,
            "joined_at": "2026-01-01T00:00:00+00:00",
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "nsfw_level": 0,
            "premium_progress_bar_enabled": False,
            "afk_timeout": 60,
        }

    def event_json(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return a message as the gateway has it."""
        channel = self.channels[message["channel_id"]]
        if "guild_id" not in channel.data:
            return {**message, "channel_type": DM}
        member = self.members.get(message["author"]["id"])
        more = {"roles": member, "joined_at": None, "deaf": False, "mute": False, "flags": 0}
        return {
            **message,
            "guild_id": channel.data["guild_id"],
            "channel_type": channel.data["type"],
            **({"member": more} if member is not None else {}),
        }


def _role(id_: int, name: str, **more: Json) -> dict[str, Any]:
    return {
        "id": str(id_),
        "name": name,
        "color": 0,
        "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
        "hoist": False,
        "position": 0,
        "permissions": _PERMISSIONS,
        "managed": False,
        "mentionable": True,
        "flags": 0,
        **more,
    }


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
