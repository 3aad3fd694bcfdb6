"""The cost of a message through Synapse in our process, beyond the turn that answers it.

A person with matrix-nio, in a process of their own, writes and waits for the answer, again and
again; the same turns are run by the App alone, in between. Reading, access control, the journal,
the outbox, the typing indicator, the receipt and the sending are in the difference. Where Synapse
is not installed (`dev.py test-peers` installs it), there is no figure.
"""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from bench.app import ask, configure, model_server
from bench.figure import USUAL_MS, CpuClock, Figure, private_env, weather_ms
from homarus.process import open_app
from tests.peers.install import has_venv
from tests.peers.matrix_bot import Bot, new_bot
from tests.peers.synapse import LOCK, People, Person, running_synapse

FEW = 5  # messages, so few that the machine's pace seldom changes between
SAY = "Hello MOCK:short"
QUIET_S = 0.3  # until what an answer leaves behind is done


def measure(*, quick: bool) -> list[Figure]:
    if not has_venv(LOCK):
        return []
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as place,
        model_server() as url,
        running_synapse(Path(place)) as server,
    ):
        people = People(server)
        try:
            bot, person = new_bot(server), people.new("ann")
            _configure(Path(folder), url, bot, person)
            return [asyncio.run(_measure(Path(folder), bot, person, 8 if quick else 24))]
        finally:
            people.close()


def _configure(home: Path, url: str, bot: Bot, person: Person) -> None:
    configure(home, url)
    file = home / "state" / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    account = {"homeserver": bot.server.url, "accessToken": bot.token, "allowFrom": [person.id]}
    config["channels"] = {"matrix": {**account, "dmPolicy": "allowlist"}}
    # People who wait for each answer need no pause for a second thought.
    config["messages"] = {"queue": {"debounceMs": 0}, "inbound": {"debounceMs": 0}}
    file.write_text(json.dumps(config), encoding="utf-8")


async def _measure(home: Path, bot: Bot, person: Person, rounds: int) -> Figure:
    async with open_app(private_env(home)) as app:
        await app.recover()
        room = await person.dm(bot.id)

        async def talk() -> None:
            await person.do("exchange", room=room, text=SAY)

        async def turn() -> None:
            await ask(app, "agent:main:bench", SAY)

        for _ in range(5):  # to warm up
            await talk()
            await turn()
        talked, turned = list[float](), list[float]()
        for _ in range(rounds):
            talked.append(await _each_ms(talk))
            turned.append(await _each_ms(turn))
    whole, alone = median(talked), median(turned)
    note = f"{whole:.2f} with the turn, {alone:.2f} the turn alone; medians of {rounds} × {FEW}"
    return Figure("channels.synapse_message_cpu_ms", whole - alone, "CPU-ms", note, is_paced=True)


async def _each_ms(act: Callable[[], Awaitable[None]]) -> float:
    """Return the CPU milliseconds of one of a few, scaled to the reference pace."""
    before_ms, clock = weather_ms(), CpuClock()
    for _ in range(FEW):
        await act()
    await asyncio.sleep(QUIET_S)
    spent_ms = clock.spent_s() * 1000 / FEW
    return spent_ms / max(1.0, (before_ms + weather_ms()) / 2 / USUAL_MS)
