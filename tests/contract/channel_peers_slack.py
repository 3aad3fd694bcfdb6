"""Slack as a peer of the channel contract: our strict fake.

A green cell shows only that we agree with ourselves about Slack; the peers tier has an emulator
that is not ours.
"""

import re
from collections.abc import Mapping
from html import unescape
from typing import Any, ClassVar

from homarus.core.message import Json
from homarus.core.text import utf16_len
from homarus.testing.slack_server import ADA, GENERAL, SlackServer
from homarus.testing.slack_server.state import BOT_USER
from tests.contract.channel_peers import SLOW_S, Hosted
from tests.contract.channel_stage import ANN, EVE, Harness, Shown, wait_for


class SlackPeer:
    """Slack in socket mode, as our strict fake implements it."""

    name = "slack"
    limit = 4_000
    _people: ClassVar = {ANN: ADA, EVE: "U0EVE"}

    def __init__(self) -> None:
        self._host = Hosted(SlackServer)
        self._server = self._host.server
        self.go_down, self.come_up = self._host.go_down, self._host.come_up

    def section(self) -> Mapping[str, Any]:
        server = self._server
        return {
            "slack": {
                "botToken": server.bot_token,
                "appToken": server.app_token,
                "apiRoot": server.api,
                "allowFrom": [ADA],
                "channels": {GENERAL: {"allow": True}},
                "mediaMaxMb": 0.1,
            }
        }

    def arrive(self, stage: Harness) -> None:
        """Wait for its socket: what is sent before is only in the history."""
        wait_for(lambda: self._host.do(lambda: bool(self._server.feed.sockets)), "it is connected")

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None:
        chat, user = GENERAL if room else "", self._people[who]
        self._host.wait(lambda: self._server.say(_as_sent(text), chat, user=user))

    def call(self, text: str) -> str:
        return f"<@{BOT_USER}> {text}"

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]:
        chat = GENERAL if room else f"D{self._people[who][1:]}"
        known = self._server.world.conversations
        sent = self._host.do(lambda: self._server.sent(chat) if chat in known else [])
        return [_shown(message) for message in sent]

    def measure(self, text: str) -> int:
        return utf16_len(text)

    def be_slow(self) -> None:
        self._host.freeze(SLOW_S)

    def refuse_once(self) -> None:
        server = self._server
        self._host.do(lambda: server.trouble("chat.postMessage", status=429, retry_after=1))

    def accept_and_fail(self) -> None:
        """Accept the next message, and answer with an error all the same."""
        server = self._server
        self._host.do(lambda: server.trouble("chat.postMessage", status=500, taken=True))

    def refuse_room(self) -> None:
        def archive() -> None:
            self._server.world.conversations[GENERAL].is_archived = True

        self._host.do(archive)

    def redeliver(self, stage: Harness, times: int) -> None:
        again = [self._server.events[-1]] * times
        self._host.wait(lambda: self._server.publish(*again))

    def redeliver_reversed(self, count: int) -> None:
        again = self._server.events[-count:][::-1]
        self._host.wait(lambda: self._server.publish(*again))

    def contradict(self, text: str) -> None:
        kind, event = self._server.events[-1]
        self._host.wait(lambda: self._server.publish((kind, {**event, "text": text})))

    def edit_last(self, text: str) -> None:
        _, event = self._server.events[-1]
        chat, ts = str(event["channel"]), str(event["ts"])
        self._host.wait(lambda: self._server.publish(*self._server.acts.edit(chat, ts, text)))

    def revoke(self) -> None:
        """Refuse all calls, and end the connection: the next one is refused."""
        server = self._server
        self._host.do(lambda: server.trouble("*", times=1_000, error="token_revoked"))
        self.go_down()
        self.come_up()

    def attach(self, text: str, size_bytes: int) -> None:
        files = (("large.bin", b"x" * size_bytes),)
        self._host.wait(lambda: self._server.say(text, files=files))

    def close(self) -> None:
        self._host.close()


def _as_sent(text: str) -> str:
    """Return what a person types as Slack sends it, apart from a mention of the bot."""
    mention, _, rest = text.rpartition(f"<@{BOT_USER}>")
    start = f"{mention}<@{BOT_USER}>" if f"<@{BOT_USER}>" in text else ""
    return start + rest.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _shown(message: Mapping[str, Json]) -> Shown:
    """Return the text as Slack's clients show it, and what is between stars."""
    markup = re.sub(r"<([^<>|]+)(?:\|([^<>]*))?>", lambda m: m[2] or m[1], str(message["text"]))
    text = unescape(markup)
    return Shown(text, tuple(re.findall(r"(?<!\w)\*([^*\n]+)\*(?!\w)", text)))
