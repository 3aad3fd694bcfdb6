"""The chat page in a browser nobody here wrote, against the real gateway."""

import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from homarus.testing.model_server import Call, CallTools, Hold, ModelServer, Say
from tests.peers.browser import Browser, Page
from tests.peers.gateway import TOKEN, Running, new_home, running_gateway

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs it

ENDED = "article[data-role=assistant]:not([data-live])"
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    " [click](javascript:document.title='owned') [https://bank.example](https://evil.example/)"
)


def sign_in(browser: Browser, gateway: Running, query: str = "") -> Page:
    page = browser.open(gateway.page + query)
    page.wait_until("!document.querySelector('#sign-in').hidden")
    page.type("#token", TOKEN)
    page.press("Enter")
    page.wait_for_text("#state", "Connected")
    return page


@pytest.fixture
def page(browser: Browser, gateway: Running) -> Page:
    """Signed in, in a conversation of its own."""
    page = sign_in(browser, gateway)
    page.click("#new")
    page.wait_until("document.querySelector('#sessions').value.includes(':web-')")
    return page


def ask(page: Page, text: str) -> None:
    page.type("#text", text)
    page.press("Enter")


def test_an_answer_is_streamed_and_then_whole(page: Page) -> None:
    page.run(
        "window.sizes = []; new MutationObserver(() => sizes.push("
        "document.querySelector('article[data-live]')?.innerText.length ?? 0))"
        ".observe(document.querySelector('#log'), {subtree: true, childList: true})"
    )
    ask(page, "Tell me MOCK:long:60:20")
    shown = page.wait_for_text(ENDED, "word0059")
    assert shown.startswith("word0000 word0001")
    growing = [size for size in page.run("sizes") if size]
    assert len(set(growing)) > 3 and growing == sorted(growing)
    assert page.wait_for_text("article[data-role=user]", "Tell me")
    assert page.problems() == []


def test_a_reload_keeps_the_conversation_and_the_sign_in(page: Page) -> None:
    ask(page, "Hello MOCK:say:I am still here.§")
    page.wait_for_text(ENDED, "I am still here.")
    page.reload()
    assert page.wait_for_text("article[data-role=assistant]", "I am still here.")
    assert page.run("document.querySelectorAll('article').length") == 2
    assert page.run("document.querySelector('#sign-in').hidden")


def test_stop_ends_the_answer_and_keeps_what_was_said(page: Page) -> None:
    ask(page, "Tell me MOCK:long:2000:20")
    page.wait_until("document.querySelector('article[data-live]')?.innerText.includes('word0003')")
    page.click("#stop")
    assert "word0003" in page.wait_for_text(ENDED, "Stopped.")
    assert page.run("document.querySelector('#stop').hidden")
    page.reload()
    assert "word0003" in page.wait_for_text("article[data-role=assistant]", "Stopped.")


def test_escape_stops_too(page: Page, model: ModelServer) -> None:
    model.script([Say("It began"), Hold()])
    ask(page, "Begin")
    page.wait_for_text("article[data-live]", "It began")
    page.press("Escape")
    assert page.wait_for_text(ENDED, "Stopped.")


def test_a_reload_joins_an_answer_that_is_being_made(page: Page, model: ModelServer) -> None:
    model.script([Say("It began"), Hold()])
    ask(page, "Begin")
    page.wait_for_text("article[data-live]", "It began")
    page.reload()
    page.wait_for_text("article[data-live]", "It began")
    assert page.run("document.querySelectorAll('article').length") == 2
    page.click("#stop")
    assert page.wait_for_text(ENDED, "Stopped.")


def test_what_another_client_asks_is_shown_too(
    page: Page, browser: Browser, gateway: Running
) -> None:
    key = page.run("document.querySelector('#sessions').value")
    other = sign_in(browser, gateway)
    other.run(f"sessionStorage.setItem('session', {json.dumps(key)})")
    other.reload()
    other.wait_for_text("#state", "Connected")
    ask(page, "Hello MOCK:say:To both of you.§")
    assert other.wait_for_text(ENDED, "To both of you.")
    assert other.wait_for_text("article[data-role=user]", "Hello")


