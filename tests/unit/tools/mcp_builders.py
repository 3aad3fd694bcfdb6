"""Agents with MCP servers: scripts of `mcp_servers`, run as programs."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from homarus.agent.agent_registry import AgentRegistry
from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.message import ToolCall, ToolResult
from homarus.policy.approvals import ApprovalAnswer, ApprovalDecision, ApprovalQuestion
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, ToolCallFacts, ToolDecision
from homarus.tools.execute import execute_tool_call
from homarus.tools.mcp.loader import McpLoader
from homarus.tools.sources import ToolSources
from homarus.tools.tool import ToolContext

SERVERS = Path(__file__).parent / "mcp_servers"


def script(name: str, *args: str, **settings: Any) -> dict[str, Any]:
    """Return the config of a server that is one of the scripts."""
    return {"command": sys.executable, "args": [str(SERVERS / f"{name}.py"), *args], **settings}


def make_config(servers: dict[str, Any], **rest: Any) -> Config:
    config = check_config({"mcp": {"servers": servers}, **rest}).config
    assert config is not None
    return config


@dataclass
class RecordingApprovals:
    """Answers every question with one decision, and records it."""

    decision: ApprovalDecision | None = None
    questions: list[ApprovalQuestion] = field(default_factory=list)

    async def request(self, _call_id: str, question: ApprovalQuestion) -> ApprovalAnswer:
        self.questions.append(question)
        return ApprovalAnswer(self.decision)


@dataclass
class World:
    """The tools of an agent, as its runs get and call them."""

    loader: McpLoader
    agents: AgentRegistry
    home: Path
    configs: list[Config]
    approvals: RecordingApprovals = field(default_factory=RecordingApprovals)
    progress: list[str] = field(default_factory=list)
    taint: tuple[Any, ...] = ()

    async def begin_run(self, agent: str = "main") -> set[str]:
        """Do what the beginning of a run does, and return the names of the tools of servers."""
        await self.loader.discover(agent)
        return self.names(agent)

    def names(self, agent: str = "main") -> set[str]:
        return {each.name for each in self.agents.tools(agent) if "__" in each.name}

    def reload(self, config: Config) -> None:
        self.configs.append(config)
        self.agents.clear()
        self.loader.reload()

    async def call(self, tool: str, agent: str = "main", **args: Any) -> ToolResult:
        caller = CallerFacts(agent, f"agent:{agent}:main", taint=self.taint)
        context = ToolContext(
            caller.session_key,
            agent,
            self.home,
            progress=self.progress.append,
            approvals=self.approvals,
        )

        async def decide(facts: ToolCallFacts) -> ToolDecision:
            return decide_tool_call(facts, caller, self.agents.get(agent).rules)

        call = ToolCall("call-1", tool, args)
        return await execute_tool_call(self.agents.tools(agent), context, call, decide)


@asynccontextmanager
async def open_world(home: Path, servers: dict[str, Any], **rest: Any) -> AsyncIterator[World]:
    """Open the tools of agents with these servers; the servers end with the block."""
    configs = [make_config(servers, **rest)]
    paths = Paths.find({"HOME": str(home)})
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "SECRET_KEY": "of the gateway"}
    async with asyncio.TaskGroup() as group:
        loader = McpLoader(group, lambda: configs[-1], lambda: env, paths.state, discovery_s=100)
        agents = AgentRegistry(lambda: configs[-1], paths, sources=ToolSources((loader,)))
        try:
            yield World(loader, agents, home, configs)
        finally:
            loader.stop()
