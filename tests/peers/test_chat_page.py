"""The chat page in a real browser, against the real gateway."""

import json
import re
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from homarus.testing.model_server import (
    CallTools,
    HangUntilDisconnect,
    ModelServer,
    Say,
    ScriptedCall,
)
from tests.peers.browser import Browser, BrowserError, Page
from tests.peers.chat_page import ENDED, ask, sign_in
from tests.peers.gateway import TOKEN, Running, call, new_home, running_gateway

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs it

HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    " [click](javascript:document.title='owned') [https://bank.example](https://evil.example/)"
)


def test_page_answer_is_streamed_then_complete(page: Page) -> None:
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


def test_page_reload_keeps_session_and_login(page: Page) -> None:
    ask(page, "Hello MOCK:say:I am still here.§")
    page.wait_for_text(ENDED, "I am still here.")
    page.reload()
    assert page.wait_for_text("article[data-role=assistant]", "I am still here.")
    assert page.run("document.querySelectorAll('article').length") == 2
    assert page.run("document.querySelector('#sign-in').hidden")


def test_page_stop_button_ends_run_and_keeps_text(page: Page) -> None:
    ask(page, "Tell me MOCK:long:2000:20")
    page.wait_until("document.querySelector('article[data-live]')?.innerText.includes('word0003')")
    page.click("#stop")
    assert "word0003" in page.wait_for_text(ENDED, "Stopped.")
    assert page.run("document.querySelector('#stop').hidden")
    page.reload()
    assert "word0003" in page.wait_for_text("article[data-role=assistant]", "Stopped.")


def test_page_escape_key_stops_run(page: Page, model: ModelServer) -> None:
    model.script([Say("It began"), HangUntilDisconnect()])
    ask(page, "Begin")
    page.wait_for_text("article[data-live]", "It began")
    page.press("Escape")
    assert page.wait_for_text(ENDED, "Stopped.")


def test_page_reload_joins_run_under_way(page: Page, model: ModelServer) -> None:
    model.script([Say("It began"), HangUntilDisconnect()])
    ask(page, "Begin")
    page.wait_for_text("article[data-live]", "It began")
    page.reload()
    page.wait_for_text("article[data-live]", "It began")
    assert page.run("document.querySelectorAll('article').length") == 2
    page.click("#stop")
    assert page.wait_for_text(ENDED, "Stopped.")


def test_page_shows_run_of_another_client(page: Page, browser: Browser, gateway: Running) -> None:
    key = page.run("document.querySelector('#sessions').value")
    other = sign_in(browser, gateway)
    other.wait_until("document.querySelector('#sessions').value")  # it has stored its session
    other.run(f"sessionStorage.setItem('session', {json.dumps(key)})")
    other.reload()
    other.wait_until(f"document.querySelector('#sessions').value === {json.dumps(key)}")
    ask(page, "Hello MOCK:say:To both of you.§")
    assert other.wait_for_text(ENDED, "To both of you.")
    assert other.wait_for_text("article[data-role=user]", "Hello")


def test_page_command_answer_is_separate(page: Page) -> None:
    ask(page, "Hello MOCK:say:An answer.§")
    page.wait_for_text(ENDED, "An answer.")
    ask(page, "/status")
    page.wait_for_text(ENDED, "mock/mock-1")
    page.reload()
    shown = page.wait_for_text("article[data-role=assistant]", "mock/mock-1")
    assert "An answer." not in shown


def test_page_error_is_shown(page: Page) -> None:
    ask(page, "MOCK:fail:400")
    assert "HTTP 400" in page.wait_for_text("article .error", "mock/mock-1")
    assert page.run("document.querySelector('#stop').hidden")