def test_a_command_is_answered_apart_from_what_was_said_before(page: Page) -> None:
    ask(page, "Hello MOCK:say:An answer.§")
    page.wait_for_text(ENDED, "An answer.")
    ask(page, "/status")
    page.wait_for_text(ENDED, "mock/mock-1")
    page.reload()
    shown = page.wait_for_text("article[data-role=assistant]", "mock/mock-1")
    assert "An answer." not in shown


def test_an_error_is_shown_as_one(page: Page) -> None:
    ask(page, "MOCK:fail:400")
    assert "HTTP 400" in page.wait_for_text("article .error", "mock/mock-1")
    assert page.run("document.querySelector('#stop').hidden")


def test_a_tool_has_a_line_of_its_own(page: Page, gateway: Running, model: ModelServer) -> None:
    (gateway.home.workspace / "lamp.txt").write_text("The lamp is <b>green</b>.\n")
    model.script(
        [Say("Let me look."), CallTools(Call("read", {"path": "lamp.txt"}))], [Say("It is green.")]
    )
    ask(page, "Which colour has the lamp?")
    shown = page.wait_for_text(ENDED, "It is green.")
    assert re.search(r"Let me look\.\s+read lamp\.txt\s+It is green\.", shown)
    assert page.run("document.querySelector('.tool').dataset.state") == "done"
    page.reload()
    page.wait_for_text("article[data-role=assistant]", "It is green.")
    kept = page.run("document.querySelector('.tool pre').textContent")
    assert "The lamp is <b>green</b>." in kept
    assert page.run("document.querySelectorAll('b b, pre b').length") == 0


def test_what_a_model_says_stays_text(page: Page, model: ModelServer) -> None:
    model.script([Say(HOSTILE)])
    ask(page, "Be hostile")
    shown = page.wait_for_text(ENDED, "<script>")
    assert "<img src=x" in shown and "[click](javascript:" in shown
    assert "https://bank.example (evil.example)" in shown  # a label cannot hide where it leads
    assert page.run("document.querySelectorAll('#log img, #log script').length") == 0
    links = page.run("[...document.querySelectorAll('#log a')].map(a => [a.href, a.rel])")
    assert links == [["https://evil.example/", "noopener noreferrer nofollow"]]
    assert page.run("document.title") == "Homarus"
    page.reload()
    page.wait_for_text("article[data-role=assistant]", "<script>")
    assert page.run("document.title") == "Homarus"
    assert page.problems() == []


def test_a_long_hostile_text_does_not_hang_the_page(page: Page, model: ModelServer) -> None:
    model.script([Say([*(mark * 20_000 for mark in ("`a``", "**a", "[a](", "http://")), "end"])])
    ask(page, "Be long")
    assert page.wait_for_text(ENDED, "end")


def test_the_policy_refuses_a_script_in_the_page(page: Page) -> None:
    page.run(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: \"document.title = 'owned'\"}))"
    )
    page.run("document.body.setAttribute('onclick', \"document.title = 'owned'\")")
    page.click("#log")
    assert page.run("document.title") == "Homarus"
    assert any("Content Security Policy" in problem for problem in page.problems())


def test_the_gateway_is_never_taken_from_the_address(browser: Browser, gateway: Running) -> None:
    page = browser.open(f"{gateway.page}?gatewayUrl=ws://127.0.0.1:9/&session=agent:main:other")
    page.wait_until("!document.querySelector('#sign-in').hidden")
    assert page.run("location.search") == ""
    assert set(page.sockets()) == {f"{gateway.url}/"}


def test_a_token_in_the_address_opens_nothing(browser: Browser, gateway: Running) -> None:
    page = browser.open(f"{gateway.page}?token={TOKEN}")
    assert not page.run("document.querySelector('#log')")
    assert page.sockets() == []
    page.go(f"{gateway.page}#token={TOKEN}")
    page.wait_until("!document.querySelector('#sign-in').hidden")
    assert TOKEN not in "".join(page.sent())


