"""A question of a gateway's run at the terminal of `homarus chat`, answered there and elsewhere."""

import pytest

from tests.e2e.gateway import Gateway
from tests.e2e.program import Home, Open

pytestmark = pytest.mark.slow

COMMAND = 'MOCK:tool:exec:{"command":"touch %s"}§'


def test_chat_through_gateway_asks_and_shows_answers_of_others(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    gateway = Gateway(home).wait_ready()
    try:
        chat = open_chat()
        chat.wait_for("> ")
        chat.type(COMMAND % "here.txt")
        chat.wait_for("Run this command?")
        chat.wait_for("/N]")
        chat.type("y")
        chat.wait_for("Hello from the mock model.")
        assert (home.workspace / "here.txt").exists()
        chat.type(COMMAND % "there.txt")
        chat.wait_for("/N]")
        (waiting,) = home.run("approvals", "list", "--json").json["approvals"]
        assert "touch there.txt" in waiting["request"]["command"]
        assert home.run("approvals", "deny", waiting["id"][:8]).status == 0
        chat.wait_for("denied by cli")
        chat.wait_for("Hello from the mock model.")
        assert not (home.workspace / "there.txt").exists()
    finally:
        gateway.process.terminate()
        gateway.process.wait()
