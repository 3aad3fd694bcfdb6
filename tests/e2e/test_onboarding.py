"""The onboarding wizard: at a pseudo-terminal in an empty home, and through a gateway."""

import json
from typing import Any

import pytest

from homarus.core.errors import ProtocolError
from homarus.gateway.client import GatewayClient
from tests.e2e.gateway import Gateway
from tests.e2e.program import Home, Terminal


def config_of(home: Home) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    return config


def answer(terminal: Terminal, question: str, prompt: str, text: str) -> str:
    """Wait for a question and its prompt, and type the answer; return what was shown."""
    shown = terminal.wait_for(question) + terminal.wait_for(prompt)
    terminal.type(text)
    return shown


def choose_service(terminal: Terminal, url: str) -> None:
    shown = answer(terminal, "Which model should answer?", "Number", "custom")
    assert "Anthropic" in shown and "Ollama" in shown and "Decide later" in shown
    answer(terminal, "The base URL", "/v1):", url)
    answer(terminal, "Which API", "Number [1]:", "\x1b[B")  # the arrow key chooses the first
    answer(terminal, "A name", "[custom]:", "mock")
    answer(terminal, "The API key of mock", "Not shown:", "sk-secret-key")
    answer(terminal, "Which model?", "Number [1]:", "")
    shown = terminal.wait_for("mock/mock-1 answers")
    assert "Sending one short question to mock/mock-1" in shown
    terminal.wait_for("Hello from the mock model.")


def test_bare_homarus_in_an_empty_home_sets_up_an_assistant(home: Home, model_url: str) -> None:
    terminal = Terminal(home)
    try:
        terminal.wait_for("Welcome to Homarus")
        choose_service(terminal, model_url)
        answer(terminal, "What is the agent called?", "[Homarus]:", "Nyx")
        terminal.wait_for("In which folder are its files?")
        state = (home.state / "wizard.json").read_text(encoding="utf-8")
        assert "Nyx" in state and "sk-secret" not in state
        assert (home.state / "wizard.json").stat().st_mode & 0o777 == 0o600
        terminal.wait_for("workspace]:")
        terminal.press_ctrl_c()
        terminal.wait_for("`homarus onboard` continues.")
        assert terminal.end() == 130
        assert config_of(home)["agents"]["defaults"]["model"]["primary"] == "mock/mock-1"
        assert "sk-secret-key" not in terminal.screen
    finally:
        terminal.close()

    terminal = Terminal(home)  # there is a config now, and still something to continue
    try:
        terminal.wait_for("Continue the onboarding")
        terminal.wait_for("[Y/n]:")
        terminal.press_ctrl_c()
        assert terminal.end() == 130
    finally:
        terminal.close()

    terminal = Terminal(home, "onboard", "--skip-daemon")
    try:
        answer(terminal, "Continue the onboarding", "[Y/n]:", "")
        shown = answer(terminal, "In which folder", "workspace]:", "")
        assert "called" not in shown
        answer(terminal, "Which chat service", "Number [1]:", "1")
        terminal.wait_for("Start the gateway: homarus gateway run")
        terminal.wait_for("Then open http://127.0.0.1:18789/#token=")
        assert terminal.end() == 0
    finally:
        terminal.close()

    config = config_of(home)
    assert config["gateway"]["auth"]["token"] in terminal.screen
    assert config["agents"]["list"] == [{"id": "main", "identity": {"name": "Nyx"}}]
    assert config["wizard"]["lastRunCommand"] == "onboard"
    assert config["wizard"]["lastRunMode"] == "local"
    assert (home.workspace / "SOUL.md").exists()
    assert not (home.state / "wizard.json").exists()
    assert "sk-secret" not in json.dumps(config)
    told = home.run("agent", "--message", "MOCK:short", "--json")
    assert told.status == 0, told.err
    bare = home.run()
    assert bare.status == 2 and "onboard" in bare.err and "Welcome" not in bare.err


async def walk(client: GatewayClient, answers: dict[str, Any]) -> list[Any]:
    """Run a wizard to its end; return its states, each question answered by the step's name."""
    state: Any = await client.call("wizard.start", {})
    session, states = state["sessionId"], [state]
    with pytest.raises(ProtocolError, match="wizard already running"):
        await client.call("wizard.start", {})
    while not state["done"]:
        step = state["step"]
        name = step["id"].rpartition("-")[0]
        value = {"value": answers.get(name, step.get("initialValue"))}
        reply = {
            "stepId": step["id"],
            **(value if step["type"] not in {"note", "progress"} else {}),
        }
        state = await client.call("wizard.next", {"sessionId": session, "answer": reply})
        states.append(state)
    assert await client.call("wizard.status", {"sessionId": session}) == {"status": "done"}
    return states


async def test_client_of_the_gateway_walks_through_the_wizard(gateway: Gateway) -> None:
    answers = {
        "wizard.existing": "change",
        "model.provider": "keep",
        "workspace.name": "Nyx",
        "channel.name": "none",
    }
    async with gateway.connect() as client:
        states = await walk(client, answers)
        outside = await client.call("wizard.start", {"workspace": "/tmp/elsewhere"})
        session = {"sessionId": outside["sessionId"]}
        assert await client.call("wizard.cancel", session) == {"status": "cancelled"}
        with pytest.raises(ProtocolError, match="wizard not found"):
            await client.call("wizard.next", session)
    steps = [state["step"] for state in states if "step" in state]
    assert {step["type"] for step in steps} == {"note", "select", "progress", "text"}
    assert all(step["executor"] == "gateway" for step in steps)
    probed = next(step for step in steps if step.get("title") == "mock/mock-1 answers")
    assert probed["message"] == "Hello from the mock model."
    assert states[-1] == {"done": True, "status": "done"}
    config = config_of(gateway.home)
    assert config["agents"]["list"][0]["identity"] == {"name": "Nyx"}
    assert config["wizard"]["lastRunCommand"] == "onboard"
