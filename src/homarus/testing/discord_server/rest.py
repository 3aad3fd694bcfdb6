"""The REST API of the fake, by method and path."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.testing.discord_server.checks import check_command, check_message, invalid
from homarus.testing.discord_server.state import (
    BOT,
    FORUM_KIND,
    GUILD,
    PUBLIC_THREAD,
    DiscordState,
    FakeChannel,
    FakeDiscordError,
)
from homarus.testing.telegram_server.forms import Upload

Notify: TypeAlias = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class FakeRequest:
    """A request: the parts of its path that are variable, its query, JSON and files."""

    ids: tuple[str, ...]
    query: Mapping[str, str]
    data: Json
    files: tuple[Upload, ...]


class RestApi:
    """Do requests; `notify` sends an event to the gateway."""

    def __init__(self, state: DiscordState, notify: Notify, url: Callable[[], str]) -> None:
        self._state, self._notify, self._url = state, notify, url
        self.interactions: dict[str, Json] = {}  # the acknowledgements by their ids
        self.typing: list[str] = []

    def do(self, method: str, path: str, request: Mapping[str, Any]) -> tuple[str, Json]:
        """Return the name of the route and the answer. Raises FakeDiscordError."""
        for (known, pattern), (name, act) in _ROUTES.items():
            if known == method and (found := re.fullmatch(pattern, path)):
                return name, getattr(self, act)(FakeRequest(found.groups(), **request))
        raise FakeDiscordError(404, 0, f"404: Not Found ({method} {path})")

    def me(self, _request: FakeRequest) -> Json:
        return self._state.me

    def application(self, _request: FakeRequest) -> Json:
        return {
            "id": str(BOT),
            "name": "lobster",
            "icon": None,
            "description": "",
            "bot_public": False,
            "bot_require_code_grant": False,
            "owner": self._state.me,
            "verify_key": "00" * 32,
            "flags": 1 << 19,
        }

    def open_dm(self, request: FakeRequest) -> Json:
        return self._state.dm(str(request.data["recipient_id"])).data

    def get_channel(self, request: FakeRequest) -> Json:
        return self._state.channel(request.ids[0]).data

    # Messages

    def create_message(self, request: FakeRequest) -> Json:
        state, channel = self._state, self._state.channel(request.ids[0])
        if channel.id in state.refused_channels:
            raise FakeDiscordError(403, 50013, "Missing Permissions")
        if channel.data["type"] == FORUM_KIND:
            raise FakeDiscordError(400, 50008, "Cannot send messages in a non-text channel")
        check_message(request.data, len(request.files))
        key = (channel.id, str(request.data.get("nonce", "")))
        if request.data.get("enforce_nonce") and key in state.nonces:
            return state.message(channel.id, state.nonces[key])
        message = self._add(channel, request.data, request.files)
        if key[1]:
            state.nonces[key] = message["id"]
        return message

    def _add(
        self, channel: FakeChannel, data: Mapping[str, Any], files: tuple[Upload, ...], **more: Json
    ) -> dict[str, Any]:
        state = self._state
        for name in ("components", "flags", "nonce"):
            if data.get(name):
                more[name] = data[name]
        if poll := data.get("poll"):
            answers = [{"answer_id": n, **one} for n, one in enumerate(poll["answers"], 1)]
            more["poll"] = {**poll, "answers": answers, "expiry": "2027-01-01T00:00:00+00:00"}
            more["poll"] |= {"layout_type": 1}
        if reply := data.get("message_reference"):
            exists = str(reply["message_id"]) in channel.messages
            if exists or reply.get("fail_if_not_exists", True):
                state.message(channel.id, str(reply["message_id"]))
                more["message_reference"] = {**reply, "channel_id": channel.id, "type": 0}
        if files:
            more["attachments"] = [
                self.store_file(one.name, one.content, one.mime) for one in files
            ]
        message = state.add_message(channel, str(BOT), str(data.get("content") or ""), **more)
        self._notify("MESSAGE_CREATE", state.event_json(message))
        return message

    def store_file(self, name: str, content: bytes, mime: str) -> dict[str, Any]:
        """Store a file; its address needs a signature."""
        path = f"/attachments/1/{len(self._state.files) + 1}/{name}"
        self._state.files[path] = content
        return {
            "id": self._state.next_id(),
            "filename": name,
            "size": len(content),
            "content_type": mime,
            "url": f"{self._url()}{path}?ex=1&hm=valid",
            "proxy_url": f"{self._url()}{path}",
        }

    def list_messages(self, request: FakeRequest) -> Json:
        rows = [*self._state.channel(request.ids[0]).messages.values()]
        query, limit = request.query, int(request.query.get("limit", "50"))
        if not 1 <= limit <= 100:
            raise invalid("limit", "int value should be between 1 and 100.")
        if after := query.get("after"):
            rows = [row for row in rows if int(row["id"]) > int(after)][:limit]
        elif before := query.get("before"):
            rows = [row for row in rows if int(row["id"]) < int(before)]
        return [{k: v for k, v in row.items() if k != "nonce"} for row in reversed(rows[-limit:])]

    def get_message(self, request: FakeRequest) -> Json:
        return self._state.message(*request.ids)

    def edit_message(self, request: FakeRequest) -> Json:
        message = self._state.message(*request.ids)
        if message["author"]["id"] != str(BOT):
            raise FakeDiscordError(403, 50005, "Cannot edit a message authored by another user")
        check_message(request.data, 0, is_edit=True)
        message |= {
            name: request.data[name] for name in ("content", "components") if name in request.data
        }
        message["edited_timestamp"] = message["timestamp"]
        return message

    def delete_message(self, request: FakeRequest) -> Json:
        self._state.message(*request.ids)
        del self._state.channels[request.ids[0]].messages[request.ids[1]]
        return None

    def show_typing(self, request: FakeRequest) -> Json:
        self.typing.append(self._state.channel(request.ids[0]).id)

    def add_reaction(self, request: FakeRequest) -> Json:
        channel, id_, emoji = request.ids
        name, _, emoji_id = emoji.partition(":")
        rows = self._state.message(channel, id_).setdefault("reactions", [])
        known = {"name": name, "id": emoji_id or None}
        rows.append({"emoji": known, "count": 1, "me": True})

    def remove_reaction(self, request: FakeRequest) -> Json:
        channel, id_, emoji = request.ids
        message = self._state.message(channel, id_)
        rows = [row for row in message.get("reactions", []) if row["emoji"]["name"] != emoji]
        message["reactions"] = rows

    def list_reactions(self, _request: FakeRequest) -> Json:
        return [self._state.me]

    def pin(self, request: FakeRequest) -> Json:
        self._state.message(*request.ids)
        self._state.channels[request.ids[0]].pins.append(request.ids[1])

    def unpin(self, request: FakeRequest) -> Json:
        self._state.channels[request.ids[0]].pins.remove(request.ids[1])

    def pins(self, request: FakeRequest) -> Json:
        channel = self._state.channel(request.ids[0])
        items = [{"pinned_at": "", "message": channel.messages[id_]} for id_ in channel.pins]
        return {"items": items, "has_more": False}

    # Threads

    def start_thread(self, request: FakeRequest) -> Json:
        channel, id_ = request.ids
        self._state.message(channel, id_)
        if id_ in self._state.channels:
            raise FakeDiscordError(
                400, 160004, "A thread has already been created for this message"
            )
        return self._open_thread(channel, _title(request), id_)

    def create_thread(self, request: FakeRequest) -> Json:
        state, parent = self._state, self._state.channel(request.ids[0])
        first = (request.data or {}).get("message")
        if (parent.data["type"] == FORUM_KIND) != (first is not None):
            raise invalid("message", "a forum has posts, and no other channel")
        if first is not None:
            check_message(first, len(request.files), in_post=True)
        thread = self._open_thread(parent.id, _title(request), state.next_id())
        if first is None:
            return thread
        # The first message of a post has the id of its thread.
        message = self._add(state.channels[thread["id"]], first, request.files, id=thread["id"])
        return {**thread, "message": message}

    def _open_thread(self, parent: str, name: str, id_: str) -> dict[str, Any]:
        thread = self._state.add_thread(parent, name, id_, BOT)
        self._notify("THREAD_CREATE", {**thread.data, "newly_created": True})
        return thread.data

    def active_threads(self, _request: FakeRequest) -> Json:
        rows = [one.data for one in self._state.channels.values()]
        return {"threads": [row for row in rows if row["type"] == PUBLIC_THREAD], "members": []}

    # The server

    def guild_channels(self, _request: FakeRequest) -> Json:
        return self._state.guild_json()["channels"]

    def guild_roles(self, _request: FakeRequest) -> Json:
        return self._state.roles

    def get_member(self, request: FakeRequest) -> Json:
        return self._state.member(request.ids[1])

    def change_member(self, request: FakeRequest) -> Json:
        return {**self._state.member(request.ids[1]), **request.data}

    def remove_member(self, request: FakeRequest) -> Json:
        self._state.member(request.ids[1])
        del self._state.members[request.ids[1]]

    def add_role(self, request: FakeRequest) -> Json:
        self._state.member(request.ids[1])["roles"].append(request.ids[2])

    def remove_role(self, request: FakeRequest) -> Json:
        self._state.member(request.ids[1])["roles"].remove(request.ids[2])

    def ban(self, request: FakeRequest) -> Json:
        self._state.banned.add(request.ids[1])

    def unban(self, request: FakeRequest) -> Json:
        self._state.banned.remove(request.ids[1])

    # The application

    def get_commands(self, _request: FakeRequest) -> Json:
        return self._state.commands

    def put_commands(self, request: FakeRequest) -> Json:
        for one in request.data:
            check_command(one)
        more = {"application_id": str(BOT), "version": "1"}
        self._state.commands = [
            {**one, "id": self._state.next_id(), **more} for one in request.data
        ]
        return self._state.commands

    def acknowledge(self, request: FakeRequest) -> Json:
        id_, token = request.ids
        if token != f"token-{id_}" or id_ in self.interactions:
            raise FakeDiscordError(404, 10062, "Unknown interaction")
        self.interactions[id_] = request.data

    def refresh_urls(self, request: FakeRequest) -> Json:
        urls = request.data["attachment_urls"]
        rows = [{"original": one, "refreshed": f"{one}?ex=2&hm=valid"} for one in urls]
        return {"refreshed_urls": rows}


def _title(request: FakeRequest) -> str:
    name = (request.data or {}).get("name", "")
    if not 1 <= len(name) <= 100:
        raise invalid("name", "Must be between 1 and 100 in length.")
    return str(name)


_ID: Final = "([0-9]+)"
_CHANNEL, _MEMBER = f"/channels/{_ID}", f"/guilds/({GUILD})/members/{_ID}"
_MESSAGE: Final = f"{_CHANNEL}/messages/{_ID}"
# (method, path) → the name for tests, and the method of RestApi
_ROUTES: Final = {
    ("GET", "/users/@me"): ("GET me", "me"),
    ("GET", "/oauth2/applications/@me"): ("GET application", "application"),
    ("POST", "/users/@me/channels"): ("POST dm", "open_dm"),
    ("GET", _CHANNEL): ("GET channel", "get_channel"),
    ("POST", f"{_CHANNEL}/messages"): ("POST messages", "create_message"),
    ("GET", f"{_CHANNEL}/messages"): ("GET messages", "list_messages"),
    ("GET", f"{_CHANNEL}/messages/pins"): ("GET pins", "pins"),
    ("PUT", f"{_CHANNEL}/messages/pins/{_ID}"): ("PUT pin", "pin"),
    ("DELETE", f"{_CHANNEL}/messages/pins/{_ID}"): ("DELETE pin", "unpin"),
    ("GET", _MESSAGE): ("GET message", "get_message"),
    ("PATCH", _MESSAGE): ("PATCH message", "edit_message"),
    ("DELETE", _MESSAGE): ("DELETE message", "delete_message"),
    ("POST", f"{_CHANNEL}/typing"): ("POST typing", "show_typing"),
    ("PUT", f"{_MESSAGE}/reactions/(.+)/@me"): ("PUT reaction", "add_reaction"),
    ("DELETE", f"{_MESSAGE}/reactions/(.+)/@me"): ("DELETE reaction", "remove_reaction"),
    ("GET", f"{_MESSAGE}/reactions/(.+)"): ("GET reactions", "list_reactions"),
    ("POST", f"{_MESSAGE}/threads"): ("POST message thread", "start_thread"),
    ("POST", f"{_CHANNEL}/threads"): ("POST threads", "create_thread"),
    ("GET", f"/guilds/({GUILD})/threads/active"): ("GET threads", "active_threads"),
    ("GET", f"/guilds/({GUILD})/channels"): ("GET channels", "guild_channels"),
    ("GET", f"/guilds/({GUILD})/roles"): ("GET roles", "guild_roles"),
    ("GET", _MEMBER): ("GET member", "get_member"),
    ("PATCH", _MEMBER): ("PATCH member", "change_member"),
    ("DELETE", _MEMBER): ("DELETE member", "remove_member"),
    ("PUT", f"{_MEMBER}/roles/{_ID}"): ("PUT role", "add_role"),
    ("DELETE", f"{_MEMBER}/roles/{_ID}"): ("DELETE role", "remove_role"),
    ("PUT", f"/guilds/({GUILD})/bans/{_ID}"): ("PUT ban", "ban"),
    ("DELETE", f"/guilds/({GUILD})/bans/{_ID}"): ("DELETE ban", "unban"),
    ("GET", f"/applications/{BOT}/commands"): ("GET commands", "get_commands"),
    ("PUT", f"/applications/{BOT}/commands"): ("PUT commands", "put_commands"),
    ("POST", f"/interactions/{_ID}/([^/]+)/callback"): ("POST callback", "acknowledge"),
    ("POST", "/attachments/refresh-urls"): ("POST refresh", "refresh_urls"),
}


def read_payload(params: Mapping[str, Any]) -> tuple[Json, tuple[Upload, ...]]:
    """Return the JSON and the files of a form."""
    files = {name: one for name, one in params.items() if isinstance(one, Upload)}
    if [*files] != [f"files[{number}]" for number in range(len(files))]:
        raise invalid("files", "they are files[0], files[1] and so on")
    return json.loads(params.get("payload_json", "null")), tuple(files.values())


def find_route(method: str, path: str) -> str:
    """Return the name of the route of a request."""
    names = (
        name
        for (known, pattern), (name, _) in _ROUTES.items()
        if known == method and re.fullmatch(pattern, path)
    )
    return next(names, f"{method} {path}")
