"""The cost of a plain question before the model answers: bytes sent, and prompt assembly."""

import asyncio
import tempfile
from pathlib import Path

from bench.app import ask, open_app_for_bench
from bench.figure import CpuClock, Figure
from homarus.agent.prompt.composer import PromptComposer
from homarus.config.skills_schema import SkillLimitsConfig
from homarus.skills.catalog import BUNDLED_FOLDER
from homarus.skills.find import SkillRoot, find_skills
from homarus.skills.listing import list_skills
from homarus.skills.skill import SkillTier
from homarus.testing.model_server import ModelServer

QUESTION = "What is the tide in Kiel tomorrow? MOCK:short"


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), times=200 if quick else 1_000))


async def _measure(home: Path, times: int) -> list[Figure]:
    # Which bundled skills are listed depends on the programs of the machine: they are measured by
    # themselves, all of them.
    async with (
        ModelServer() as server,
        open_app_for_bench(home, server.url, has_skills=False) as app,
    ):
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
    skills = find_skills([SkillRoot(SkillTier.BUNDLED, BUNDLED_FOLDER)]).skills
    listing = list_skills(skills, SkillLimitsConfig(), home)
    return [
        Figure("prompt.sent_kb", sent_kb, "KB", f"a fresh workspace, {len(tools)} tools"),
        Figure(
            "prompt.skills_kb",
            len(listing.text.encode()) / 1000,
            "KB",
            f"the list of all {len(skills)} bundled skills",
        ),
        Figure("prompt.assembly_cpu_ms", min(spent_ms), "CPU-ms", f"best of 5 × {times}"),
    ]
