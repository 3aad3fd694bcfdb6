"""The state of the fake: users, chats, messages, files and updates, as the Bot API shows them."""

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import utf16_len

ChatType: TypeAlias = Literal["private", "group", "supergroup", "channel"]
Object: TypeAlias = dict[str, Any]

BOT_ID: Final = 700_000_001
ANONYMOUS: Final = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
ANONYMOUS["username"] = "GroupAnonymousBot"
# The kinds that are delivered by default.
DEFAULT_KINDS: Final = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "my_chat_member",
    "poll",
)
_NAMES: Final = ("id", "first_name", "last_name", "username")
_MARKED: Final = re.compile(r"(?<![\w@/])(?:(/[A-Za-z0-9_]+(?:@\w+)?)|(@\w{3,32}))")


@dataclass(slots=True)
class FakeChat:
    """A chat and the bot's standing in it."""

    shown: Object
    topics: set[int] = field(default_factory=set)
    refusal: tuple[int, str] | None = None  # what every call for it is answered with
    moved_to: int = 0
    last_message: int = 0
    messages: dict[int, Object] = field(default_factory=dict)
    reactions: dict[int, list[Json]] = field(default_factory=dict)

    @property
    def id(self) -> int:
        id_: int = self.shown["id"]
        return id_

    @property
    def type(self) -> str:
        return str(self.shown["type"])


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on the server."""

    id: str
    path: str
    content: bytes

    def shown(self) -> Object:
        return {"file_id": self.id, "file_unique_id": f"u{self.id}", "file_size": len(self.content)}


class TelegramState:
    """The complete state of the fake, without its wire."""

    def __init__(self, username: str, *, reads_all: bool) -> None:
        self.me: Object = {
            "id": BOT_ID,
            "is_bot": True,
            "first_name": "Lobster",
            "username": username,
            "can_join_groups": True,
            "can_read_all_group_messages": reads_all,
            "supports_inline_queries": False,
            "can_connect_to_business": False,
            "has_main_web_app": False,
        }
        self.people: dict[int, Object] = {}
        self.chats: dict[int, FakeChat] = {}
        self.files: dict[str, StoredFile] = {}
        self.queries: dict[str, bool] = {}  # presses: whether they were answered
        self.commands: list[Json] = []
        self.drafts: list[Object] = []
        self.actions: list[Object] = []
        self.pending: list[Object] = []  # unconfirmed updates
        self.allowed: tuple[str, ...] = DEFAULT_KINDS
        # A bot that has read from one server continues at the next: its numbers are higher.
        self._updates = itertools.count(int(time.time()))
        self._files = itertools.count(1)
        self._presses = itertools.count(1)

    @property
    def bot(self) -> Object:
        """The bot as it appears in messages."""
        return {name: self.me[name] for name in ("id", "is_bot", "first_name", "username")}

    # Who and where

    def person(self, id_: int, first_name: str = "Ada", **more: Json) -> Object:
        """Return a user with an account."""
        known = self.people.get(id_)
        if known is None or more:
            known = {"id": id_, "is_bot": False, "first_name": first_name, **(known or {}), **more}
            self.people[id_] = known
        return known

    def private(self, person: Object, *, started: bool = True) -> FakeChat:
        """Return the chat of a user with the bot."""
        chat = self.chats.get(person["id"])
        if chat is None:
            shown: Object = {name: person[name] for name in _NAMES if name in person}
            chat = self.chats[person["id"]] = FakeChat({**shown, "type": "private"})
            if not started:
                chat.refusal = (403, "Forbidden: bot can't initiate conversation with a user")
        return chat

    def chat(
        self, id_: int, type_: ChatType = "supergroup", title: str = "Reef", *, forum: bool = False
    ) -> FakeChat:
        """Return a group or a channel, created when it does not exist."""
        if id_ not in self.chats:
            shown: Object = {"id": id_, "type": type_, "title": title}
            if forum:
                shown["is_forum"] = True
            self.chats[id_] = FakeChat(shown)
        return self.chats[id_]

    # What is said

    def new_message(self, chat: FakeChat, **fields: Json) -> Object:
        """Create a message in a chat, with its number and date."""
        chat.last_message += 1
        message: Object = {"message_id": chat.last_message, "date": int(time.time())}
        message |= {"chat": chat.shown, **fields}
        chat.messages[chat.last_message] = message
        return message

    def thread_fields(self, chat: FakeChat, thread: int) -> Object:
        """Return the fields of a message in a topic; the general topic has none."""
        if thread in {0, 1}:
            return {}
        chat.topics.add(thread)
        return {"message_thread_id": thread, "is_topic_message": True}

    def add_file(self, content: bytes, path: str) -> StoredFile:
        number = next(self._files)
        file = StoredFile(f"file-{number}", path.format(number=number), content)
        self.files[file.id] = file
        return file

    def add_update(self, kind: str, value: Json) -> Object | None:
        """Add an update for the bot; return None when it does not want that kind."""
        if kind not in self.allowed:
            return None
        update = {"update_id": self.next_update(), kind: value}
        self.pending.append(update)
        return update

    def next_update(self) -> int:
        return next(self._updates)

    def next_press(self) -> str:
        id_ = f"press-{next(self._presses)}"
        self.queries[id_] = False
        return id_


def marked(text: str) -> list[Json]:
    """Return the entities that Telegram itself marks in users' messages: commands and names."""
    return list(_marked(text))


def _marked(text: str) -> Iterator[Json]:
    for found in _MARKED.finditer(text):
        kind = "bot_command" if found[1] else "mention"
        offset, length = utf16_len(text[: found.start()]), utf16_len(found[0])
        yield {"type": kind, "offset": offset, "length": length}


def without_answers(message: Object) -> Object:
    """Return a message as another's `reply_to_message` shows it: replies are not nested."""
    return {key: value for key, value in message.items() if key != "reply_to_message"}
