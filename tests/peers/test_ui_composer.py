"""Below the field and the messages: model, thinking, context, copy, export, branch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from homarus.testing.model_server import ModelServer, ReportedUsage, Say
from tests.e2e.gateway import change
from tests.peers.gateway import (
    Running,
    call,
    inherited_environment,
    new_home,
    running_gateway,
)
from tests.peers.test_ui_chat import new_conversation, saved, write
from tests.peers.ui import UiPage

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

_WINDOW = 40_000
_COPIED = "navigator.clipboard.readText()"


@pytest.fixture(scope="module")
def ui_gateway(
    ui_tools: None, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Run a gateway whose provider has two models, of which one reasons."""
    home = new_home(tmp_path_factory.mktemp("ui"), inherited_environment(), model)
    names = {"mock-1": "Mock", "mock-2": "Second"}
    models = [
        {"id": id_, "name": name, "contextWindow": _WINDOW, "maxTokens": 4_000, "reasoning": True}
        for id_, name in names.items()
    ]
    provider = {"baseUrl": model.url, "apiKey": "sk-test", "models": models}
    change(home, models={"providers": {"mock": provider}})
    with running_gateway(home, ui=True) as gateway:
        yield gateway


def row_of(ui: UiPage, gateway: Running) -> dict[str, Any]:
    """Return the gateway's row of the conversation that is shown."""
    (key,) = parse_qs(urlsplit(ui.tab.url).query)["session"]
    rows = call(gateway, "sessions.list")["sessions"]
    return next(dict(row) for row in rows if row["key"] == key)


def ask(ui: UiPage, model: ModelServer, text: str, reply: str) -> Any:
    """Have a question answered; return the request that the model got."""
    model.script([Say(reply), ReportedUsage(10_000, 20)])
    write(ui, text)
    expect(saved(ui).last).to_contain_text(reply)
    return model.requests[-1].body


def test_model_of_a_conversation_is_chosen_and_left_to_the_agent(
    ui: UiPage, model: ModelServer, ui_gateway: Running
) -> None:
    new_conversation(ui)
    assert ask(ui, model, "First", "One.")["model"] == "mock-1"
    picker = ui.tab.locator(".composer-picker [title=Model]")
    expect(picker).to_have_text("mock-1")
    picker.click()
    ui.tab.get_by_role("menuitemradio", name="Second · mock").click()
    expect(picker).to_have_text("mock-2")
    assert ask(ui, model, "Second", "Two.")["model"] == "mock-2"
    picker.click()
    expect(ui.tab.get_by_role("menuitemradio", name="Second · mock")).to_be_checked()
    expect(ui.tab.get_by_role("menuitemradio", name="Mock · mock")).not_to_be_checked()
    ui.tab.get_by_role("menuitem", name="As the agent").click()
    expect(picker).to_have_text("mock-1")
    assert ask(ui, model, "Third", "Three.")["model"] == "mock-1"


def test_thinking_of_a_conversation_is_chosen(
    ui: UiPage, model: ModelServer, ui_gateway: Running
) -> None:
    new_conversation(ui)
    ask(ui, model, "First", "One.")
    picker = ui.tab.locator(".composer-picker [title=Thinking]")
    picker.click()
    ui.tab.get_by_role("menuitemradio", name="high").click()
    expect(picker).to_have_text("thinking: high")
    assert row_of(ui, ui_gateway)["thinkingLevel"] == "high"
    assert ask(ui, model, "Second", "Two.")["reasoning_effort"] == "high"
    ui.tab.reload()
    expect(picker).to_have_text("thinking: high")


def test_context_meter_opens_the_prompt_report(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    ask(ui, model, "First", "One.")
    meter = ui.tab.get_by_role("meter", name="Context used")
    expect(meter).to_have_attribute("aria-valuenow", "25")
    ui.tab.get_by_role("button", name="25 % context").click()
    report = ui.tab.get_by_role("dialog", name="What is in the context")
    expect(report).to_contain_text("of 40k tokens of the context are used")
    for title, name in {"Files of the workspace": "AGENTS.md", "Tools": "memory_search"}.items():
        part = report.locator("section").filter(has=ui.tab.get_by_role("heading", name=title))
        expect(part.get_by_role("row").filter(has_text=name)).to_have_count(1)
    ui.check_accessibility()
    ui.tab.keyboard.press("Escape")
    expect(report).to_have_count(0)


def test_question_answer_and_code_are_copied(ui: UiPage, model: ModelServer) -> None:
    ui.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    new_conversation(ui)
    reply = "Some **code**:\n\n```python\nprint(1)\n```"
    model.script([Say(reply)])
    write(ui, "Write *code*")
    expect(saved(ui).locator("pre")).to_contain_text("print(1)")
    footer = saved(ui).locator("footer")
    footer.get_by_role("button", name="Copy").click()
    expect(footer.get_by_role("button", name="Copied")).to_be_visible()
    assert ui.tab.evaluate(_COPIED) == reply
    question = ui.tab.get_by_label("You wrote")
    question.get_by_role("button", name="Copy").click()
    expect(question.get_by_role("button", name="Copied")).to_be_visible()
    assert ui.tab.evaluate(_COPIED) == "Write *code*"
    code = saved(ui).get_by_role("figure")
    code.get_by_role("button", name="Copy").click()
    expect(code.get_by_role("button", name="Copied")).to_be_visible()
    assert ui.tab.evaluate(_COPIED).strip() == "print(1)"


def test_conversation_is_exported_as_json(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    ask(ui, model, "Export this", "With a *star.")
    ui.tab.get_by_role("button", name="Conversation", exact=True).click()
    with ui.tab.expect_download() as download:
        ui.tab.get_by_role("menuitem", name="Export as JSON").click()
    assert download.value.suggested_filename.endswith(".json")
    exported = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert [each["role"] for each in exported["messages"]] == ["user", "assistant"]
    assert "With a *star." in json.dumps(exported["messages"][1])


def test_branch_from_a_question_offers_it_to_be_edited(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    ask(ui, model, "First", "One.")
    ask(ui, model, "Secnod", "Two.")
    before = ui.tab.url
    asked = ui.tab.get_by_label("You wrote").last
    asked.get_by_role("button", name="Edit in a branch").click()
    expect(ui.tab).not_to_have_url(before)
    field = ui.tab.get_by_label("Message", exact=True)
    expect(field).to_have_value("Secnod")
    expect(saved(ui)).to_have_count(1)
    request = ask(ui, model, "Second", "Better.")
    assert "Secnod" not in json.dumps(request) and "First" in json.dumps(request)
    ui.tab.goto(before)
    expect(saved(ui)).to_have_count(2)
    expect(saved(ui).last).to_contain_text("Two.")
