"""Actions of people in the fake: they make the events that Slack would send."""

import copy
from typing import Final
from uuid import uuid4

from homarus.core.message import Json
from homarus.testing.slack_server.state import (
    ADA,
    APP,
    BOT_USER,
    TEAM,
    FakeConversation,
    Object,
    SlackWorkspace,
)

Event = tuple[str, Object]  # the kind of envelope, and its event or payload
_EVENTS: Final = "events_api"


class SlackUserActions:
    """Performs actions of people, and returns the events about them."""

    def __init__(self, state: SlackWorkspace) -> None:
        self._state = state

    def say(
        self,
        text: str = "",
        chat: str = "",
        user: str = ADA,
        *,
        thread: str = "",
        files: tuple[tuple[str, bytes], ...] = (),
        **more: Json,
    ) -> tuple[Object, list[Event]]:
        """Send a message, to the bot itself when no conversation is named."""
        place = self._place(chat, user)
        fields: Object = {"user": user, "text": text, "client_msg_id": str(uuid4())}
        if thread:
            fields["thread_ts"] = thread
        if files:
            made = [self._state.add_file(name, content) for name, content in files]
            shown = [file.shown(self._state.url) for file in made]
            fields |= {"files": shown, "subtype": "file_share", "upload": False}
        message = self._state.add_message(place, **{**fields, **more})
        events = [self._event(place, message)]
        if f"<@{BOT_USER}>" in text and place.kind != "im":
            mention = {**events[0][1], "type": "app_mention"}
            del mention["channel_type"]
            events.append((_EVENTS, mention))
        return message, events

    def edit(self, chat: str, ts: str, text: str) -> list[Event]:
        """Edit a message of a person."""
        place = self._state.conversations[chat]
        before = copy.deepcopy(place.messages[ts])
        message = place.messages[ts]
        message |= {"text": text, "edited": {"user": message["user"], "ts": self._state.next_ts()}}
        event = {"subtype": "message_changed", "message": dict(message), "previous_message": before}
        return [self._hidden(place, event)]

    def delete(self, chat: str, ts: str) -> list[Event]:
        """Delete a message of a person."""
        place = self._state.conversations[chat]
        before = place.messages.pop(ts)
        event = {"subtype": "message_deleted", "deleted_ts": ts, "previous_message": before}
        return [self._hidden(place, event)]

    def react(
        self, chat: str, ts: str, name: str, user: str = ADA, *, added: bool = True
    ) -> list[Event]:
        """Add or remove a reaction."""
        owner = self._state.conversations[chat].messages[ts].get("user")
        event: Object = {
            "type": "reaction_added" if added else "reaction_removed",
            "user": user,
            "reaction": name,
            "item": {"type": "message", "channel": chat, "ts": ts},
            "item_user": owner,
            "event_ts": self._state.next_ts(),
        }
        return [(_EVENTS, event)]

    def join(self, chat: str, user: str) -> list[Event]:
        """Add a person to a channel."""
        self._state.conversations[chat].members.add(user)
        event: Object = {
            "type": "member_joined_channel",
            "user": user,
            "channel": chat,
            "channel_type": "C",
            "team": TEAM,
            "event_ts": self._state.next_ts(),
        }
        return [(_EVENTS, event)]

    def press(self, chat: str, ts: str, label: str, user: str = ADA) -> list[Event]:
        """Press a button that a message has."""
        message = self._state.conversations[chat].messages[ts]
        found = [
            (block, element)
            for block in message.get("blocks", ())
            for element in block.get("elements", ())
            if element["text"]["text"] == label
        ]
        block, element = found[0]
        action = {**element, "block_id": block["block_id"], "action_ts": self._state.next_ts()}
        payload: Object = {
            "type": "block_actions",
            "user": {"id": user, "username": "ada", "name": "ada", "team_id": TEAM},
            "api_app_id": APP,
            "container": {"type": "message", "message_ts": ts, "channel_id": chat},
            "trigger_id": self._state.next_id("trigger-"),
            "team": {"id": TEAM, "domain": "acme"},
            "channel": {"id": chat, "name": "somewhere"},
            "message": {key: value for key, value in message.items() if key != "metadata"},
            "response_url": "https://hooks.slack.com/actions/T0/1/x",
            "actions": [action],
        }
        return [("interactive", payload)]

    def slash(self, command: str, text: str = "", chat: str = "", user: str = ADA) -> list[Event]:
        """Run a slash command."""
        place = self._place(chat, user)
        payload: Object = {
            "command": command,
            "text": text,
            "user_id": user,
            "user_name": "ada",
            "channel_id": place.id,
            "channel_name": place.name or "directmessage",
            "team_id": TEAM,
            "team_domain": "acme",
            "api_app_id": APP,
            "trigger_id": self._state.next_id("trigger-"),
            "response_url": "https://hooks.slack.com/commands/T0/1/x",
        }
        return [("slash_commands", payload)]

    def _place(self, chat: str, user: str) -> FakeConversation:
        if user not in self._state.people:
            self._state.add_person(user, user.lower())
        return self._state.conversations[chat] if chat else self._state.direct(user)

    def _event(self, place: FakeConversation, message: Object) -> Event:
        shown = {key: value for key, value in message.items() if key != "reply_count"}
        kind = {"channel": place.id, "channel_type": place.event_type, "event_ts": message["ts"]}
        return _EVENTS, {**shown, **kind}

    def _hidden(self, place: FakeConversation, event: Object) -> Event:
        ts = self._state.next_ts()
        own: Object = {"type": "message", "channel": place.id, "channel_type": place.event_type}
        return _EVENTS, {**own, "hidden": True, "ts": ts, "event_ts": ts, **event}
