"""The peers of the channel contract that are independent servers: ngircd and Synapse."""

import asyncio
import base64
import re
import signal
import subprocess
import threading
from collections.abc import Awaitable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from homarus.channels.irc.message import read_text
from tests.contract.channel_peers import Hosted
from tests.contract.channel_stage import ANN, EVE, GUARD_S, Harness, Shown, wait_for
from tests.peers import relay
from tests.peers.ircd import Ircd, Person, ngircd
from tests.peers.matrix_bot import new_bot
from tests.peers.synapse import People, Synapse

T = TypeVar("T")

SLOW_S = 2.0


class IrcPeer:
    """ngircd, with users of pydle: what it passed on to them is what was shown."""

    name = "irc"
    limit = 350
    nick, room = "lobster", "#reef"

    def __init__(self, folder: Path) -> None:
        self._running = ngircd(folder)
        self.server: Ircd = self._running.__enter__()
        self._people: dict[str, Person] = {}
        self._arrivals, self._writes_until_cut = 0, -1
        self._relay = Hosted(lambda: relay.Relay(self.server.port, relay.IRC))
        self._enter()

    def section(self) -> Mapping[str, Any]:
        return {
            "irc": {
                "host": "127.0.0.1",
                "port": self._relay.server.port,
                "tls": False,
                "nick": self.nick,
                "channels": [self.room],
                "allowFrom": [f"{ANN}!~{ANN}@127.0.0.1"],
                "groups": {self.room: {}},
            }
        }

    def arrive(self, stage: Harness) -> None:
        ann = self._people[ANN]
        ann.wait(lambda: len(ann.saw("join", by=self.nick)) > self._arrivals, GUARD_S)
        self._arrivals = len(ann.saw("join", by=self.nick))

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None:
        if self._writes_until_cut == 0:  # a message to a nick that is away is lost
            ann = self._people[ANN]
            ann.wait(lambda: len(ann.saw("join", by=self.nick)) > self._arrivals, GUARD_S)
        self._writes_until_cut -= 1
        self._people[who].say(self.room if room else self.nick, text)

    def call(self, text: str) -> str:
        return f"{self.nick}: {text}"

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]:
        person = self._people[who]
        found = person.saw("message", by=self.nick, target=self.room if room else who)
        return [_irc_shown(event["text"]) for event in found]

    def measure(self, text: str) -> int:
        return len(text.encode())

    def go_down(self) -> None:
        self.server.stop(signal.SIGKILL)
        for person in self._people.values():
            person.leave()

    def come_up(self) -> None:
        self.server.start()
        self._enter()
        self._people[ANN].wait(self._is_back, GUARD_S)

    def be_slow(self) -> None:
        self.server.freeze()
        process = self.server.process
        assert process is not None
        threading.Timer(SLOW_S, _go_on, (process,)).start()

    def refuse_room(self) -> None:
        ann = self._people[ANN]
        ann.silence(self.room)
        ann.do("message", self.room, "quiet now")
        eve = self._people[EVE]
        eve.wait(lambda: eve.saw("message", by=ANN, text="quiet now"))

    def accept_and_fail(self) -> None:
        """Cut the connection after the server took the message, before it can confirm it."""
        self._relay.do(self._relay.server.fail_next_send)
        self._writes_until_cut = 1

    def close(self) -> None:
        self._relay.close()
        for person in self._people.values():
            person.leave()
        self._running.__exit__(None, None, None)

    def _is_back(self) -> bool:
        """Return whether the bot joined the channel, before or after Ann."""
        ann = self._people[ANN]
        named = [event["text"].split() for event in ann.saw("names", target=self.room)]
        return bool(ann.saw("join", by=self.nick)) or any(self.nick in names for names in named)

    def _enter(self) -> None:
        for nick in (ANN, EVE):
            person = self._people[nick] = Person(self.server.port, nick)
            person.wait(partial(person.saw, "ready"))
            person.join(self.room)


def _go_on(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)


def _irc_shown(text: str) -> Shown:
    return Shown(read_text(text, ""), tuple(re.findall("\x02(.+?)\x02", text)))


