"""The cost of a turn in process, beyond the model server: CPU, and memory after many.

On a shared machine the same work costs up to twice as much for seconds at a time. So a fixed
piece of work is timed before and after every few turns, and their cost is scaled to the
reference pace.
"""

import asyncio
import tempfile
from pathlib import Path
from statistics import median

from bench.app import ask, model_server, open_app_for_bench
from bench.figure import USUAL_MS, CpuClock, Figure, rss_mb, weather_ms

WARM_UP = 20
FEW = 5  # turns, so few that the machine's pace seldom changes between


def measure(*, quick: bool) -> list[Figure]:
    batches, turns = (12, 25) if quick else (12, 50)
    with tempfile.TemporaryDirectory() as folder, model_server() as url:
        return asyncio.run(_measure(Path(folder), url, batches, turns))


async def _measure(home: Path, url: str, batches: int, turns: int) -> list[Figure]:
    async with open_app_for_bench(home, url) as app:
        for _ in range(WARM_UP):
            await ask(app, app.control.resolve_key(), "Hello MOCK:short")
        costs, paced = list[float](), list[float]()
        for batch in range(batches):
            # A conversation of its own, so that every batch sends prompts of the same lengths.
            key = f"agent:main:bench-{batch}"
            for _ in range(turns // FEW):
                before_ms, clock = weather_ms(), CpuClock()
                for _ in range(FEW):
                    await ask(app, key, "Hello MOCK:short")
                spent_ms = clock.spent_s() * 1000 / FEW
                slow = max(1.0, (before_ms + weather_ms()) / 2 / USUAL_MS)
                costs.append(spent_ms)
                paced.append(spent_ms / slow)
        note = f"median of {len(costs)} × {FEW} turns; {median(costs):.3g} as they came"
        return [
            Figure("turn.cpu_ms", median(paced), "CPU-ms", note, is_paced=True),
            Figure("turn.rss_mb", rss_mb(), "MB", f"after {WARM_UP + batches * turns} turns"),
        ]
