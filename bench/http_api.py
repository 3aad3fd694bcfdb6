"""What a run by the HTTP API costs, against the same run by a client of the WebSocket.

Batches of turns by the one and by the other take turns; while those of the API run, no client is
connected that would get their events too. Time is measured for the first byte alone, from that of
the model's answer.
"""

import asyncio
import http.client
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen
from uuid import uuid4

from bench.app import configure, model_server
from bench.client import Device, open_client
from bench.figure import Figure
from bench.process import TOKEN, Gateway, running_gateway

SAY = "Hello MOCK:short"
PATH = "/v1/chat/completions"
QUIET_S, QUIET_CPU_S, PATIENCE_S = 0.3, 0.002, 20.0
ACCEPT_S = 0.1  # until a request is accepted: one address may have 64 that are not
# How long a stream that is held takes: a service gets 256 requests at once, each for ten seconds.
STREAM_S, LONG_STREAM_S = 8.0, 60.0


def measure(*, quick: bool) -> list[Figure]:
    batches, turns, words, streams = (4, 25, 15, 200) if quick else (8, 50, 35, 1_000)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * streams + 1_000, most), most))
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        home = Path(folder)
        configure(home, url)
        _enable(home)
        with running_gateway(home) as gateway:
            return [
                asyncio.run(_compare(gateway, batches, turns)),
                _first_byte(gateway, url, words),
                *asyncio.run(_hold(gateway, streams, STREAM_S if quick else LONG_STREAM_S)),
            ]


def _enable(home: Path) -> None:
    file = home / "state" / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    endpoints = {name: {"enabled": True} for name in ("chatCompletions", "responses")}
    config["gateway"] = {"http": {"endpoints": endpoints}}
    file.write_text(json.dumps(config), encoding="utf-8")


async def _compare(gateway: Gateway, batches: int, turns: int) -> Figure:
    """Measure the CPU time of a turn by the API, by that of one by the WebSocket."""
    ours_ms, theirs_ms = list[float](), list[float]()
    for number in range(-1, batches):
        async with open_client(gateway.url, Device()) as client:
            for turn in range(turns + 1):
                if turn == 1:  # the first one reads the session
                    await asyncio.to_thread(_settle, gateway)
                    cpu_s = gateway.cpu_s()
                await client.turn(f"agent:main:ws-{number}", SAY)
            await asyncio.to_thread(_settle, gateway)
            spent_ms = (gateway.cpu_s() - cpu_s) * 1000 / turns
        theirs_ms += [spent_ms] if number >= 0 else []
        spent_ms = await asyncio.to_thread(_api_turns, gateway, f"agent:main:api-{number}", turns)
        ours_ms += [spent_ms] if number >= 0 else []
    ours, theirs = min(ours_ms), min(theirs_ms)
    note = f"{ours:.2f} CPU-ms, {theirs:.2f} by the WebSocket; best of {batches} × {turns} turns"
    return Figure("http_api.turn_ratio", ours / theirs, "×", note)


def _api_turns(gateway: Gateway, key: str, turns: int) -> float:
    with _connected(gateway) as connection:
        for turn in range(turns + 1):
            if turn == 1:
                _settle(gateway)
                cpu_s = gateway.cpu_s()
            response = _ask(connection, SAY, key=key)
            answer = json.loads(response.read())
            if "choices" not in answer:
                raise RuntimeError(f"a turn ended {answer}")
    _settle(gateway)
    return (gateway.cpu_s() - cpu_s) * 1000 / turns


def _first_byte(gateway: Gateway, url: str, words: int) -> Figure:
    """Measure from the model's first byte to the first text of the stream."""
    begun_s = dict[str, float]()
    with _connected(gateway) as connection:
        for _ in range(words):
            tag = uuid4().hex
            response = _ask(connection, f"Go MOCK:long:3:20 T#{tag}", stream=True)
            while b'"content":""' in (line := response.readline()) or b'"content":' not in line:
                pass
            begun_s[tag] = time.time()
            response.read()
    with urlopen(f"{url.removesuffix('/v1')}/_stats") as stats:
        first_s = {row["tag"]: row["first"] for row in json.load(stats) if row.get("tag")}
    behind_ms = [(at_s - first_s[tag]) * 1000 for tag, at_s in begun_s.items()]
    note = f"median of {len(behind_ms)}; best {min(behind_ms):.1f}"
    return Figure("http_api.first_byte_ms", statistics.median(behind_ms), "ms", note)


async def _hold(gateway: Gateway, streams: int, stream_s: float) -> list[Figure]:
    """Measure streams that are open at once, each with a run of its own."""
    before_mb, held, done = gateway.rss_mb(), asyncio.Barrier(streams + 1), list[int]()
    places = asyncio.Semaphore(50)
    text = f"Go MOCK:long:4:{round(stream_s * 1000 / 4)}"
    body = _body(text, stream=True)

    async def stream() -> None:
        address = urlsplit(gateway.url)
        async with places:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            head = "".join(f"{name}: {value}\r\n" for name, value in _headers().items())
            length = f"Host: {address.netloc}\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"POST {PATH} HTTP/1.1\r\n{length}{head}\r\n".encode() + body)
            await asyncio.sleep(ACCEPT_S)
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"a stream was refused: {status!r}")
        await held.wait()
        received = await reader.readuntil(b"[DONE]")
        done.append(len(received))
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(stream())
        await held.wait()
        each_kb = (gateway.rss_mb() - before_mb) * 1000 / streams
    return [
        Figure("http_api.streams", len(done), "streams", "open at once, each to its end"),
        Figure("http_api.stream_kb", each_kb, "kB", "resident memory for each"),
    ]


@contextmanager
def _connected(gateway: Gateway) -> Iterator[http.client.HTTPConnection]:
    address = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)
    try:
        yield connection
    finally:
        connection.close()


def _headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


def _body(text: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "openclaw", "messages": messages, **more}).encode()


def _ask(
    connection: http.client.HTTPConnection, text: str, *, stream: bool = False, key: str = ""
) -> http.client.HTTPResponse:
    session = {"x-openclaw-session-key": key} if key else {}
    connection.request("POST", PATH, _body(text, stream=stream), {**_headers(), **session})
    return connection.getresponse()


def _settle(gateway: Gateway) -> None:
    """Wait until the gateway has nothing to do."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        cpu_s = gateway.cpu_s()
        time.sleep(QUIET_S)
        if gateway.cpu_s() - cpu_s < QUIET_CPU_S:
            return
