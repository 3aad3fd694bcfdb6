"""The cost of each wire per chunk, to import, and in memory when all were used."""

import asyncio
import sys
from collections.abc import Callable
from urllib.parse import urlsplit

from bench.app import model_server
from bench.figure import CpuClock, Figure, best_of, child_cpu_s, rss_mb
from homarus.core.message import Message, user_message
from homarus.providers import anthropic, google, openai, responses
from homarus.providers.base import ModelRequest, Provider, TextDelta
from homarus.providers.endpoint import ProviderConnection

CHUNKS = 2_000
WIRES: dict[str, tuple[Callable[[ProviderConnection], Provider], str]] = {
    "openai": (openai.create, "/v1"),
    "responses": (responses.create, "/v1"),
    "anthropic": (anthropic.create, ""),
    "google": (google.create, "/v1beta"),
}
IMPORTS = {
    "openai": "wire.openai.import_cpu_s",
    "responses": "wire.responses.import_cpu_s",
    "anthropic": "wire.anthropic.import_cpu_s",
    "google": "wire.google.import_cpu_s",
}
CHUNK_COSTS = {
    "openai": "wire.openai.chunk_cpu_us",
    "responses": "wire.responses.chunk_cpu_us",
    "anthropic": "wire.anthropic.chunk_cpu_us",
    "google": "wire.google.chunk_cpu_us",
}


def measure(*, quick: bool) -> list[Figure]:
    times = 6 if quick else 20
    figures = []
    empty_s = best_of(5, lambda: child_cpu_s([sys.executable, "-c", "pass"]))
    for name in WIRES:
        load = [sys.executable, "-c", f"import homarus.providers.{name}"]
        spent_s = best_of(3 if quick else 7, lambda load=load: child_cpu_s(load))  # type: ignore[misc] # binds now
        figures.append(Figure(IMPORTS[name], spent_s - empty_s, "CPU-s"))
    with model_server() as url:
        figures += asyncio.run(_chunks(url, times))
    figures.append(Figure("wire.all.rss_mb", rss_mb(), "MB", "after all four were used"))
    return figures


async def _chunks(url: str, times: int) -> list[Figure]:
    parts = urlsplit(url)
    figures = []
    for name, (create, path) in WIRES.items():
        provider = create(
            ProviderConnection(name, f"{parts.scheme}://{parts.netloc}{path}", "sk-bench")
        )
        spent_s = []
        for _ in range(times):
            clock = CpuClock()
            await _ask(provider)
            spent_s.append(clock.spent_s())
        await provider.close()
        cost_us = min(spent_s) / CHUNKS * 1e6
        note = f"{1e6 / cost_us:,.0f} chunks/CPU-s, best of {times}"
        figures.append(Figure(CHUNK_COSTS[name], cost_us, "CPU-µs", note))
    return figures


async def _ask(provider: Provider) -> None:
    chunks = 0
    request = ModelRequest("mock-1", "", (user_message(f"MOCK:long:{CHUNKS}"),), max_tokens=100_000)
    async for piece in provider.stream(request):
        if isinstance(piece, TextDelta):
            chunks += 1
        elif isinstance(piece, Message) and chunks < CHUNKS:
            sys.exit(f"bench: {provider.name} gave {chunks} of {CHUNKS} chunks")
