"""Voice notes and notifications of the control UI, with the microphone of Chromium's own tests."""

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, expect

from homarus.testing.model_server import CallTools, ModelServer, ScriptedCall
from tests.peers.gateway import Running, call
from tests.peers.test_ui_chat import new_conversation, saved, write
from tests.peers.ui import CHROMIUM, UiPage, new_page

pytestmark = pytest.mark.peers

# A microphone that beeps, and a person who allows its use.
MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
# The permission is asked for here, because no window asks; the focus is what the test says.
NOTIFICATIONS = """
window.shown = [];
window.isLooking = true;
document.hasFocus = () => window.isLooking;
window.Notification = class extends window.Notification {
  static permission = 'default';
  static requestPermission() { return Promise.resolve('granted'); }
  constructor(title, options) { super(title, options); window.shown.push(this); }
};
"""


@pytest.fixture
def recorder(ui_browser: Browser, ui_gateway: Running) -> Iterator[UiPage]:
    """Open the UI in a browser with a microphone."""
    args = ["--no-sandbox", *MICROPHONE]
    browser = ui_browser.browser_type.launch(executable_path=CHROMIUM, args=args)
    page = new_page(browser, permissions=["microphone"]).open(ui_gateway)
    yield page
    assert page.problems == []
    browser.close()


def test_voice_note_is_recorded_attached_and_sent(
    recorder: UiPage, ui_gateway: Running, model: ModelServer
) -> None:
    tab = recorder.tab
    new_conversation(recorder)
    tab.get_by_role("button", name="Record a voice note").click()
    stop = tab.get_by_role("button", name="Stop recording")
    expect(stop).to_contain_text("0:01")
    recorder.check_accessibility()
    stop.click()
    attached = tab.get_by_label("Attached files")
    expect(attached).to_contain_text("voice-note.")
    expect(tab.get_by_role("button", name="Record a voice note")).to_be_visible()
    write(recorder, "What do you hear? MOCK:say:A beep.§")
    expect(saved(recorder)).to_contain_text("A beep.")
    expect(tab.locator("article.chat-question")).to_contain_text("voice-note")
    expect(attached).to_have_count(0)
    [stored] = (ui_gateway.home.state / "media" / "inbound").iterdir()
    assert stored.stat().st_size > 1_000
    # A file that is not known as sound would not be transcribed.
    assert re.search(r"\(audio/\w+, voice-note\.\w+\)", str(model.requests[-1].body))


def test_microphone_that_is_refused_is_reported(ui: UiPage) -> None:
    new_conversation(ui)
    ui.tab.get_by_role("button", name="Record a voice note").click()
    expect(ui.tab.get_by_text("The browser gives no access to a microphone.")).to_be_visible()
    expect(ui.tab.get_by_role("button", name="Stop recording")).to_have_count(0)


def request_command(gateway: Running, model: ModelServer, command: str) -> None:
    """Have the agent of another conversation ask for an approval."""
    model.script([CallTools(ScriptedCall("exec", {"command": command}))])
    key = uuid4().hex
    session = f"agent:main:{key[:8]}"
    call(gateway, "chat.send", sessionKey=session, message="Run it", idempotencyKey=key)


def test_approval_is_a_notification_for_a_person_who_looks_away(
    ui_browser: Browser, ui_gateway: Running, model: ModelServer
) -> None:
    page = new_page(ui_browser, permissions=["notifications"])
    page.tab.add_init_script(NOTIFICATIONS)
    page.open(ui_gateway, "approvals")
    tab = page.tab
    tab.get_by_role("button", name="Notify me").click()
    expect(tab.get_by_role("button", name="Notify me")).to_have_count(0)
    request_command(ui_gateway, model, "echo looking")
    expect(tab.locator("[data-pending]")).to_have_count(1)
    assert tab.evaluate("shown.length") == 0  # the person sees it on the page
    tab.keyboard.press("Alt+1")
    tab.evaluate("isLooking = false")
    request_command(ui_gateway, model, "echo sk-secret-0123456789")
    tab.wait_for_function("() => shown.length === 1")
    text = tab.evaluate("shown[0].title + ': ' + shown[0].body")
    assert text == "Homarus: A tool call needs your approval."  # a lock screen shows no command
    tab.evaluate("shown[0].dispatchEvent(new Event('click'))")
    expect(tab.get_by_role("heading", name="Approvals", level=1)).to_be_visible()
    for left in (1, 0):
        tab.locator("[data-pending]").first.get_by_role("button", name="Deny").click()
        expect(tab.locator("[data-pending]")).to_have_count(left)
    assert page.problems == []
    page.tab.context.close()
