"""The Discord peer: our own strict fake.

A green cell shows only that we agree with ourselves about the REST API; what the gateway sends is
parsed by discord.py.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from homarus.core.text import utf16_len
from homarus.testing.discord_server import ADA, BOT, CHANNEL, EVE, GUILD, DiscordServer
from tests.contract.channel_peers import SLOW_S, Hosted
from tests.contract.channel_stage import ANN, Harness, Shown, wait_for
from tests.contract.channel_stage import EVE as STRANGER


class DiscordPeer:
    """A server with Ann, Eve and the bot, and their direct chats with it."""

    name = "discord"
    limit = 2_000
    _people: ClassVar = {ANN: ADA, STRANGER: EVE}

    def __init__(self) -> None:
        self._host = Hosted(DiscordServer)
        self._server = self._host.server
        self.come_up = self._host.come_up

    def section(self) -> Mapping[str, Any]:
        server = self._server
        return {
            "discord": {
                "token": server.token,
                "apiRoot": server.url,
                "gatewayUrl": server.gateway_url,
                "allowFrom": [ADA],
                "guilds": {str(GUILD): {"users": [ADA], "channels": {str(CHANNEL): {}}}},
                "mediaMaxMb": 0.1,
            }
        }

    def arrive(self, stage: Harness) -> None:
        """Wait until the gateway sends it events: before, they would be missed messages."""
        wait_for(lambda: self._host.do(lambda: bool(self._server.gateway.connected)), "a login")

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None:
        chat = CHANNEL if room else 0
        self._host.do(lambda: self._server.say(text, chat, self._people[who]))

    def call(self, text: str) -> str:
        return f"<@{BOT}> {text}"

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]:
        server = self._server
        chat = CHANNEL if room else self._host.do(lambda: server.dm(self._people[who]))
        sent = self._host.do(lambda: [row["content"] for row in server.sent(chat)])
        return [Shown(text, tuple(re.findall(r"\*\*(.+?)\*\*", text))) for text in sent]

    def measure(self, text: str) -> int:
        return utf16_len(text)

    def be_slow(self) -> None:
        self._host.freeze(SLOW_S)

    def refuse_once(self) -> None:
        self._host.do(lambda: self._server.trouble("POST messages", status=429, retry_after=1))

    def accept_and_fail(self) -> None:
        """Accept the next message, and answer 500."""
        self._host.do(lambda: self._server.trouble("POST messages", status=500, taken=True))

    def refuse_room(self) -> None:
        self._host.do(lambda: self._server.world.refused_channels.add(str(CHANNEL)))

    def redeliver(self, stage: Harness, times: int) -> None:
        self._host.do(lambda: self._server.acts.redeliver(times))

    def redeliver_reversed(self, count: int) -> None:
        again = self._server.acts.sent[-count:][::-1]
        for event in again:
            self._deliver(event)

    def contradict(self, text: str) -> None:
        changed = {**self._server.acts.sent[-1], "content": text}
        self._deliver(changed)

    def edit_last(self, text: str) -> None:
        number = str(self._server.acts.sent[-1]["id"])
        self._host.do(lambda: self._server.acts.edit(number, text))

    def revoke(self) -> None:
        """Change the token; the connection ends, and the next login is refused."""
        self.go_down()
        self._server.token = "another"
        self.come_up()

    def attach(self, text: str, size_bytes: int) -> None:
        self._host.do(lambda: self._server.acts.attach(b"x" * size_bytes, text))

    def go_down(self) -> None:
        """Stop, and forget the sessions: what comes meanwhile is only in the history."""
        self._host.go_down()
        self._host.do(self._server.gateway.forget_sessions)

    def close(self) -> None:
        self._host.close()

    def _deliver(self, event: dict[str, Any]) -> None:
        self._host.do(lambda: self._server.gateway.notify("MESSAGE_CREATE", event))
