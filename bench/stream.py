"""How fast a long streamed reply passes from the socket to the bus."""

import asyncio
import tempfile
from pathlib import Path

from bench.app import ask, model_server, open_app_for_bench
from bench.figure import CpuClock, Figure

CHUNKS = 2_000


def measure(*, quick: bool) -> list[Figure]:
    times = 5 if quick else 15
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        return asyncio.run(_measure(Path(folder), url, times))


async def _measure(home: Path, url: str, times: int) -> list[Figure]:
    async with open_app_for_bench(home, url) as app:
        await ask(app, app.control.resolve_key(), "Hello MOCK:short")
        spent_s = []
        for number in range(times):
            clock = CpuClock()  # not wall time: the server shares the machine
            await ask(app, f"agent:main:bench-{number}", f"Go MOCK:long:{CHUNKS}")
            spent_s.append(clock.spent_s())
    rate = CHUNKS / min(spent_s)
    return [Figure("stream.chunks_per_cpu_s", rate, "chunks/CPU-s", f"best of {times} replies")]
