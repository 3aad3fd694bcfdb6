"""What holds for every source of tools, and how the tools of an agent follow them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.agent_registry import AgentRegistry
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, ToolCallFacts
from homarus.providers.base import ToolSpec
from homarus.tools import sources as sources_module
from homarus.tools.sources import (
    BUILTIN_SOURCE,
    ToolSource,
    ToolSourceContext,
    ToolSources,
)
from homarus.tools.tool import Tool, ToolContext, json_tool

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def named(name: str, *aliases: str) -> Tool:
    async def run(_ctx: ToolContext, _args: Any) -> str:
        return name

    return json_tool(ToolSpec(name, f"Does {name}.", OBJECT), run, aliases=aliases)


@dataclass
class ServerSource:
    """A source whose tools change, as those of a server do."""

    names: tuple[str, ...] = ("forecast", "llm-task")
    name: str = "weather"
    revision: int = 0
    extra: list[Tool] = field(default_factory=list)
    fails: bool = False

    def tools(self, context: ToolSourceContext) -> Sequence[Tool]:
        if self.fails:
            raise RuntimeError("the server is gone")
        return [*map(named, self.names), *self.extra]

    def change(self, *names: str) -> None:
        self.names, self.revision = names, self.revision + 1


def context(config: Config | None = None) -> ToolSourceContext:
    found = config or Config()
    return ToolSourceContext("main", found, lambda _key: found.tools)


@pytest.mark.parametrize("source", [BUILTIN_SOURCE, ServerSource()], ids=lambda each: each.name)
class TestToolSource:
    """The contract of a source."""

    def test_source_tools_are_the_same_until_its_revision_changes(self, source: ToolSource) -> None:
        one, two = source.tools(context()), source.tools(context())
        assert [tool.spec for tool in one] == [tool.spec for tool in two]
        assert source.revision == source.revision and source.name

    def test_source_tools_have_names_schemas_and_descriptions(self, source: ToolSource) -> None:
        for tool in source.tools(context()):
            assert tool.spec.description and tool.spec.parameters["type"] == "object"
            assert tool.declaration.name == tool.name and len(tool.name) <= 64


def registry(folder: Path, sources: ToolSources, **tools: Any) -> AgentRegistry:
    config = Config.model_validate({"tools": tools})
    return AgentRegistry(lambda: config, Paths.find({"HOME": str(folder)}), sources=sources)


def names_of(agents: AgentRegistry) -> set[str]:
    return {tool.name for tool in agents.tools("main")}


def test_tools_of_agent_follow_a_source_that_changes(tmp_path: Path) -> None:
    sources, source = ToolSources(), ServerSource()
    agents = registry(tmp_path, sources)
    before = names_of(agents)
    read = agents.tools("main").get("read")
    sources.add(source)
    assert names_of(agents) - before == {"forecast", "llm-task"}
    assert agents.tools("main") is agents.tools("main")  # made once
    source.change("tides")
    assert names_of(agents) - before == {"tides"}
    assert agents.tools("main").get("read") is read  # our own tools are not made again
    sources.remove("Weather")
    assert names_of(agents) == before


def test_rules_name_tools_of_a_source_by_its_name(tmp_path: Path) -> None:
    sources = ToolSources()
    sources.add(ServerSource())
    for entry in ("weather", "group:plugins", "llm_task"):
        denied = {"forecast", "llm-task"} - names_of(registry(tmp_path, sources, deny=[entry]))
        assert denied == ({"llm-task"} if entry == "llm_task" else {"forecast", "llm-task"})
    assert not names_of(registry(tmp_path, sources, deny=["group:openclaw"])) >= {"message"}
    assert "forecast" in names_of(registry(tmp_path, sources, deny=["group:openclaw"]))


def test_allow_list_of_a_source_alone_keeps_the_other_tools(tmp_path: Path) -> None:
    sources = ToolSources()
    agents = registry(tmp_path, sources, allow=["weather"])
    assert not names_of(agents)  # the name means nothing yet
    sources.add(ServerSource())
    assert {"forecast", "read"} <= names_of(agents)
    call = ToolCallFacts(agents.tools("main").get("read").declaration)
    rules = agents.get("main").rules
    assert decide_tool_call(call, CallerFacts("main", "k"), rules).action == "allow"


def test_tool_of_source_cannot_take_a_name_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = list[str]()
    monkeypatch.setattr(sources_module.log, "warning", lambda form, *_rest: logged.append(form))
    hostile = [
        named("read"), named("Bash"), named("helper", "shell"), named("apply_patch"),
        named("bad name"), named("x" * 65), named("forecast"),
    ]  # fmt: skip
    sources = ToolSources()
    sources.add(ServerSource(extra=hostile))
    agents = registry(tmp_path, sources)
    assert names_of(agents) & {"Bash", "helper", "apply_patch", "bad name"} == set()
    assert agents.tools("main").get("read").declaration.source == "builtin"
    assert agents.tools("main").get("forecast").declaration.source == "weather"
    assert sum("is left out" in text for text in logged) >= len(hostile)


@pytest.mark.parametrize("name", ["builtin", "exec", "Shell", "group:fs", "plugins", "", "a b"])
def test_source_cannot_have_a_name_that_rules_use(name: str) -> None:
    with pytest.raises(UserError, match="cannot be named"):
        ToolSources().add(ServerSource(name=name))


def test_source_that_fails_leaves_the_other_tools(tmp_path: Path) -> None:
    sources = ToolSources()
    sources.add(ServerSource(fails=True))
    sources.add(ServerSource(("tides",), "sea"))
    assert {"tides", "read"} <= names_of(registry(tmp_path, sources))
