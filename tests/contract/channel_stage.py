"""The harness of the channel contract: a service, its users, a model, and the gateway.

The gateway is `homarus gateway run` with the channel in its `openclaw.json`, in its own home. A
`Peer` is the other side of a channel. What it reports as shown is what the service itself stores,
or what it sent to an independent client; never what we believe to have sent.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from homarus.store.journal import Cursor, InboxRecord, OutboxRecord
from homarus.store.sqlite import SqliteStore, open_store
from homarus.testing.model_server import ModelServer
from tests.crash.harness import Child, Launch
from tests.e2e.program import Home

T = TypeVar("T")

GUARD_S = 90.0  # a loaded machine is slow, not wrong
QUIET_S = 1.0  # how long to watch for effects that must not happen
TOKEN = "suite-" + "0123456789abcdef"
KEPT = ("PATH", "LANG", "PYTHONPATH")
UNKNOWN_NOTICE = "could not find out whether an earlier reply"
ANN, EVE = "ann", "eve"  # the allowed sender, and the unknown one


@dataclass(frozen=True, slots=True)
class Shown:
    """A message of ours, as users see it: its text, and which parts are bold."""

    text: str
    bold: tuple[str, ...] = ()


class Peer(Protocol):
    """A service with the users Ann and Eve, and a group with both and the bot."""

    name: str
    limit: int  # the limit of one message of ours, in the unit of `measure`

    def section(self) -> Mapping[str, Any]:
        """Return the config of the channel, under `channels`."""
        ...

    def arrive(self, stage: "Harness") -> None:
        """Wait until a started gateway is connected."""
        ...

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None: ...

    def call(self, text: str) -> str:
        """Return a text that mentions the bot."""
        ...

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]: ...

    def measure(self, text: str) -> int: ...

    def close(self) -> None: ...


class Restarts(Protocol):
    """A service that can stop and restart with its data."""

    def go_down(self) -> None: ...

    def come_up(self) -> None: ...


class Hampers(Protocol):
    """A service that can make sending fail."""

    def be_slow(self) -> None:
        """Accept the next message after a delay."""
        ...

    def refuse_once(self) -> None:
        """Refuse the next message temporarily."""
        ...

    def refuse_room(self) -> None:
        """Refuse all further messages of the bot in the group."""
        ...


class AcceptsAndFails(Protocol):
    """A service that can accept a message and report a failure all the same."""

    def accept_and_fail(self) -> None:
        """Accept the next message and answer 500, or break the connection where there is no answer.

        The failure is one that says nothing about the message, as a proxy's.
        """
        ...


class Redelivers(Protocol):
    """A service that delivers a message repeatedly, `times` in total."""

    def redeliver(self, stage: "Harness", times: int) -> None: ...


class Revokes(Protocol):
    """A service that can take back the bot's credential."""

    def revoke(self) -> None: ...


class Edits(Protocol):
    """A service where people can edit their messages."""

    def edit_last(self, text: str) -> None:
        """Edit the last message of Ann to the bot."""
        ...


class Reverses(Protocol):
    """A service that can deliver messages in another order."""

    def redeliver_reversed(self, count: int) -> None:
        """Deliver the last messages again, the newest first."""
        ...


class Contradicts(Protocol):
    """A service that can deliver another text under the id of the last message."""

    def contradict(self, text: str) -> None: ...


class Attaches(Protocol):
    """A service with files."""

    def attach(self, text: str, size_bytes: int) -> None:
        """Send a file of Ann's with a text."""
        ...


def wait_for(done: Callable[[], T | None], what: str, guard_s: float = GUARD_S) -> T:
    """Poll until the condition holds."""
    deadline_s = time.monotonic() + guard_s
    while not (found := done()):
        assert time.monotonic() < deadline_s, f"{what}: not within {guard_s:g} s"
        time.sleep(0.02)
    return found


