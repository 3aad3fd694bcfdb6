"""Actions of users in the fake: messages, edits, button presses, reactions and files."""

import copy
import time
from collections.abc import Callable
from typing import Any, Final

from homarus.core.message import Json
from homarus.testing.telegram_server.methods import file_fields
from homarus.testing.telegram_server.state import (
    ANONYMOUS,
    FakeChat,
    Object,
    TelegramState,
    marked,
    without_answers,
)

ADA: Final = 11_001  # the acting user unless a test names another
GROUP: Final = -1_001_234_567_890


class UserActions:
    """Performs actions of users. `news` is called when there is an update for the bot."""

    def __init__(self, state: TelegramState, news: Callable[[], None]) -> None:
        self._state, self._news = state, news
        self.updates: list[Object] = []  # every one that was made
        state.person(ADA, "Ada", last_name="Byron", username="ada", language_code="en")

    def send_message(
        self,
        text: str = "",
        chat: int = 0,
        user: int = ADA,
        *,
        thread: int = 0,
        reply_to: int = 0,
        anonymous: bool = False,
        **more: Json,
    ) -> Object:
        """Send a message, to the bot itself when no chat is named. `more` is merged into it."""
        place = self._place(chat, user)
        fields: Object = self._state.thread_fields(place, thread)
        if place.type == "channel":
            fields |= {"sender_chat": place.shown}
        elif anonymous:
            fields |= {"from": ANONYMOUS, "sender_chat": place.shown}
        else:
            fields |= {"from": self._state.person(user)}
        if text:
            fields["text"] = text
            if found := marked(text):
                fields["entities"] = found
        if reply_to:
            fields["reply_to_message"] = without_answers(place.messages[reply_to])
        message = self._state.new_message(place, **{**fields, **more})
        self._tell("channel_post" if place.type == "channel" else "message", message)
        return message

    def attach(
        self,
        kind: str,
        content: bytes | str,
        *,
        name: str = "file.bin",
        mime: str = "application/octet-stream",
        **said: Any,
    ) -> Object:
        """Send a message with a file; `kind` is its field: photo, document, video_note."""
        raw = content.encode() if isinstance(content, str) else content
        file = self._state.add_file(raw, f"{kind}s/{{number}}-{name}")
        return self.send_message(**said, **file_fields(kind, file.shown(), name, mime))

    def edit(self, chat: int, message_id: int, text: str) -> Object:
        """Edit a message of a user."""
        message = self._state.chats[chat].messages[message_id]
        message |= {"text": text, "edit_date": int(time.time())}
        message.pop("entities", None)
        if found := marked(text):
            message["entities"] = found
        is_post = message["chat"]["type"] == "channel"
        self._tell("edited_channel_post" if is_post else "edited_message", message)
        return message

    def press(self, chat: int, message_id: int, data: str, user: int = ADA) -> str:
        """Press a button that exists, and return the id of the callback query."""
        message = self._state.chats[chat].messages[message_id]
        rows = message["reply_markup"]["inline_keyboard"]
        assert data in [button["callback_data"] for row in rows for button in row]  # noqa: S101 - a test's mistake
        id_ = self._state.next_press()
        press = {"id": id_, "from": self._state.person(user), "message": message}
        self._tell("callback_query", {**press, "chat_instance": "7", "data": data})
        return id_

    def react(self, chat: int, message_id: int, *emoji: str, user: int = ADA) -> Object:
        """Set a user's reactions."""
        place = self._state.chats[chat]
        before = place.reactions.get(message_id, [])
        after: list[Json] = [{"type": "emoji", "emoji": one} for one in emoji]
        place.reactions[message_id] = after
        reaction: Object = {"chat": place.shown, "message_id": message_id}
        reaction |= {"user": self._state.person(user), "date": int(time.time())}
        reaction |= {"old_reaction": before, "new_reaction": after}
        self._tell("message_reaction", reaction)
        return reaction

    def redeliver(self, *updates: Object, renumbered: bool = False) -> None:
        """Deliver the same updates again, in this order.

        Polling never returns a confirmed number again: `renumbered` gives new ones.
        """
        for update in copy.deepcopy(updates):
            if renumbered:
                update["update_id"] = self._state.next_update()
            self._state.pending.append(update)
        self._news()

    def deliver(self, **anything: Json) -> int:
        """Deliver an update with any content, and return its number."""
        update: Object = {"update_id": self._state.next_update(), **anything}
        self._state.pending.append(update)
        self._news()
        number: int = update["update_id"]
        return number

    def upgrade(self, chat: int, to: int) -> None:
        """Turn a group into a supergroup, with another id."""
        old = self._state.chats[chat]
        self._state.chat(to, title=str(old.shown["title"]))
        old.moved_to = to

    def block(self, chat: int, words: str = "bot was blocked by the user") -> None:
        """Make every send to the chat fail from now on."""
        self._state.chats[chat].refusal = (403, f"Forbidden: {words}")

    def _place(self, chat: int, user: int) -> FakeChat:
        person = self._state.person(user)
        if not chat or chat == user:
            place = self._state.private(person)
            place.refusal = None  # a user who writes has started the bot, and not blocked it
            return place
        return self._state.chats.get(chat) or self._state.chat(chat)

    def _tell(self, kind: str, value: Json) -> None:
        update = self._state.add_update(kind, copy.deepcopy(value))
        if update is not None:
            self.updates.append(update)
            self._news()
