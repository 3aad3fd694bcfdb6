"""Small things of the control UI: another try, right-to-left text, a wrong clock, the notice."""

import pytest
from playwright.sync_api import Browser, expect

from homarus.testing.model_server import Fail, ModelServer, Say
from tests.peers.gateway import Running
from tests.peers.test_ui_approvals import request_command
from tests.peers.test_ui_chat import new_conversation, saved, write
from tests.peers.ui import NARROW, UiPage, new_page

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

# Whether the middle of each of the header's buttons can be clicked.
REACHABLE = """[...document.querySelectorAll('.page-head button')]
  .filter((one) => one.checkVisibility())
  .map((one) => {
    const box = one.getBoundingClientRect();
    return one.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2));
  })"""


def test_failed_answer_is_asked_for_again(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    model.script([Fail(401, "the key is wrong")])
    write(ui, "Are you there?")
    again = ui.tab.get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    ui.tab.reload()
    model.script([Say("Now I am.")])
    again.click()
    expect(saved(ui).last).to_contain_text("Now I am.")
    expect(again).to_have_count(0)
    questions = ui.tab.locator("article.chat-question")
    expect(questions).to_have_count(2)
    expect(questions.last).to_contain_text("Are you there?")


def test_new_conversation_names_the_model(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    picker = ui.tab.locator(".composer-picker").first
    expect(picker).not_to_have_text("model")
    named = picker.inner_text()
    model.script([Say("Hello.")])
    write(ui, "Hello")
    expect(saved(ui)).to_contain_text("Hello.")
    expect(picker).to_have_text(named)


def test_right_to_left_text_stands_at_its_side(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    model.script([Say("\u0645\u0631\u062d\u0628\u0627\n\n- \u0645\u0631\n\nHello")])
    write(ui, "\u0645\u0631\u062d\u0628\u0627")
    expect(saved(ui).locator("p").first).to_have_css("direction", "rtl")
    expect(saved(ui).locator("ul")).to_have_css("direction", "rtl")
    expect(saved(ui).locator("p").last).to_have_css("direction", "ltr")
    expect(ui.tab.locator(".chat-question p")).to_have_css("direction", "rtl")


def test_approval_is_shown_where_the_clock_is_wrong(
    ui: UiPage, model: ModelServer, ui_gateway: Running, ui_browser: Browser
) -> None:
    new_conversation(ui)
    request_command(ui, model, "touch late.txt")
    expect(ui.tab.locator("[data-pending]")).to_be_visible()
    other = new_page(ui_browser)
    other.tab.add_init_script("const now = Date.now; Date.now = () => now() + 86_400_000;")
    other.open(ui_gateway, "approvals")
    card = other.tab.locator("[data-pending]")
    expect(card).to_contain_text("touch late.txt")
    other.tab.wait_for_function(
        "at => Date.now() > at + 2_500", arg=other.tab.evaluate("Date.now()")
    )
    card.get_by_role("button", name="Deny").click()
    expect(ui.tab.locator("[data-pending]")).to_have_count(0)
    assert other.problems == []
    other.tab.context.close()


def test_notice_on_a_phone_leaves_the_header_and_stays_closed(
    ui: UiPage, model: ModelServer, ui_gateway: Running, ui_browser: Browser
) -> None:
    new_conversation(ui)
    request_command(ui, model, "touch phone.txt")
    expect(ui.tab.locator("[data-pending]")).to_be_visible()
    phone = new_page(ui_browser, has_touch=True, is_mobile=True)
    phone.tab.set_viewport_size(NARROW)
    phone.open(ui_gateway, "chat?session=agent:main:elsewhere")
    notice = phone.tab.get_by_text("Something waits for you")
    expect(notice).to_be_visible()
    reachable = phone.tab.evaluate(REACHABLE)
    assert reachable and all(reachable)
    phone.check_accessibility()
    phone.tab.get_by_role("button", name="Close the notice").tap()
    expect(notice).to_have_count(0)
    phone.tab.reload()
    phone.wait_for_connection()
    phone.tab.get_by_role("link", name="Approvals").first.tap()
    expect(phone.tab.locator("[data-pending]")).to_contain_text("touch phone.txt")  # it is loaded
    phone.tab.go_back()
    expect(phone.tab.get_by_label("Message", exact=True)).to_be_visible()
    expect(notice).to_have_count(0)
    ui.tab.locator("[data-pending]").get_by_role("button", name="Deny").click()
    expect(saved(ui)).to_contain_text("It is done.")
    assert phone.problems == []
    phone.tab.context.close()
