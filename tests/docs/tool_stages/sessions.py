"""The program with two agents, a fake model that says one sentence, and a session of its past."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from homarus.testing.model_server import ModelServer, Say
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.docs.tool_stages.plain import make_context, open_program

ANSWER = "The pump works again."


@asynccontextmanager
async def open_stage(
    workspace: Path,
) -> AsyncIterator[tuple[ToolRegistry, ToolContext, Mapping[str, str]]]:
    """Open the program in which the main agent may write to the agent `garden`."""
    async with ModelServer() as server:
        server.script([Say(ANSWER)])
        provider = {"baseUrl": server.url, "apiKey": "sk-test", "models": [{"id": "mock-1"}]}
        agents = {
            "defaults": {"model": {"primary": "mock/mock-1"}, "skipBootstrap": True},
            "list": [{"id": "main"}, {"id": "garden", "name": "Gardener"}],
        }
        async with open_program(
            workspace,
            agents=agents,
            models={"providers": {"mock": provider}},
            tools={"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True}},
            session={"agentToAgent": {"maxPingPongTurns": 0}},
        ) as app:
            await app.control.inject("agent:garden:main", ANSWER)
            context = replace(make_context(workspace), sessions=app.store)
            yield app.tools("main"), context, {}
