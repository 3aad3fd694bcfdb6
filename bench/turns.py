"""What a turn costs in process, beyond the model server: CPU, and memory after many."""

import asyncio
import tempfile
from pathlib import Path

from bench.app import ask, model_server, open_app_for_bench
from bench.figure import CpuClock, Figure, rss_mb

WARM_UP = 20


def measure(*, quick: bool) -> list[Figure]:
    batches, turns = (12, 25) if quick else (12, 50)
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        return asyncio.run(_measure(Path(folder), url, batches, turns))


async def _measure(home: Path, url: str, batches: int, turns: int) -> list[Figure]:
    async with open_app_for_bench(home, url) as app:
        for _ in range(WARM_UP):
            await ask(app, app.key(), "Hello MOCK:short")
        spent_ms = []
        for batch in range(batches):
            # A conversation of its own, so that every batch sends prompts of the same lengths.
            key = f"agent:main:bench-{batch}"
            clock = CpuClock()
            for _ in range(turns):
                await ask(app, key, "Hello MOCK:short")
            spent_ms.append(clock.spent_s() * 1000 / turns)
        note = f"best of {batches} × {turns} turns"
        return [
            Figure("turn.cpu_ms", min(spent_ms), "CPU-ms", note),
            Figure("turn.rss_mb", rss_mb(), "MB", f"after {WARM_UP + batches * turns} turns"),
        ]
