"""The approvals of the control UI: pending ones, the decision, and the history."""

import pytest
from playwright.sync_api import Browser, expect

from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall
from tests.peers.gateway import Running
from tests.peers.test_ui_chat import new_conversation, saved, write
from tests.peers.ui import UiPage, new_page

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]


def request_command(ui: UiPage, model: ModelServer, command: str) -> None:
    model.script([CallTools(ScriptedCall("exec", {"command": command}))], [Say("It is done.")])
    write(ui, "Run it")


def test_approval_in_the_chat_survives_a_reload_and_runs_the_command(
    ui: UiPage, model: ModelServer, ui_gateway: Running
) -> None:
    new_conversation(ui)
    request_command(ui, model, "touch made.txt '<img src=x onerror=alert(1)>'")
    card = ui.tab.locator("[data-pending]")
    expect(card).to_contain_text("touch made.txt '<img src=x onerror=alert(1)>'")
    expect(card.locator("img")).to_have_count(0)
    assert not (ui_gateway.home.workspace / "made.txt").exists()
    ui.tab.reload()
    expect(card).to_contain_text("touch made.txt")
    card.get_by_role("button", name="Allow once").click()
    expect(saved(ui)).to_contain_text("It is done.")
    assert (ui_gateway.home.workspace / "made.txt").exists()
    expect(card).to_have_count(0)


def test_approval_is_shown_on_other_pages_and_in_other_browsers(
    ui: UiPage, model: ModelServer, ui_gateway: Running, ui_browser: Browser
) -> None:
    new_conversation(ui)
    request_command(ui, model, "touch never.txt")
    expect(ui.tab.locator("[data-pending]")).to_be_visible()
    other = new_page(ui_browser).open(ui_gateway, "chat?session=agent:main:elsewhere")
    expect(other.tab.get_by_text("Something waits for you")).to_be_visible()
    other.tab.get_by_role("button", name="Review").click()
    card = other.tab.locator("[data-pending]")
    expect(card).to_contain_text("touch never.txt")
    expect(card).to_contain_text("Why asked")
    card.get_by_role("button", name="Deny").click()
    expect(card).to_have_count(0)
    expect(ui.tab.locator("[data-pending]")).to_have_count(0)
    expect(other.tab.get_by_label("Earlier approvals")).to_contain_text("touch never.txt")
    newest = other.tab.get_by_label("Earlier approvals").locator("tbody tr").first
    expect(newest).to_contain_text("denied")
    expect(saved(ui)).to_contain_text("It is done.")
    assert not (ui_gateway.home.workspace / "never.txt").exists()
    assert other.problems == []
    other.tab.context.close()


def test_question_of_the_agent_is_answered(ui: UiPage, model: ModelServer) -> None:
    asked = {"question": "Which <b>colour</b>?", "choices": ["Red", "<img src=x onerror=alert(1)>"]}
    new_conversation(ui)
    model.script([CallTools(ScriptedCall("ask_user", asked))], [Say("Red it is.")])
    write(ui, "Paint it")
    card = ui.tab.locator("[data-pending]")
    expect(card).to_contain_text("Which <b>colour</b>?")
    expect(card.locator("img, b")).to_have_count(0)
    card.get_by_role("button", name="Red").click()
    expect(saved(ui)).to_contain_text("Red it is.")
