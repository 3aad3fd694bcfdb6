"""The cost of the gateway, measured from outside: a client, the process, and the kernel's counters.

Measured in CPU wherever possible. Two promises are about time itself, turns per second and the
delay of the first word: those are the best, or the median, of several.
"""

import asyncio
import json
import resource
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

from websockets.asyncio.client import connect

from bench.app import configure, model_server
from bench.client import Client, Device, Turn, open_client
from bench.figure import Figure
from bench.process import Gateway, running_gateway
from homarus.core.clock import SystemClock
from homarus.core.message import Message, Origin, Text, user_message
from homarus.sessions.session import SessionRepository
from homarus.store.base import SessionRecord, TranscriptHeader
from homarus.store.sqlite import open_store

SAY = "Hello MOCK:short"
CHUNKS = 2_000
QUIET_S, QUIET_CPU_S, PATIENCE_S = 0.3, 0.002, 20.0
AT_ONCE = 50  # handshakes, and sessions that talk
SHORT, LONG = 10, 2_000  # messages
USUAL, ENDLESS = 100, 10_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    starts: int
    batches: int
    turns: int
    repeats: int
    few: int  # stored sessions
    many: int
    clients: int


QUICK = Size(starts=3, batches=4, turns=25, repeats=3, few=200, many=4_000, clients=200)
FULL = Size(starts=7, batches=8, turns=50, repeats=7, few=200, many=20_000, clients=1_000)


def measure(*, quick: bool) -> list[Figure]:
    size = QUICK if quick else FULL
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * size.clients + 1_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most), most))
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        return asyncio.run(_measure(Path(folder), url, size))


async def _measure(folder: Path, url: str, size: Size) -> list[Figure]:
    figures = [await _start(folder, url, size)]
    async with _open(folder / "main", url) as (gateway, client):
        figures += await _life(gateway, client, size)
        figures += await _crowd(gateway, client, size)
        figures += await _burst(gateway, client, url, size)
        figures.append(await _first_word(client, url, size))
        figures += await _idle_clients(gateway, client, size)
    figures.append(await _slow_disk(folder / "slow", url, size))
    figures += await _long_conversations(folder / "long", url, size)
    figures.append(await _many_sessions(folder, url, size))
    return figures


@asynccontextmanager
async def _open(home: Path, url: str, **more: str) -> AsyncIterator[tuple[Gateway, Client]]:
    configure(home, url)
    with running_gateway(home, **more) as gateway:
        async with open_client(gateway.url, Device()) as client:
            yield gateway, client


async def _start(folder: Path, url: str, size: Size) -> Figure:
    """Measure from the start to a health answer."""
    spent_s = []
    for number in range(size.starts):
        async with _open(folder / f"start-{number}", url) as (gateway, client):
            await client.call("health")
            spent_s.append(gateway.whole_cpu_s())
    return Figure("gateway.ready_cpu_s", min(spent_s), "CPU-s", f"best of {size.starts} starts")


async def _life(gateway: Gateway, client: Client, size: Size) -> list[Figure]:
    """Measure idling, the first turn, two hundred turns, then turns in sequence."""
    await _settle(gateway)
    idle_mb = gateway.rss_mb()
    first_ms = (await _each(gateway, client, "agent:main:first", SAY, 1))[0]
    await _each(gateway, client, "agent:main:life", SAY, 200)
    await _settle(gateway)
    later_mb = gateway.rss_mb()
    each_ms = list[float]()
    batch_ms = list[float]()
    for number in range(size.batches):
        spent_ms = await _each(gateway, client, f"agent:main:b-{number}", SAY, size.turns)
        each_ms += spent_ms
        batch_ms.append(statistics.mean(spent_ms))
    p50, p95 = _share(each_ms, 0.5), _share(each_ms, 0.95)
    tool_ms = [
        statistics.mean(await _each(gateway, client, f"agent:main:t-{number}", _read(), 10))
        for number in range(size.batches)
    ]
    many = f"{size.batches} × {size.turns} turns"
    return [
        Figure("gateway.idle_rss_mb", idle_mb, "MB", "one client connected"),
        Figure("gateway.rss_growth", later_mb / idle_mb, "×", f"{later_mb:.1f} MB after 200 turns"),
        Figure("gateway.turn_cpu_ms", min(batch_ms), "CPU-ms", f"best of {many}"),
        Figure("gateway.turn_p95_ratio", p95 / p50, "×", f"p50 {p50:.2f}, p95 {p95:.2f} CPU-ms"),
        Figure("gateway.first_turn_ratio", first_ms / p50, "×", f"{first_ms:.1f} CPU-ms"),
        Figure("gateway.tool_turn_cpu_ms", min(tool_ms), "CPU-ms", f"best of {size.batches} × 10"),
    ]


