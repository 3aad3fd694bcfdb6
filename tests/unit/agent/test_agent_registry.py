"""The agent registry: effective tool settings and the tools of an agent."""

from pathlib import Path
from typing import Any

from homarus.agent.agent import effective_tools
from homarus.agent.agent_registry import AgentRegistry, has_memory
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.config.tools_schema import ToolsConfig


def test_effective_tools_unset_key_uses_common_section() -> None:
    common = ToolsConfig.model_validate({"exec": {"timeoutSec": 5}})
    own = ToolsConfig.model_validate({"deny": ["ls"]})
    assert effective_tools("exec", own, common).exec.timeout_sec == 5
    assert effective_tools("exec", None, common).exec.timeout_sec == 5
    own = ToolsConfig.model_validate({"exec": {"timeoutSec": 7}})
    assert effective_tools("exec", own, common).exec.timeout_sec == 7


def test_agent_tools_without_chats_omit_message_tool(tmp_path: Path) -> None:
    paths = Paths.find({"HOME": str(tmp_path)})
    quiet = {"id": "quiet", "tools": {"deny": ["message"]}}
    config = Config.model_validate({"agents": {"list": [{"id": "main"}, quiet]}})
    without_chats = AgentRegistry(lambda: config, paths)
    connected = AgentRegistry(lambda: config, paths, reaches=lambda: True)
    assert "message" not in without_chats.tools("main")
    assert "message" not in connected.tools("quiet") and "message" in connected.tools("main")


MEMORY_TOOLS = ("memory_search", "memory_get", "memory_write")


def test_agent_tools_memory_disabled_or_denied_omits_memory_tools(tmp_path: Path) -> None:
    paths = Paths.find({"HOME": str(tmp_path)})
    agents: list[dict[str, Any]] = [
        {"id": "main"},
        {"id": "off", "memorySearch": {"enabled": False}},
        {"id": "denied", "tools": {"deny": ["group:memory"]}},
        {"id": "reads", "tools": {"deny": ["memory_write"]}},
    ]
    config = Config.model_validate({"agents": {"list": agents}})

    def fail_if_opened(agent: str) -> Any:
        raise AssertionError(agent)

    registry = AgentRegistry(lambda: config, paths, memory=fail_if_opened)
    has = {
        each["id"]: [name in registry.tools(each["id"]) for name in MEMORY_TOOLS] for each in agents
    }
    assert has == {
        "main": [True] * 3, "off": [False] * 3, "denied": [False] * 3, "reads": [True, True, False]
    }  # fmt: skip
    assert "memory_search" not in AgentRegistry(lambda: config, paths).tools("main")


def test_has_memory_own_setting_overrides_default(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "agents": {
                "defaults": {"memorySearch": {"enabled": False}},
                "list": [{"id": "main"}, {"id": "on", "memorySearch": {"enabled": True}}],
            }
        }
    )
    assert not has_memory(config, "main") and has_memory(config, "on")


def test_agent_tools_omit_image_without_a_model_that_sees(tmp_path: Path) -> None:
    paths = Paths.find({"HOME": str(tmp_path)})
    agents: list[dict[str, Any]] = [
        {"id": "blind", "model": "p/blind"},
        {"id": "sees", "model": {"primary": "p/blind", "fallbacks": ["p/eye"]}},
        {"id": "default"},
        {"id": "denied", "model": "p/eye", "tools": {"deny": ["image"]}},
    ]

    def offered(**more: Any) -> list[str]:
        config = Config.model_validate({"agents": {"list": agents}} | more)
        registry = AgentRegistry(
            lambda: config, paths, find_image_model=lambda ref: ref if ref == "p/eye" else ""
        )
        return [each["id"] for each in agents if "image" in registry.tools(each["id"])]

    assert offered() == ["sees", "default"]
    chosen = {"defaults": {"imageModel": {"primary": "q/eye"}}, "list": agents}
    assert offered(agents=chosen) == ["blind", "sees", "default"]
    media = {"media": {"models": [{"provider": "q", "model": "m", "capabilities": ["image"]}]}}
    assert offered(tools=media) == ["blind", "sees", "default"]
