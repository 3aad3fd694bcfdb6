"""The stage of the channels' contract: a service, people on it, a model, and the gateway between.

The gateway is `homarus gateway run` with the channel in its `openclaw.json`, in a home of its own.
A `Peer` is the other side of a channel. What it says was shown is what the service itself holds,
or what it passed on to a client nobody here wrote; never what we believe to have sent.
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

from homarus.store.journal import Accepted, Cursor, Parcel
from homarus.store.sqlite import SqliteStore, open_store
from homarus.testing.model_server import ModelServer
from tests.crash.rig import Child, Launch
from tests.e2e.program import Home

T = TypeVar("T")

GUARD_S = 90.0  # a loaded machine is slow, not wrong
QUIET_S = 1.0  # how long nothing must happen where nothing may
TOKEN = "suite-" + "0123456789abcdef"
KEPT = ("PATH", "LANG", "PYTHONPATH")
ANN, EVE = "ann", "eve"  # who is let in, and who is not


@dataclass(frozen=True, slots=True)
class Shown:
    """A message of ours, as people see it: its words, and which of them are bold."""

    text: str
    bold: tuple[str, ...] = ()


class Peer(Protocol):
    """A service with Ann and Eve on it, and a room that both are in with the bot."""

    name: str
    limit: int  # what one message of ours may hold, counted as `measure` does

    def section(self) -> Mapping[str, Any]:
        """What stands in the config under `channels`, by the channel's name."""
        ...

    def arrive(self, stage: "Stage") -> None:
        """A gateway was started: wait until it is there."""
        ...

    def write(self, text: str, *, who: str = ANN, room: bool = False) -> None: ...

    def call(self, text: str) -> str:
        """How people speak to the bot in a room."""
        ...

    def shown(self, *, who: str = ANN, room: bool = False) -> list[Shown]: ...

    def measure(self, text: str) -> int: ...

    def close(self) -> None: ...


class Restarts(Protocol):
    """A service that can go away and come back with all it knew."""

    def go_down(self) -> None: ...

    def come_up(self) -> None: ...


class Hampers(Protocol):
    """A service that can make sending hard."""

    def be_slow(self) -> None:
        """Take a while for what comes next, and take it."""
        ...

    def refuse_once(self) -> None:
        """Refuse what comes next, for now."""
        ...

    def refuse_room(self) -> None:
        """Let the bot say nothing more in the room."""
        ...


class Redelivers(Protocol):
    """A service that hands out again what it handed out; in all, so many times."""

    def redeliver(self, stage: "Stage", times: int) -> None: ...


class Attaches(Protocol):
    """A service that carries files."""

    def attach(self, text: str, size_bytes: int) -> None:
        """Ann sends a file with these words."""
        ...


def wait_for(done: Callable[[], T | None], what: str, guard_s: float = GUARD_S) -> T:
    """Look until it is so."""
    deadline_s = time.monotonic() + guard_s
    while not (found := done()):
        assert time.monotonic() < deadline_s, f"{what}: not within {guard_s:g} s"
        time.sleep(0.02)
    return found


@dataclass
class Stage:
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

    def start(self, fault: str = "") -> "Stage":
        """Begin the gateway, and wait until the service knows it."""
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
        """Wait for the end that a fault brings."""
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
        """Until all of these stand in the chat."""

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
        """How often something stands in a chat."""
        return sum(one.text.count(word) for one in self.peer.shown(who=who, room=room))

    def stay_quiet(self) -> None:
        """Give what should not happen the time to happen."""
        time.sleep(QUIET_S)

    def cursor(self, line: str) -> Mapping[str, Any] | None:
        """How far a channel had read when it last kept a message."""
        return self._look(lambda store: store.journal.cursor(line))

    def rewind(self, line: str, cursor: Mapping[str, Any]) -> None:
        """Have the next gateway go on from there."""

        async def main() -> None:
            async with open_store(self.home.state) as store, store.journal.commit() as unit:
                unit.read_to(Cursor(line, cursor))

        asyncio.run(main())

    def rows(self) -> list[Accepted]:
        return list(self._look(lambda store: store.journal.rows()))

    def parcels(self) -> list[Parcel]:
        return list(self._look(lambda store: store.journal.parcels()))

    def _look(self, ask: Callable[[SqliteStore], Awaitable[T]]) -> T:
        async def main() -> T:
            async with open_store(self.home.state, read_only=True) as store:
                return await ask(store)

        return asyncio.run(main())