async def _crowd(gateway: Gateway, client: Client, size: Size) -> list[Figure]:
    """Measure fifty sessions, four turns each, all at once."""
    rates, spent_ms = list[float](), list[float]()
    for number in range(size.repeats):

        async def talk(session: int, number: int = number) -> None:
            for _ in range(4):
                await client.turn(f"agent:main:c-{number}-{session}", SAY)

        loop = asyncio.get_running_loop()
        started_s, cpu_s = loop.time(), gateway.cpu_s()
        async with asyncio.TaskGroup() as group:
            for session in range(AT_ONCE):
                group.create_task(talk(session))
        rates.append(4 * AT_ONCE / (loop.time() - started_s))
        spent_ms.append((gateway.cpu_s() - cpu_s) * 1000 / (4 * AT_ONCE))
    note = f"best of {size.repeats}; {min(spent_ms):.1f} CPU-ms a turn"
    return [Figure("gateway.turns_per_s", max(rates), "turns/s", note)]


async def _slow_disk(home: Path, url: str, size: Size) -> Figure:
    """Measure the same where each commit takes 5 ms more: many turns must share one."""
    async with _open(home, url, HOMARUS_FAULT="store.commit:slow:1+") as (gateway, client):
        await client.turn("agent:main:warm", SAY)
        (figure,) = await _crowd(gateway, client, size)
    return replace(figure, name="gateway.slow_commit_turns_per_s")


async def _burst(gateway: Gateway, client: Client, url: str, size: Size) -> list[Figure]:
    """Measure a model that sends everything at once."""
    rates, walls, deltas = list[float](), list[float](), list[int]()
    for number in range(size.repeats):
        await _settle(gateway)
        tag, cpu_s = uuid4().hex, gateway.cpu_s()
        turn = await client.turn(f"agent:main:burst-{number}", f"Go MOCK:long:{CHUNKS} T#{tag}")
        rates.append(CHUNKS / (gateway.cpu_s() - cpu_s))
        walls.append(CHUNKS / (turn.end_s - (await _first_bytes(url))[tag]))
        deltas.append(turn.deltas)
    note = f"best of {size.repeats}; {max(walls):.0f} chunks/s by the clock"
    return [
        Figure("gateway.burst_chunks_per_cpu_s", max(rates), "chunks/CPU-s", note),
        Figure("gateway.burst_deltas", max(deltas), "events", f"for {CHUNKS} chunks"),
    ]


async def _first_word(client: Client, url: str, size: Size) -> Figure:
    """Measure from the model's first byte to the client's first word."""
    turns = dict[str, Turn]()
    for _ in range(5 * size.repeats):
        tag = uuid4().hex
        turns[tag] = await client.turn("agent:main:words", f"Go MOCK:long:3:20 T#{tag}")
    first = await _first_bytes(url)
    behind_ms = [(turn.first_s - first[tag]) * 1000 for tag, turn in turns.items()]
    note = f"median of {len(behind_ms)}; best {min(behind_ms):.1f}"
    return Figure("gateway.first_word_ms", statistics.median(behind_ms), "ms", note)


async def _idle_clients(gateway: Gateway, client: Client, size: Size) -> list[Figure]:
    """Measure idle connections, and a turn among them."""
    before_mb, cpu_s = gateway.rss_mb(), gateway.cpu_s()
    device, places, here = Device(), asyncio.Semaphore(AT_ONCE), asyncio.Barrier(size.clients + 1)

    async def stay() -> None:
        async with AsyncExitStack() as stack:
            async with places:  # one address may have 64 connections that are not authenticated
                connection = connect(gateway.url, compression=None, proxy=None)
                socket = await stack.enter_async_context(connection)
                await Client(socket).greet(device)
            await here.wait()
            async for _ in socket:
                pass

    async with asyncio.TaskGroup() as group:
        visits = [group.create_task(stay()) for _ in range(size.clients)]
        await here.wait()
        greet_ms = (gateway.cpu_s() - cpu_s) * 1000 / size.clients
        each_kb = (gateway.rss_mb() - before_mb) * 1000 / size.clients
        spent_ms = statistics.mean(await _each(gateway, client, "agent:main:crowded", SAY, 3))
        await client.call("health")
        for visit in visits:
            visit.cancel()
    note = f"{greet_ms:.1f} CPU-ms to greet one; a turn told to all of them {spent_ms:.0f} CPU-ms"
    return [
        Figure("gateway.idle_clients", size.clients, "clients", note),
        Figure("gateway.idle_client_kb", each_kb, "kB", "resident memory for each"),
    ]


