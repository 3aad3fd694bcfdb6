"""The cost of a plain question before the model answers: bytes sent, and prompt assembly."""

import asyncio
import tempfile
from pathlib import Path

from bench.app import ask, open_app_for_bench
from bench.figure import CpuClock, Figure
from homarus.agent.prompt.composer import PromptComposer
from homarus.testing.model_server import ModelServer

QUESTION = "What is the tide in Kiel tomorrow? MOCK:short"


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), times=200 if quick else 1_000))


async def _measure(home: Path, times: int) -> list[Figure]:
    async with ModelServer() as server, open_app_for_bench(home, server.url) as app:
        await ask(app, app.control.resolve_key(), QUESTION)
        sent_kb = int(server.requests[-1].headers["content-length"]) / 1000
        agent, tools = app.agent("main"), app.tools("main").specs()
        model = app.models.check("bench/mock")
        composer = PromptComposer()
        keys = [app.control.resolve_key(), "agent:main:slack:channel:c1"]
        spent_ms = []
        for _ in range(5):
            cpu = CpuClock()
            for number in range(times):
                composer.compose(agent, keys[number % 2], model, tools)
            spent_ms.append(cpu.spent_s() * 1000 / times)
    return [
        Figure("prompt.sent_kb", sent_kb, "KB", f"a fresh workspace, {len(tools)} tools"),
        Figure("prompt.assembly_cpu_ms", min(spent_ms), "CPU-ms", f"best of 5 × {times}"),
    ]