def test_page_tool_call_has_own_line(page: Page, gateway: Running, model: ModelServer) -> None:
    (gateway.home.workspace / "lamp.txt").write_text("The lamp is <b>green</b>.\n")
    model.script(
        [Say("Let me look."), CallTools(ScriptedCall("read", {"path": "lamp.txt"}))],
        [Say("It is green.")],
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


def test_page_model_html_stays_text(page: Page, model: ModelServer) -> None:
    model.script([Say(HOSTILE)])
    ask(page, "Be hostile")
    shown = page.wait_for_text(ENDED, "<script>")
    assert "<img src=x" in shown and "[click](javascript:" in shown
    assert "https://bank.example (evil.example)" in shown  # a label cannot hide its target
    assert page.run("document.querySelectorAll('#log img, #log script').length") == 0
    links = page.run("[...document.querySelectorAll('#log a')].map(a => [a.href, a.rel])")
    assert links == [["https://evil.example/", "noopener noreferrer nofollow"]]
    assert page.run("document.title") == "Homarus"
    page.reload()
    page.wait_for_text("article[data-role=assistant]", "<script>")
    assert page.run("document.title") == "Homarus"
    assert page.problems() == []


def test_page_long_untrusted_text_does_not_hang(page: Page, model: ModelServer) -> None:
    model.script([Say([*(mark * 20_000 for mark in ("`a``", "**a", "[a](", "http://")), "end"])])
    ask(page, "Be long")
    assert page.wait_for_text(ENDED, "end")


def test_page_content_security_policy_blocks_script(page: Page) -> None:
    for sink in ("innerHTML", "outerHTML"):  # by Trusted Types, text is no HTML either
        with pytest.raises(BrowserError, match="TrustedHTML"):
            page.run(f"document.querySelector('#log').{sink} = '<b>owned</b>'")
    page.run(
        "(script => { script.append(\"document.title = 'owned'\"); document.body.append(script); })"
        "(document.createElement('script'))"
    )
    with suppress(BrowserError):  # refused here, or when it is clicked
        page.run("document.body.setAttribute('onclick', \"document.title = 'owned'\")")
    page.click("#log")
    assert page.run("document.title") == "Homarus"
    page.run("fetch('https://evil.example/').catch(() => 0)")
    assert any("Content Security Policy" in problem for problem in page.problems())


def test_page_gateway_is_never_taken_from_url(browser: Browser, gateway: Running) -> None:
    page = browser.open(f"{gateway.page}?gatewayUrl=ws://127.0.0.1:9/&session=agent:main:other")
    page.wait_until("!document.querySelector('#sign-in').hidden")
    assert page.run("location.search") == ""
    assert set(page.sockets()) == {f"{gateway.url}/"}


def test_page_token_in_query_grants_nothing(browser: Browser, gateway: Running) -> None:
    page = browser.open(f"{gateway.page}?token={TOKEN}")
    assert not page.run("document.querySelector('#log')")
    assert page.sockets() == []


def test_page_dashboard_link_signs_in_and_is_forgotten(browser: Browser, gateway: Running) -> None:
    page = browser.open(f"{gateway.page}#token={TOKEN}")
    page.wait_for_text("#state", "Connected")
    assert page.run("location.href") == gateway.page
    page.run("sessionStorage.clear()")
    page.reload()  # the paired browser connects by its device token
    page.wait_for_text("#state", "Connected")
    assert page.run("sessionStorage.getItem('token')") is None


def test_page_wrong_token_is_reported_and_not_stored(browser: Browser, gateway: Running) -> None:
    page = browser.open(gateway.page)
    page.wait_until("!document.querySelector('#sign-in').hidden")
    page.type("#token", "wrong")
    page.press("Enter")
    assert "homarus dashboard" in page.wait_for_text("#sign-in-why", "This token is not right")
    assert page.run("sessionStorage.getItem('token')") is None


def test_page_device_key_is_not_extractable_and_persists(
    browser: Browser, gateway: Running
) -> None:
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


def test_page_sessions_can_be_selected(page: Page) -> None:
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


def test_page_reconnects_after_gateway_restart(
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


def test_page_is_keyboard_usable_and_labelled(page: Page) -> None:
    named = page.run(
        "[...document.querySelectorAll('button:not([hidden]), select, textarea, input')]"
        ".every(e => e.innerText || e.labels?.length)"
    )
    assert named
    ask(page, "one")
    page.wait_for_text(ENDED, "Hello from")
    assert page.run("document.activeElement.id") == "text"


def test_page_layout_matches_screenshot(page: Page, tmp_path: Path) -> None:
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


def test_page_needs_no_other_server(gateway: Running) -> None:
    with urlopen(gateway.page) as answer:
        policy = answer.headers["Content-Security-Policy"]
        text = answer.read().decode()
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)
    assert not re.search(r"<[^>]+\son\w+=", text)


def test_page_dashboard_link_opens_the_named_session(browser: Browser, gateway: Running) -> None:
    call(gateway, "sessions.create", key="linked")
    call(gateway, "chat.inject", sessionKey="linked", message="of the linked conversation")
    page = browser.open(f"{gateway.page}chat?session=linked#token={TOKEN}")
    page.wait_for_text("#log", "of the linked conversation")
    assert page.run("location.href") == f"{gateway.page}chat"
    page.wait_until("document.querySelector('#sessions').value === 'agent:main:linked'")
    assert page.problems() == []