async def _long_conversations(home: Path, url: str, size: Size) -> list[Figure]:
    """Measure a turn after many messages, against one after few."""
    (home / "state").mkdir(parents=True)
    lengths = (SHORT, USUAL, LONG, ENDLESS)
    keys = {length: f"agent:main:has-{length}" for length in lengths}
    async with open_store(home / "state") as store:
        for length, key in keys.items():
            session = await SessionRepository(store, SystemClock()).load(key, "main")
            await session.start_turn(user_message("Where were we?"), provider="bench", model="mock")
            await session.append(*[_message(number) for number in range(length)])
    async with _open(home, url) as (gateway, client):
        best_ms = dict[int, float]()
        for length, key in keys.items():
            await _each(gateway, client, key, SAY, 3)  # the transcript is read once
            await _settle(gateway)
            batches = [
                statistics.median(await _each(gateway, client, key, SAY, 8))
                for _ in range(size.repeats)
            ]
            best_ms[length] = min(batches)
    return [
        _growth("gateway.long_ratio", best_ms, SHORT, LONG),
        _growth("gateway.endless_ratio", best_ms, USUAL, ENDLESS),
    ]


def _growth(name: str, best_ms: dict[int, float], few: int, many: int) -> Figure:
    note = f"{best_ms[few]:.2f} CPU-ms after {few} messages, {best_ms[many]:.2f} after {many}"
    return Figure(name, best_ms[many] / best_ms[few], "×", note)


async def _many_sessions(folder: Path, url: str, size: Size) -> Figure:
    """Measure a turn with many stored sessions, against one with few, alternating."""
    async with AsyncExitStack() as stack:
        sides = list[tuple[Gateway, Client]]()
        for count in (size.few, size.many):
            home = folder / f"stored-{count}"
            (home / "state").mkdir(parents=True)
            await _store_sessions(home / "state", count)
            sides.append(await stack.enter_async_context(_open(home, url)))
        best_ms = [float("inf"), float("inf")]
        for number in range(-1, size.repeats):
            for side, (gateway, client) in enumerate(sides):
                await _settle(gateway)
                spent_ms = await _each(gateway, client, f"agent:main:m-{number}", SAY, 20)
                await _settle(gateway)
                if number >= 0:  # the first is to warm up
                    best_ms[side] = min(best_ms[side], statistics.mean(spent_ms))
    few, many = best_ms
    note = f"{few:.2f} CPU-ms beside {size.few}, {many:.2f} beside {size.many}"
    return Figure("gateway.stored_sessions_ratio", many / few, "×", note)


async def _store_sessions(state: Path, count: int) -> None:
    now_ms = SystemClock().now_ms()
    async with open_store(state) as store:
        for start in range(0, count, 500):
            async with store.transaction() as unit:
                for number in range(start, min(start + 500, count)):
                    id_ = str(uuid4())
                    key = f"agent:main:direct:{number}"
                    data = {"sessionId": id_, "updatedAt": now_ms, "chatType": "direct"}
                    unit.open_transcript(TranscriptHeader(id_, "main", now_ms))
                    unit.put_session(SessionRecord(key, "main", id_, now_ms - number, data))


def _message(number: int) -> Message:
    if number % 2:
        return user_message("Hello again", at_ms=number)
    origin = Origin("openai-completions", "bench", "mock")
    return Message("assistant", (Text("Hello from the mock model."),), number, origin)


def _read() -> str:
    return 'Do MOCK:tool:read:{"path":"AGENTS.md","limit":5}§'


async def _each(gateway: Gateway, client: Client, key: str, text: str, turns: int) -> list[float]:
    """Return the CPU milliseconds of each of this many turns in sequence."""
    spent_ms = list[float]()
    before_s = gateway.cpu_s()
    for _ in range(turns):
        await client.turn(key, text)
        now_s = gateway.cpu_s()
        spent_ms.append((now_s - before_s) * 1000)
        before_s = now_s
    return spent_ms


async def _settle(gateway: Gateway) -> None:
    """Wait until the gateway is idle."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + PATIENCE_S
    before_s = gateway.cpu_s()
    while loop.time() < deadline_s:
        await asyncio.sleep(QUIET_S)
        now_s = gateway.cpu_s()
        if now_s - before_s < QUIET_CPU_S:
            return
        before_s = now_s


async def _first_bytes(url: str) -> dict[str, float]:
    """Return when the model server sent its first byte, by the tag of the message."""

    def fetch() -> list[dict[str, object]]:
        with urlopen(f"{url.removesuffix('/v1')}/_stats?clear=1") as answer:
            found: list[dict[str, object]] = json.load(answer)
            return found

    stats = await asyncio.to_thread(fetch)
    return {str(s["tag"]): float(str(s["first"])) for s in stats if s.get("tag")}


def _share(values: Sequence[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]
