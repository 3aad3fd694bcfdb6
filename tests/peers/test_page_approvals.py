"""The page asks about a tool call: a card that survives a reload, and shows text alone."""

import pytest

from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall
from tests.peers.browser import Browser
from tests.peers.chat_page import ENDED, count, sign_in
from tests.peers.gateway import Running

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs the browser


def test_page_card_is_restored_on_reload_and_allows_the_command(
    browser: Browser, model: ModelServer, gateway: Running
) -> None:
    command = "touch page.txt '<img src=x onerror=alert(1)>'"
    model.script([CallTools(ScriptedCall("exec", {"command": command}))], [Say("It is made.")])
    page = sign_in(browser, gateway)
    page.type("#text", "Make the file")
    page.click("#send")
    shown = page.wait_for_text("#approvals .approval", "touch page.txt")
    assert "<img src=x" in shown and count(page, "#approvals img") == 0
    assert not (gateway.home.workspace / "page.txt").exists()
    page.reload()
    page.wait_for_text("#approvals .approval", "touch page.txt")
    page.wait_until("!document.querySelector('#approvals .main').disabled")
    page.click("#approvals .main")
    assert page.wait_for_text(ENDED, "It is made.")
    assert (gateway.home.workspace / "page.txt").exists()
    page.wait_until("!document.querySelector('#approvals .approval')")
    assert page.problems() == []


def test_page_question_is_restored_on_reload_and_answered(
    browser: Browser, model: ModelServer, gateway: Running
) -> None:
    asked = {"question": "Which <b>colour</b>?", "choices": ["Red", "<img src=x onerror=alert(1)>"]}
    model.script([CallTools(ScriptedCall("ask_user", asked))], [Say("Red it is.")])
    page = sign_in(browser, gateway)
    page.type("#text", "Paint it")
    page.click("#send")
    shown = page.wait_for_text("#approvals .approval", "Which <b>colour</b>?")
    assert "<img src=x" in shown and count(page, "#approvals img, #approvals b") == 0
    page.reload()
    page.wait_for_text("#approvals .approval", "Which <b>colour</b>?")
    page.wait_until("!document.querySelector('#approvals button').disabled")
    page.click("#approvals button")
    assert page.wait_for_text(ENDED, "Red it is.")
    page.wait_until("!document.querySelector('#approvals .approval')")
    assert "The person answered: Red" in str(model.requests[-1].body)
    assert page.problems() == []
