"""What an agent's own tools say, and what holds for every agent."""

from homarus.agent.agent import who_says
from homarus.config.schema import Tools


def test_what_an_agent_does_not_say_of_its_tools_holds_as_for_all() -> None:
    common = Tools.model_validate({"exec": {"timeoutSec": 5}})
    own = Tools.model_validate({"deny": ["ls"]})
    assert who_says("exec", own, common).exec.timeout_sec == 5
    assert who_says("exec", None, common).exec.timeout_sec == 5
    own = Tools.model_validate({"exec": {"timeoutSec": 7}})
    assert who_says("exec", own, common).exec.timeout_sec == 7
