"""Actions of users in the fake: messages, edits, reactions, presses, commands and joins."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homarus.core.message import Json
from homarus.testing.discord_server.gateway import FakeGateway
from homarus.testing.discord_server.rest import RestApi
from homarus.testing.discord_server.state import (
    ADA,
    BOT,
    DM,
    GUILD,
    DiscordState,
    FakeChannel,
)

_EDITED: Final = "2026-11-19T12:00:00.000000+00:00"


class PeopleOnDiscord:
    """What people do. `chat` is a channel's id, 0 for their direct chat with the bot."""

    def __init__(self, state: DiscordState, gateway: FakeGateway, rest: RestApi) -> None:
        self._state, self._gateway, self._rest = state, gateway, rest
        self.sent: list[dict[str, Any]] = []  # as the gateway had them

    def say(self, text: str, chat: int | str = 0, who: int = ADA, **more: Json) -> str:
        """Write a message; return its id."""
        message = self._state.add_message(self._channel(chat, who), str(who), text, **more)
        event = copy.deepcopy(self._state.event_json(message))
        self.sent.append(event)
        self._gateway.notify("MESSAGE_CREATE", event)
        return str(message["id"])

    def reply(self, text: str, to: str, chat: int | str = 0, who: int = ADA) -> str:
        """Reply to a message."""
        channel = self._channel(chat, who)
        reference = {"message_id": to, "channel_id": channel.id, "type": 0}
        return self.say(text, chat, who, message_reference=reference)

    def attach(
        self, content: bytes, text: str = "", name: str = "a.bin", mime: str = "", **more: Any
    ) -> str:
        """Send a file with a text."""
        file = self._rest.store_file(name, content, mime or "application/octet-stream")
        return self.say(text, attachments=[file], **more)

    def redeliver(self, times: int) -> None:
        """Deliver the last message again."""
        for _ in range(times):
            self._gateway.notify("MESSAGE_CREATE", self.sent[-1])

    def edit(self, id_: str, text: str, chat: int | str = 0, who: int = ADA) -> None:
        message = self._channel(chat, who).messages[id_]
        message |= {"content": text, "edited_timestamp": _EDITED}
        self._gateway.notify("MESSAGE_UPDATE", self._state.event_json(message))

    def add_embed(self, id_: str, chat: int | str = 0, who: int = ADA) -> None:
        """Add the preview of a link, as Discord does after a while."""
        message = self._channel(chat, who).messages[id_]
        message["embeds"] = [{"title": "A page", "type": "rich"}]
        self._gateway.notify("MESSAGE_UPDATE", self._state.event_json(message))

    def delete(self, *ids: str, chat: int | str = 0, who: int = ADA) -> None:
        channel = self._channel(chat, who)
        for id_ in ids:
            del channel.messages[id_]
        place = {"channel_id": channel.id, **self._guild(channel)}
        if len(ids) == 1:
            self._gateway.notify("MESSAGE_DELETE", {"id": ids[0], **place})
        else:
            self._gateway.notify("MESSAGE_DELETE_BULK", {"ids": [*ids], **place})

    def react(
        self, id_: str, emoji: str, chat: int | str = 0, who: int = ADA, *, remove: bool = False
    ) -> None:
        channel = self._channel(chat, who)
        data: dict[str, Any] = {
            "user_id": str(who),
            "channel_id": channel.id,
            "message_id": id_,
            "emoji": {"id": None, "name": emoji},
            "burst": False,
            "type": 0,
            **self._guild(channel),
        }
        if not remove:
            data["message_author_id"] = channel.messages[id_]["author"]["id"]
            if "guild_id" in data:
                data["member"] = self._state.member(str(who))
        self._gateway.notify(f"MESSAGE_REACTION_{'REMOVE' if remove else 'ADD'}", data)

    def join(self, who: int, name: str) -> None:
        """Join the server."""
        self._state.add_user(who, name)
        self._state.members[str(who)] = []
        member = {**self._state.member(str(who)), "guild_id": str(GUILD)}
        self._gateway.notify("GUILD_MEMBER_ADD", member)

    def press(self, id_: str, label: str, chat: int | str = 0, who: int = ADA) -> str:
        """Press a button, or choose an option of a menu, by its label."""
        message = self._channel(chat, who).messages[id_]
        for row in message["components"]:
            for part in row["components"]:
                options = [one["value"] for one in part.get("options", ()) if one["label"] == label]
                if options or part.get("label") == label:
                    data = {"custom_id": part["custom_id"], "component_type": part["type"]}
                    data |= {"values": options} if options else {}
                    return self.interact(3, data, chat, who, message=message)
        raise KeyError(label)

    def command(
        self, name: str, values: Mapping[str, Json], chat: int | str = 0, who: int = ADA
    ) -> str:
        """Use a slash command."""
        known = next(one for one in self._state.commands if one["name"] == name)
        kinds = {one["name"]: one["type"] for one in known["options"]}
        options = [
            {"name": key, "type": kinds[key], "value": value} for key, value in values.items()
        ]
        data = {"id": known["id"], "name": name, "type": 1, "options": options}
        return self.interact(2, data, chat, who)

    def interact(
        self, kind: int, data: Mapping[str, Json], chat: int | str, who: int, **more: Json
    ) -> str:
        """Send an interaction; return its id."""
        channel, id_ = self._channel(chat, who), self._state.next_id()
        event: dict[str, Any] = {
            "id": id_,
            "application_id": str(BOT),
            "type": kind,
            "data": data,
            "token": f"token-{id_}",
            "version": 1,
            "channel": channel.data,
            "channel_id": channel.id,
            "entitlements": [],
            "attachment_size_limit": 10_000_000,
            "app_permissions": "0",
            "locale": "en-US",
            "context": 1 if channel.data["type"] == DM else 0,
            **self._guild(channel),
            **more,
        }
        if "guild_id" in event:
            event["member"] = {**self._state.member(str(who)), "permissions": "0"}
        else:
            event["user"] = self._state.users[str(who)]
        self._gateway.notify("INTERACTION_CREATE", event)
        return id_

    def _channel(self, chat: int | str, who: int) -> FakeChannel:
        return self._state.channels[str(chat)] if chat else self._state.dm(who)

    def _guild(self, channel: FakeChannel) -> dict[str, str]:
        return {} if channel.data["type"] == DM else {"guild_id": str(GUILD)}


def roles_of(state: DiscordState, who: int, roles: Sequence[int]) -> None:
    """Give a person these roles and no others."""
    state.members[str(who)] = [str(role) for role in roles]