@dataclass
class Harness:
    """One gateway at a time, in one home, on one service."""

    folder: Path
    peer: Peer
    model: ModelServer
    launch: Launch
    config: Mapping[str, Any] = field(default_factory=dict)
    gateway: Child | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        own = {name: os.environ[name] for name in KEPT if name in os.environ}
        own |= {"HOME": str(self.folder), "NO_PROXY": "127.0.0.1,localhost"}
        self.home = Home(self.folder, {**own, "OPENCLAW_GATEWAY_TOKEN": TOKEN})
        self.home.use_model(self.model.url)
        file = self.home.state / "openclaw.json"
        written = json.loads(file.read_text(encoding="utf-8"))
        section = self.peer.section()
        written |= {"logging": {"file": str(self.folder / "log.jsonl")}, **self.config}
        self.home.configure({**written, "channels": section} if section else written)
        self.out = self.folder / "gateway.out"
        self.out.touch()

    def start(self, fault: str = "") -> "Harness":
        """Start the gateway, and wait until it is connected."""
        assert self.gateway is None or self.gateway.ended()
        env = {**self.home.env, "HOMARUS_FAULT": fault}
        module, args = getattr(self.peer, "program", ("homarus.__main__", ("gateway", "run")))
        args = (*args, "--port", "0")
        self.gateway = self.launch(module, args, env, self.folder, self.out)
        gateway, ready = self.gateway, f"(process {self.gateway.pid})"
        wait_for(lambda: ready in self.output or gateway.ended(), "the gateway is ready")
        assert not gateway.ended(), self.output
        self.peer.arrive(self)
        return self

    def died(self) -> None:
        """Wait for the exit that a fault causes."""
        assert self.gateway is not None
        assert self.gateway.wait(GUARD_S) == -9, self.output

    def kill(self) -> None:
        if self.gateway:
            self.gateway.kill()

    def close(self) -> None:
        self.kill()
        self.peer.close()

    @property
    def output(self) -> str:
        return self.out.read_text(encoding="utf-8", errors="replace")

    @property
    def log(self) -> str:
        file = self.folder / "log.jsonl"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def url(self) -> str:
        return str(re.findall(r"ws://\S+", self.output)[-1])

    def wait_shown(self, *words: str, who: str = ANN, room: bool = False) -> list[Shown]:
        """Wait until all of these are in the chat."""

        def done() -> list[Shown] | None:
            found = self.peer.shown(who=who, room=room)
            return found if all(any(word in one.text for one in found) for word in words) else None

        try:
            return wait_for(done, f"{words} are shown")
        except AssertionError as exc:
            seen = [one.text[:200] for one in self.peer.shown(who=who, room=room)]
            raise AssertionError(
                f"{exc}\nshown: {seen}\n{self.output}\n{self.log[-6000:]}"
            ) from exc

    def times(self, word: str, *, who: str = ANN, room: bool = False) -> int:
        """Return how often a text is in a chat."""
        return sum(one.text.count(word) for one in self.peer.shown(who=who, room=room))

    def stay_quiet(self) -> None:
        """Wait long enough for an unwanted effect to happen."""
        time.sleep(QUIET_S)

    def cursor(self, line: str) -> Mapping[str, Any] | None:
        """Return the stored cursor of a channel."""
        return self._look(lambda store: store.journal.cursor(line))

    def rewind(self, line: str, cursor: Mapping[str, Any]) -> None:
        """Set the cursor for the next gateway."""

        async def main() -> None:
            async with (
                open_store(self.home.state) as store,
                store.journal.transaction() as transaction,
            ):
                transaction.save_cursor(Cursor(line, cursor))

        asyncio.run(main())

    def rows(self) -> list[InboxRecord]:
        return list(self._look(lambda store: store.journal.inbox_records()))

    def parcels(self) -> list[OutboxRecord]:
        return list(self._look(lambda store: store.journal.outbox_records()))

    def _look(self, ask: Callable[[SqliteStore], Awaitable[T]]) -> T:
        async def main() -> T:
            async with open_store(self.home.state, mirror=False, read_only=True) as store:
                return await ask(store)

        return asyncio.run(main())
