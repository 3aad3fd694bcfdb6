"""What a turn costs in process, beyond the model server: CPU, and memory after many.

On a shared machine the same work costs up to twice as much for seconds at a time. So a fixed
piece of work is timed before and after every few turns, and those count that were done in calm.
"""

import asyncio
import tempfile
from pathlib import Path

from bench.app import ask, model_server, open_app_for_bench
from bench.figure import CpuClock, Figure, in_calm, rss_mb, weather_ms

WARM_UP = 20
FEW = 5  # turns, so short that the weather seldom changes between


def measure(*, quick: bool) -> list[Figure]:
    batches, turns = (12, 25) if quick else (12, 50)
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        return asyncio.run(_measure(Path(folder), url, batches, turns))


async def _measure(home: Path, url: str, batches: int, turns: int) -> list[Figure]:
    async with open_app_for_bench(home, url) as app:
        for _ in range(WARM_UP):
            await ask(app, app.key(), "Hello MOCK:short")
        samples = list[tuple[float, float]]()
        for batch in range(batches):
            # A conversation of its own, so that every batch sends prompts of the same lengths.
            key = f"agent:main:bench-{batch}"
            for _ in range(turns // FEW):
                before_ms, clock = weather_ms(), CpuClock()
                for _ in range(FEW):
                    await ask(app, key, "Hello MOCK:short")
                spent_ms = clock.spent_s() * 1000 / FEW
                samples.append((max(before_ms, weather_ms()), spent_ms))
        median_ms, calm = in_calm(samples)
        note = f"median of {calm} of {len(samples)} × {FEW} turns, those in calm weather"
        return [
            Figure("turn.cpu_ms", median_ms, "CPU-ms", note),
            Figure("turn.rss_mb", rss_mb(), "MB", f"after {WARM_UP + batches * turns} turns"),
        ]
