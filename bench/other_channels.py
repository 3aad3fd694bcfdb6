"""What Discord and Slack cost a gateway with Telegram, when they are configured.

Gateways with the same account of Telegram (our fake) run side by side: one alone, one whose config
also has a section of Discord and one of Slack that are off, and one where both are on, at the
fakes of the contract suite. Their turns are measured in alternation, so that the machine's pace is
the same for all. Modules are counted in starts of their own, by Python's list of imports.

While the contract suite has no Discord and no Slack, there is no gateway with them on.
"""

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from bench.app import configure, model_server
from bench.figure import Figure
from bench.process import Gateway, running_gateway
from tests.contract.channel_fixtures import make_peer
from tests.contract.channel_peers import TelegramPeer
from tests.contract.channel_stage import wait_for
from tests.contract.channel_table import CHANNELS

OTHERS = ("discord", "slack")
SETTLE_S, QUIET_S, PATIENCE_S, QUIET_CPU_S = 2.0, 0.3, 20.0, 0.002
TURNS = 5  # in a batch
TURN_RATIOS = {
    "off": "other_channels.off_turn_ratio",
    "on": "other_channels.on_turn_ratio",
}
SAY = "Hello MOCK:short"
IMPORTED = re.compile(r"import time:\s+\d+ \|\s+\d+ \|\s+(\S+)")
OFF: dict[str, Any] = {
    "discord": {"enabled": False, "token": "none"},
    "slack": {"enabled": False, "botToken": "xoxb-none", "appToken": "xapp-none"},
}


@dataclass(frozen=True, slots=True)
class Side:
    """A running gateway, and the person who writes to it."""

    gateway: Gateway
    person: TelegramPeer

    def turn(self) -> None:
        """Write a message and wait for its answer."""
        count = len(self.person.shown())
        self.person.write(SAY)
        wait_for(lambda: len(self.person.shown()) > count, "the answer")

    def settle(self) -> None:
        """Wait until the gateway is idle; heartbeats of a connection may go on."""
        until_s, before_s = time.monotonic() + PATIENCE_S, self.gateway.cpu_s()
        while time.monotonic() < until_s:
            time.sleep(QUIET_S)
            now_s = self.gateway.cpu_s()
            if now_s - before_s < QUIET_CPU_S:
                return
            before_s = now_s

    def batch_ms(self) -> float:
        """Return the CPU milliseconds of a turn, with what it leaves to be done."""
        self.settle()
        before_s = self.gateway.cpu_s()
        for _ in range(TURNS):
            self.turn()
        self.settle()
        return (self.gateway.cpu_s() - before_s) * 1000 / TURNS


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, model_server() as url, ExitStack() as stack:
        home = Path(folder)
        sections: dict[str, dict[str, Any]] = {"alone": {}, "off": OFF}
        if on := _enabled_sections(stack, home):
            sections["on"] = on
        return [
            *_compare(home, url, sections, 4 if quick else 10),
            _count_modules(home, url),
        ]


def _compare(
    home: Path, url: str, sections: Mapping[str, Mapping[str, Any]], rounds: int
) -> list[Figure]:
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(_running(home / name, url, others))
            for name, others in sections.items()
        }
        for side in sides.values():
            side.turn()  # what the first turn loads is loaded
            side.settle()
        idle_mb = {name: side.gateway.rss_mb() for name, side in sides.items()}
        spent_ms: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                spent_ms[name].append(side.batch_ms())
    # What else the machine does only ever adds to a batch.
    turn_ms = {name: min(values) for name, values in spent_ms.items()}
    figures = list[Figure]()
    for name in sides:
        if name != "alone":
            note = f"{turn_ms[name]:.2f} CPU-ms, {turn_ms['alone']:.2f} alone"
            ratio = turn_ms[name] / turn_ms["alone"]
            figures.append(Figure(TURN_RATIOS[name], ratio, "×", note))
    extra_mb = idle_mb["off"] - idle_mb["alone"]
    note = f"{idle_mb['off']:.1f} MB, {idle_mb['alone']:.1f} alone"
    return [*figures, Figure("other_channels.off_idle_mb", extra_mb, "MB", note)]


def _count_modules(home: Path, url: str) -> Figure:
    """Return how many modules of channels and of libraries are imported for what is off."""
    found = dict[str, set[str]]()
    for name, others in (("alone", {}), ("off", OFF)):
        place = home / f"modules-{name}"
        with _running(place, url, others, PYTHONPROFILEIMPORTTIME="1") as side:
            side.turn()
            side.settle()
        found[name] = set(IMPORTED.findall((place / "gateway.log").read_text(encoding="utf-8")))
    more = sorted(name for name in found["off"] - found["alone"] if _is_of_channels(name))
    note = ", ".join(more[:5]) or f"{len(found['alone'])} modules in all"
    return Figure("other_channels.off_modules", len(more), "modules", note)


def _is_of_channels(module: str) -> bool:
    package = module.partition(".")[0]
    if package == "homarus":  # others are imported at moments of their own
        return module.startswith("homarus.channels.")
    return package not in sys.stdlib_module_names


@contextmanager
def _running(home: Path, url: str, others: Mapping[str, Any], **env: str) -> Iterator[Side]:
    configure(home, url)
    with closing(TelegramPeer()) as person:
        file = home / "state" / "openclaw.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        config["channels"] = {**person.section(), **others}
        # People who wait for each answer need no pause for a second thought.
        config["messages"] = {"queue": {"debounceMs": 0}, "inbound": {"debounceMs": 0}}
        file.write_text(json.dumps(config), encoding="utf-8")
        with running_gateway(home, **env) as gateway:
            time.sleep(SETTLE_S)
            yield Side(gateway, person)


def _enabled_sections(stack: ExitStack, folder: Path) -> dict[str, Any]:
    """Return the sections of Discord and Slack at their fakes, where the suite has them."""
    found: dict[str, Any] = {}
    for name in OTHERS:
        if name in CHANNELS:
            request = cast("Any", SimpleNamespace(param=name))
            peer = stack.enter_context(closing(make_peer(request, folder / name)))
            found |= peer.section()
    return found
