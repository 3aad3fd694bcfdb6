"""What the fake workspace has: people, conversations, messages and files."""

import itertools
import time
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from homarus.core.message import Json

Object: TypeAlias = dict[str, Any]

TEAM, APP = "T0TEAM", "A0APP"
BOT_USER, BOT = "U0LOBSTER", "B0LOBSTER"
ADA: Final = "U0ADA"  # the acting person unless a test names another
GENERAL: Final = "C0GENERAL"


class SlackCallError(Exception):
    """The server refuses a call."""

    def __init__(self, error: str, **more: Json) -> None:
        super().__init__(error)
        self.error, self.more = error, more


@dataclass(slots=True)
class FakeConversation:
    """A conversation. `person` is the other one of a direct chat."""

    id: str
    kind: str = "channel"  # channel, group, mpim, im
    name: str = ""
    person: str = ""
    members: set[str] = field(default_factory=set)
    messages: dict[str, Object] = field(default_factory=dict)  # by ts, in order
    pins: list[str] = field(default_factory=list)
    is_archived: bool = False

    def shown(self) -> Object:
        row: Object = {
            "id": self.id,
            "created": 1_700_000_000,
            "is_archived": self.is_archived,
            "is_channel": self.kind in {"channel", "group"},
            "is_group": False,
            "is_im": self.kind == "im",
            "is_mpim": self.kind == "mpim",
            "is_private": self.kind != "channel",
        }
        if self.kind == "im":
            return row | {"user": self.person}
        about = {"topic": {"value": "the tide"}, "purpose": {"value": "talk"}}
        return row | about | {"name": self.name, "is_member": BOT_USER in self.members}

    @property
    def event_type(self) -> str:
        return self.kind


@dataclass(slots=True)
class FakeFile:
    """A file of the workspace; not shown to anyone before it is `shared`."""

    id: str
    name: str
    size: int
    content: bytes = b""
    title: str = ""
    shares: dict[str, list[Object]] = field(default_factory=dict)

    def shown(self, url: str) -> Object:
        return {
            "id": self.id,
            "name": self.name,
            "title": self.title or self.name,
            "mimetype": _mime(self.name),
            "size": self.size,
            "mode": "hosted",
            "url_private": f"{url}/files/{self.id}/{self.name}",
            "shares": {"private": self.shares},
        }


class SlackWorkspace:
    """One workspace with one bot."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.people: dict[str, Object] = {}
        self.conversations: dict[str, FakeConversation] = {}
        self.files: dict[str, FakeFile] = {}
        self.reactions: dict[tuple[str, str], dict[str, list[str]]] = {}
        self._ids, self._last_ts = itertools.count(1), 0
        self.add_person(BOT_USER, "lobster", is_bot=True)
        self.add_person(ADA, "ada", real_name="Ada Byron")
        self.add_channel(GENERAL, "general")

    def next_id(self, prefix: str) -> str:
        return f"{prefix}{next(self._ids):06}"

    def next_ts(self) -> str:
        """Return the timestamp of a new message; none is the same as an earlier one."""
        self._last_ts = max(time.time_ns() // 1_000, self._last_ts + 1)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06}"

    def add_person(
        self, id_: str, name: str, real_name: str = "", *, is_bot: bool = False
    ) -> Object:
        profile = {"real_name": real_name or name, "display_name": ""}
        row = {"id": id_, "team_id": TEAM, "name": name, "deleted": False, "is_bot": is_bot}
        return self.people.setdefault(id_, {**row, "profile": profile, "tz": "Europe/London"})

    def add_channel(
        self, id_: str, name: str, kind: str = "channel", members: tuple[str, ...] = (BOT_USER, ADA)
    ) -> FakeConversation:
        return self.conversations.setdefault(
            id_, FakeConversation(id_, kind, name, members=set(members))
        )

    def direct(self, person: str) -> FakeConversation:
        """Return the direct chat of the bot with a person."""
        if person not in self.people:
            self.add_person(person, person.lower())
        id_ = f"D{person[1:]}"
        chat = FakeConversation(id_, "im", person=person, members={person, BOT_USER})
        return self.conversations.setdefault(id_, chat)

    def find(self, id_: Json) -> FakeConversation:
        """Return a conversation that the bot sees. Raises SlackCallError."""
        chat = self.conversations.get(id_) if isinstance(id_, str) else None
        if chat is None or (chat.kind != "channel" and BOT_USER not in chat.members):
            raise SlackCallError("channel_not_found")
        return chat

    def joined(self, id_: Json) -> FakeConversation:
        """Return a conversation that the bot is in."""
        chat = self.find(id_)
        if BOT_USER not in chat.members:
            raise SlackCallError("not_in_channel")
        if chat.is_archived:
            raise SlackCallError("is_archived")
        return chat

    def add_message(self, chat: FakeConversation, **fields: Json) -> Object:
        """Add a message, and count it in its thread."""
        message: Object = {"type": "message", "ts": self.next_ts(), "team": TEAM, **fields}
        chat.messages[message["ts"]] = message
        thread = message.get("thread_ts")
        if thread and thread in chat.messages:
            root = chat.messages[thread]
            root |= {"thread_ts": thread, "reply_count": root.get("reply_count", 0) + 1}
            message.setdefault("parent_user_id", root.get("user"))
        return message

    def add_file(self, name: str, content: bytes) -> FakeFile:
        id_ = self.next_id("F")
        return self.files.setdefault(id_, FakeFile(id_, name, len(content), content))


def _mime(name: str) -> str:
    kinds = {"png": "image/png", "txt": "text/plain", "mp3": "audio/mpeg"}
    return kinds.get(name.rpartition(".")[2].lower(), "application/octet-stream")