def test_a_wrong_token_is_told_and_not_kept(browser: Browser, gateway: Running) -> None:
    page = browser.open(gateway.page)
    page.wait_until("!document.querySelector('#sign-in').hidden")
    page.type("#token", "wrong")
    page.press("Enter")
    assert "unauthorized" in page.wait_for_text("#sign-in-why", "unauthorized")
    assert page.run("sessionStorage.getItem('token')") is None


def test_the_devices_key_cannot_be_read_out_and_stays(browser: Browser, gateway: Running) -> None:
    page = sign_in(browser, gateway)
    keys = (
        "new Promise(done => { indexedDB.open('homarus').onsuccess = ({target}) => {"
        " target.result.transaction('keys').objectStore('keys').get('device').onsuccess ="
        " ({target}) => done(target.result); }; })"
    )
    assert page.run(f"{keys}.then(pair => pair.privateKey.extractable)") is False
    page.reload()
    page.wait_for_text("#state", "Connected")
    connects = [json.loads(f)["params"] for f in page.sent() if '"method":"connect"' in f]
    assert len({params["device"]["id"] for params in connects}) == 1
    assert all(params["device"]["nonce"] for params in connects)


def test_conversations_can_be_chosen(page: Page) -> None:
    ask(page, "First MOCK:say:One.§")
    page.wait_for_text(ENDED, "One.")
    first = page.run("document.querySelector('#sessions').value")
    page.click("#new")
    page.wait_until("!document.querySelector('article')")
    ask(page, "Second MOCK:say:Two.§")
    page.wait_for_text(ENDED, "Two.")
    page.wait_until(
        f"[...document.querySelector('#sessions').options].some(o => o.value === '{first}')"
    )
    page.run(
        f"(() => {{ const s = document.querySelector('#sessions'); s.value = '{first}';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert page.wait_for_text(ENDED, "One.")
    assert "Two." not in page.run("document.querySelector('#log').innerText")


def test_the_page_comes_back_after_a_restart(
    browser: Browser, model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    home = new_home(tmp_path, gateway.home.env, model)
    with running_gateway(home) as first:
        page = sign_in(browser, first)
        ask(page, "Hello MOCK:say:Before.§")
        page.wait_for_text(ENDED, "Before.")
    page.wait_for_text("#state", "Reconnecting")
    with running_gateway(home, port=first.port):
        page.wait_for_text("#state", "Connected")
        assert page.wait_for_text("article[data-role=assistant]", "Before.")
        ask(page, "Hello MOCK:say:After.§")
        assert page.wait_for_text(ENDED, "After.")


def test_the_page_is_usable_by_keyboard_and_named_for_readers(page: Page) -> None:
    named = page.run(
        "[...document.querySelectorAll('button:not([hidden]), select, textarea, input')]"
        ".every(e => e.innerText || e.labels?.length)"
    )
    assert named
    ask(page, "one")
    page.wait_for_text(ENDED, "Hello from")
    assert page.run("document.activeElement.id") == "text"


def test_it_looks_right(page: Page, tmp_path: Path) -> None:
    ask(page, "Hello MOCK:say:Here is **code**:\n\n```sh\necho hi\n```§")
    page.wait_for_text(ENDED, "echo hi")
    page.screenshot(tmp_path / "page.png")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=640,
        deviceScaleFactor=1,
        mobile=True,
    )
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    light = page.run("getComputedStyle(document.body).backgroundColor")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=dark)
    assert page.run("getComputedStyle(document.body).backgroundColor") != light
    assert page.run("document.querySelector('article code').tagName") == "CODE"


def test_the_page_needs_no_other_server(gateway: Running) -> None:
    with urlopen(gateway.page) as answer:
        policy = answer.headers["Content-Security-Policy"]
        text = answer.read().decode()
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)
    assert not re.search(r"<[^>]+\son\w+=", text)