class MatrixPeer:
    """Synapse, with users of matrix-nio."""

    name = "matrix"
    limit = 4_000
    reads_from_now = True  # without a position
    batch = 12  # one, and eleven that are delivered again nine times

    def __init__(self, server: Synapse, people: People) -> None:
        self.server = server
        port = int(server.url.rpartition(":")[2])
        self._relay = Hosted(lambda: relay.Relay(port, relay.MATRIX))
        self.bot = new_bot(server, "Lobster")
        self._who = {name: people.new(name) for name in (ANN, EVE)}
        self._rooms: dict[str, str] = {}
        self._stage: Harness | None = None
        self._last = ""
        self._place: Mapping[str, Any] | None = None  # the cursor before all but the first
        self.room = _now(
            self._who[ANN].create("Reef", self.bot.id, self._who[EVE].id, preset="private_chat")
        )
        _now(self._who[EVE].do("join", room=self.room))

    def section(self) -> Mapping[str, Any]:
        return {
            "matrix": {
                "homeserver": self._relay.server.url,
                "accessToken": self.bot.token,
                "allowFrom": [self._who[ANN].id],
                "groups": {self.room: {}},
                "mediaMaxMb": 0.1,
            }
        }

    def arrive(self, stage: Harness) -> None:
        self._stage = stage
        for name, person in self._who.items():
            if name not in self._rooms:
                self._rooms[name] = _now(person.dm(self.bot.id))
        for room, who in ((self.room, ANN), *((self._rooms[name], name) for name in self._who)):
            wait_for(partial(self._is_in, room, who), f"the bot is in {room}")

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None:
        assert self._stage is not None
        self._place = self._place or self._stage.cursor("matrix:default")
        self._last = _now(self._who[who].say(self.room if room else self._rooms[who], text))

    def call(self, text: str) -> str:
        return f"{self.bot.id} {text}"

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]:
        events = _now(self._who[who].shown(self.room if room else self._rooms[who]))
        ours = [one for one in events if one["sender"] == self.bot.id and one.get("body")]
        return [_matrix_shown(one) for one in ours if "Edit" not in one["class"]]

    def measure(self, text: str) -> int:
        return len(text)

    def go_down(self) -> None:
        self.server.stop(signal.SIGKILL)

    def come_up(self) -> None:
        self.server.start()

    def be_slow(self) -> None:
        process = self.server._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        threading.Timer(SLOW_S, _go_on, (process,)).start()

    def refuse_room(self) -> None:
        ann = self._who[ANN].id
        who = {"type": "m.id.user", "user": ann}
        asked = {"type": "m.login.password", "identifier": who, "password": "secret"}
        token = self.server.ask("POST", "/_matrix/client/v3/login", asked)["access_token"]
        levels = {"users": {self.bot.id: -1}, "events_default": 0}
        place = f"/_matrix/client/v3/rooms/{quote(self.room)}/state/m.room.power_levels"
        self.server.ask("PUT", place, levels, token)

    def redeliver(self, stage: Harness, times: int) -> None:
        """Rewind the cursor, so that Synapse delivers the same again."""
        assert self._place is not None
        again = self.batch - 1
        assert times % again == 0
        for number in range(1, times // again + 1):
            stage.kill()
            stage.rewind("matrix:default", self._place)
            stage.start()
            counted = partial(self._duplicates, stage, number * again)
            wait_for(counted, "Synapse says everything again")

    def edit_last(self, text: str) -> None:
        new = {"msgtype": "m.text", "body": text}
        related = {"rel_type": "m.replace", "event_id": self._last}
        content = {"m.new_content": new, "m.relates_to": related}
        _now(self._who[ANN].say(self._rooms[ANN], f"* {text}", **content))

    def revoke(self) -> None:
        self.server.ask("POST", "/_matrix/client/v3/logout", {}, self.bot.token)

    def attach(self, text: str, size_bytes: int) -> None:
        data = base64.b64encode(b"x" * size_bytes).decode()
        ann = self._who[ANN]
        url = _now(ann.do("upload", data=data, mime="application/octet-stream", name=text))
        content = {"msgtype": "m.file", "body": text, "url": url, "filename": "big.bin"}
        content["info"] = {"size": size_bytes}
        _now(ann.send(self._rooms[ANN], content))

    def accept_and_fail(self) -> None:
        self._relay.do(self._relay.server.fail_next_send)

    def close(self) -> None:
        """The server is shared, and stays."""
        self._relay.close()

    def _duplicates(self, stage: Harness, count: int) -> bool:
        return sum(row.duplicates for row in stage.rows()) >= count

    def _is_in(self, room: str, who: str) -> bool:
        return self.bot.id in _now(self._who[who].do("members", room=room))


def _now(act: Awaitable[T]) -> T:
    async def main() -> T:
        return await act

    return asyncio.run(main())


def _matrix_shown(event: Mapping[str, Any]) -> Shown:
    bold = re.findall(r"<strong>(.+?)</strong>", str(event.get("formatted_body") or ""))
    return Shown(str(event["body"]), tuple(bold))
