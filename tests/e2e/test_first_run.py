"""The first conversation with a new agent, at the terminal."""

import json

from tests.e2e.program import Home, Open


def test_bootstrap_ends_when_its_file_is_deleted(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("> ")
    assert (home.workspace / "BOOTSTRAP.md").exists()
    told = json.dumps({"path": "IDENTITY.md", "content": "- Name: Nyx"})
    chat.type(f"MOCK:tool:write:{told}§")
    chat.wait_for("Hello from the mock model.")
    chat.type('MOCK:tool:exec:{"command":"rm BOOTSTRAP.md"}§')
    chat.wait_for("[y/a/N]")
    chat.type("y")
    chat.wait_for("Hello from the mock model.")
    chat.type("/quit")
    assert chat.end() == 0
    assert not (home.workspace / "BOOTSTRAP.md").exists()
    shown = home.run("prompt").out
    assert shown.startswith("You are Nyx,") and "BOOTSTRAP" not in shown
    assert "onboardingCompletedAt" in (
        home.workspace / ".openclaw" / "workspace-state.json"
    ).read_text(encoding="utf-8")
    assert home.run("setup", "--json").json["made"] == []
    figures = home.run("prompt", "--report", "--json").json["report"]
    # Which bundled skills are listed depends on the machine.
    chars = figures["systemPrompt"]["chars"] - figures["skills"]["promptChars"]
    assert figures["provider"] == "mock" and chars < 6_500
