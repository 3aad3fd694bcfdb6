"""What an agent's own tools say, and what holds for every agent."""

from pathlib import Path

from homarus.agent.agent import who_says
from homarus.agent.cast import Cast
from homarus.config.paths import Paths
from homarus.config.schema import Config, Tools


def test_what_an_agent_does_not_say_of_its_tools_holds_as_for_all() -> None:
    common = Tools.model_validate({"exec": {"timeoutSec": 5}})
    own = Tools.model_validate({"deny": ["ls"]})
    assert who_says("exec", own, common).exec.timeout_sec == 5
    assert who_says("exec", None, common).exec.timeout_sec == 5
    own = Tools.model_validate({"exec": {"timeoutSec": 7}})
    assert who_says("exec", own, common).exec.timeout_sec == 7


def test_who_can_reach_no_chat_has_no_tool_to_write_with(tmp_path: Path) -> None:
    paths = Paths.find({"HOME": str(tmp_path)})
    quiet = {"id": "quiet", "tools": {"deny": ["message"]}}
    config = Config.model_validate({"agents": {"list": [{"id": "main"}, quiet]}})
    alone = Cast(lambda: config, paths)
    connected = Cast(lambda: config, paths, reaches=lambda: True)
    assert "message" not in alone.tools("main")
    assert "message" not in connected.tools("quiet") and "message" in connected.tools("main")
