"""Messages on the chat page: long, old, with images, copied, typed offline or on a phone."""

import base64
import json
from pathlib import Path

import pytest

from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall
from tests.peers.browser import Browser, Page
from tests.peers.chat_page import ENDED, PIXEL, ask, count, new_session, sign_in, tap, use_phone
from tests.peers.gateway import Running, call, new_home, running_gateway

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs the browser

MARKDOWN = """# Plan

1. First
   - nested
2. Second

- [x] done

| Plant | Water | Monday | Tuesday | Wednesday | Thursday | Friday | Saturday |
|---|--:|---|---|---|---|---|---|
| Basil | 200 ml | yes | no | yes | no | yes | no |

> quoted, *with* **emphasis** and ~~more~~

```python
print("a very long line of code that does not fit on the screen of a telephone at all, does it?")
```

![chart](https://evil.example/leak?q=1) and https://a.example/."""
WIDE = "document.documentElement.scrollWidth <= innerWidth"
TOP = "document.querySelector('#log').getBoundingClientRect().top"


def fill_session(gateway: Running, key: str, messages: int) -> None:
    """Add messages to a conversation, as if the agent had written them."""
    call(gateway, "sessions.create", key=key)
    for number in range(messages):
        call(gateway, "chat.inject", sessionKey=key, message=f"Message {number:03d}.\n\nMore.")


def paste_image(page: Page, kind: str = "image/png", size: int = 0) -> None:
    page.run(
        f"(() => {{ const bytes = Uint8Array.from(atob('{PIXEL}'), c => c.charCodeAt(0));"
        f" const file = new File([bytes, new Uint8Array({size})], 'dot.png', {{type: '{kind}'}});"
        " const data = new DataTransfer(); data.items.add(file);"
        " document.querySelector('#text').dispatchEvent(new ClipboardEvent('paste',"
        " {clipboardData: data, bubbles: true, cancelable: true})); })()"
    )


def test_page_shows_markdown_on_desktop_and_phone(page: Page, model: ModelServer) -> None:
    model.script([Say(MARKDOWN)])
    ask(page, "Show me")
    page.wait_for_text(ENDED, "a.example")
    for selector in ("h2", "ol ul li", "li.task input", "table td.end", "blockquote em", "del"):
        assert count(page, f"{ENDED} {selector}") >= 1, selector
    assert count(page, "#log img") == 0  # a remote image is a link, and is not loaded
    assert page.run(WIDE)
    use_phone(page)
    assert page.run(WIDE)
    for wide in (".table", "pre"):  # they scroll, and not the page
        assert page.run(f"(e => e.scrollWidth > e.clientWidth)(document.querySelector('{wide}'))")
    page.reload()
    page.wait_for_text(ENDED, "a.example")
    assert count(page, f"{ENDED} table") == 1
    assert page.problems() == []


def test_page_table_on_phone_scrolls_and_keeps_words_whole(page: Page, model: ModelServer) -> None:
    rows = ("| A " * 6, "|---" * 6, "| Rhododendron " * 6)
    model.script([Say("\n".join(f"{row}|" for row in rows) + "\n\nThat is all.")])
    use_phone(page)
    ask(page, "Show me")
    page.click("#send")
    page.wait_for_text(ENDED, "That is all.")
    heights = "[...document.querySelectorAll('th, td')].map(cell => cell.offsetHeight)"
    assert max(page.run(heights)) < 50, "one line each"
    assert page.run(WIDE)


def test_page_code_and_message_are_copied(page: Page, model: ModelServer) -> None:
    model.script([Say("Here:\n\n```sh\necho **hi**\n```")])
    ask(page, "Code")
    page.wait_for_text(ENDED, "echo")
    page.click(f"{ENDED} figure .copy")
    page.wait_for_text("figure .copy", "Copied")
    assert page.copied() == "echo **hi**"
    page.click(f"{ENDED} .meta .copy")
    page.wait_for_text(".meta .copy", "Copied")
    assert page.copied() == "Here:\n\n```sh\necho **hi**\n```"
    page.run("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.wait_for_text("figure .copy", "Copy")
    page.click(f"{ENDED} figure .copy")  # as over plain http
    page.wait_for_text("figure .copy", "Copied")


def test_page_long_answer_is_whole_after_reload(page: Page, model: ModelServer) -> None:
    words = " ".join(f"word{number:06d}" for number in range(90_000))  # about a megabyte
    model.script([Say(words)])
    ask(page, "Be long")
    page.wait_for_text(ENDED, "word089999")
    page.reload()
    page.wait_until(f"document.querySelector('{ENDED} .words')?.textContent.endsWith('word089999')")
    shown = page.run(f"document.querySelector('{ENDED} .words').textContent")
    assert shown == words


def test_page_loads_older_messages_on_scroll_and_keeps_place(page: Page, gateway: Running) -> None:
    fill_session(gateway, "long", 130)
    page.run("sessionStorage.setItem('session', 'agent:main:long')")
    page.reload()
    page.wait_for_text("#past article:last-child", "Message 129")
    first = "document.querySelector('#past article')"
    assert count(page, "article") < 130
    place = page.run(
        f"(() => {{ document.querySelector('#log').scrollTop = 5; window.marked = {first};"
        f" return marked.getBoundingClientRect().top - {TOP}; }})()"
    )
    page.wait_until(f"{first} !== marked")
    moved = page.run(f"marked.getBoundingClientRect().top - {TOP}")
    assert abs(moved - place) < 3, "what is read stays where it is"
    while not page.run("document.querySelector('#load-older').hidden"):
        shown = page.run(f"{first}.innerText")
        page.run("document.querySelector('#log').scrollTop = 0")
        page.wait_until(f"{first}.innerText !== {json.dumps(shown)}")
    shown = page.run("[...document.querySelectorAll('#past article')].map(a => a.innerText)")
    assert [text.split(".")[0] for text in shown] == [f"Message {n:03d}" for n in range(130)]
    # A new message does not make the older ones vanish.
    call(gateway, "chat.inject", sessionKey="long", message="Message 130.")
    page.wait_for_text("article", "Message 130")
    page.wait_until("document.querySelectorAll('#past article').length === 131")


def test_page_image_is_attached_sent_and_shown_again(
    page: Page, model: ModelServer, tmp_path: Path
) -> None:
    file = tmp_path / "dot.png"
    file.write_bytes(base64.b64decode(PIXEL))
    page.choose_files("#file", file)
    page.wait_until("document.querySelectorAll('#attached img').length === 1")
    paste_image(page)
    page.wait_until("document.querySelectorAll('#attached img').length === 2")
    page.run(
        f"(() => {{ const bytes = Uint8Array.from(atob('{PIXEL}'), c => c.charCodeAt(0));"
        " const data = new DataTransfer();"
        " data.items.add(new File([bytes], 'dropped.png', {type: 'image/png'}));"
        " document.querySelector('#log').dispatchEvent(new DragEvent('drop',"
        " {dataTransfer: data, bubbles: true, cancelable: true})); })()"
    )
    page.wait_until("document.querySelectorAll('#attached img').length === 3")
    for left in (2, 1):
        page.click("#attached button")
        page.wait_until(f"document.querySelectorAll('#attached img').length === {left}")
    model.script([Say("A dot.")])
    ask(page, "What is this?")
    page.wait_for_text(ENDED, "A dot.")
    (frame,) = [frame for frame in page.sent() if '"method":"chat.send"' in frame]
    assert frame.count(PIXEL) == 1
    assert count(page, "article[data-role=user] img") == 1
    assert page.run("document.querySelector('#attached').hidden")
    page.reload()
    page.wait_until("document.querySelector('article[data-role=user] img')?.naturalWidth === 1")
    assert page.problems() == []


def test_page_file_that_cannot_be_attached_is_explained(page: Page, tmp_path: Path) -> None:
    paste_image(page, "image/gif", 6_000_000)
    shown = page.wait_for_text("#notice", "dot.png")
    assert "6 MB" in shown and "5 MB" in shown
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    page.choose_files("#file", text)
    assert "only PNG" in page.wait_for_text("#notice", "notes.txt")
    assert page.run("document.querySelector('#attached').hidden")


def test_page_shows_no_reasoning_and_no_tags(page: Page, model: ModelServer) -> None:
    pieces = ["<thi", "nk>the plan</think>[[reply_", "to_current]] Half", " and", " all."]
    model.script([Say(pieces, gap_s=0.3)])
    page.run(
        "window.seen = []; new MutationObserver(() => window.seen.push("
        "document.querySelector('#log').innerText)).observe(document.querySelector('#log'),"
        " {subtree: true, childList: true, characterData: true})"
    )
    ask(page, "Go ahead")
    page.wait_for_text(ENDED, "Half and all.")
    seen = page.run("window.seen.join('|')")
    assert "Half" in seen and not any(word in seen for word in ("thi", "plan", "reply", "[["))
    page.reload()
    page.wait_for_text(ENDED, "Half and all.")
    assert "plan" not in page.run("document.querySelector('#log').innerText")


def test_page_shows_images_that_the_agent_sends(
    page: Page, gateway: Running, model: ModelServer
) -> None:
    (gateway.home.workspace / "dot.png").write_bytes(base64.b64decode(PIXEL))
    model.script(
        [CallTools(ScriptedCall("read", {"path": "dot.png"}))], [Say("So:\nMEDIA: dot.png")]
    )
    ask(page, "Draw a dot")
    page.wait_for_text(ENDED, "So:")
    page.wait_until("document.querySelector('.pictures img')?.naturalWidth === 1")
    assert "MEDIA" not in page.run("document.querySelector('#log').innerText")
    page.click(".tool summary")
    page.wait_until("document.querySelector('.tool img')?.naturalWidth === 1")


def test_page_enter_sends_and_shift_enter_starts_a_line(page: Page) -> None:
    page.type("#text", "one")
    low = page.run("document.querySelector('#text').offsetHeight")
    page.press("Enter", shift=True)
    page.type("#text", "two")
    assert page.run("document.querySelector('#text').value") == "one\ntwo"
    assert page.run("document.querySelector('#text').offsetHeight") > low
    page.call("Input.imeSetComposition", text="か", selectionStart=1, selectionEnd=1)
    composing = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229}
    page.call("Input.dispatchKeyEvent", type="rawKeyDown", **composing)
    assert count(page, "article") == 0  # Enter ended the composition
    page.call("Input.insertText", text="か")
    page.press("Enter")
    assert "two" in page.wait_for_text("article[data-role=user]", "one")


def test_page_on_phone_enter_starts_a_line_and_button_sends(page: Page) -> None:
    use_phone(page)
    tap(page, "#text")
    page.type("#text", "one")
    page.press("Enter")
    page.type("#text", "two")
    assert page.run("document.querySelector('#text').value") == "one\ntwo"
    assert count(page, "article") == 0
    assert page.run("getComputedStyle(document.querySelector('#text')).fontSize") == "16px"
    box = "document.querySelector('#send').getBoundingClientRect()"
    width, height, right = page.run(f"(r => [r.width, r.height, r.right])({box})")
    assert width >= 40 and height >= 40 and right <= 360
    tap(page, "#send")
    assert page.wait_for_text("article[data-role=user]", "one\ntwo")
    page.wait_for_text(ENDED, "Hello from")
    assert page.run(WIDE)


def test_page_refused_message_stays_with_the_reason(page: Page) -> None:
    page.run("document.querySelector('#text').value = 'a\\0b'")
    page.press("Enter")  # the field has the focus
    shown = page.wait_for_text("article[data-role=user]", "Not sent")
    assert "null bytes" in shown
    page.click("article .discard")
    page.wait_until("document.querySelector('#text').value.startsWith('a')")


def test_page_draft_survives_reload_and_belongs_to_its_session(page: Page) -> None:
    page.type("#text", "half a thought")
    page.reload()
    page.wait_for_text("#state", "Connected")
    assert page.run("document.querySelector('#text').value") == "half a thought"
    new_session(page)
    page.wait_until("document.querySelector('#text').value === ''")


def test_page_message_typed_offline_is_sent_once_after_reconnect(
    browser: Browser, model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    home = new_home(tmp_path, gateway.home.env, model)
    with running_gateway(home) as first:
        page = sign_in(browser, first)
    page.wait_for_text("#offline", "Reconnecting in")
    assert page.run("!document.querySelector('#retry').hidden")
    before = len(model.requests)
    ask(page, "Typed offline MOCK:say:Received once.§")
    page.wait_for_text("article[data-role=user]", "Waits for the connection")
    page.wait_for_text("#state", "Reconnecting")
    with running_gateway(home, port=first.port):
        page.click("#retry")
        page.wait_for_text("#state", "Connected")
        page.wait_for_text(ENDED, "Received once.")
        page.reload()
        page.wait_for_text(ENDED, "Received once.")
        assert count(page, "article[data-role=user]") == 1
    assert len(model.requests) == before + 1


def break_next_send(page: Page) -> None:
    """Break the connection once the gateway got a message and before the page got the answer."""
    page.run(
        "(() => { const send = WebSocket.prototype.send; WebSocket.prototype.send = function(d) {"
        " send.call(this, d); if (d.includes('chat.send')) { WebSocket.prototype.send = send;"
        " this.onmessage = null; setTimeout(() => this.close(), 0); } }; })()"
    )


def test_page_send_without_answer_is_shown_once_while_it_is_answered(page: Page) -> None:
    break_next_send(page)
    ask(page, "Seen once MOCK:delay:3000 MOCK:say:An answer to it.§")
    page.wait_for_text("#past article[data-role=user]", "Seen once")
    page.wait_for_text(ENDED, "An answer to it.")
    assert count(page, "article[data-role=user]") == 1


def test_page_at_its_end_stays_there_when_it_gets_smaller(page: Page, gateway: Running) -> None:
    fill_session(gateway, "small", 60)
    page.run("sessionStorage.setItem('session', 'agent:main:small')")
    page.reload()
    page.wait_for_text("#past article:last-child", "Message 059")
    rest = "(log => log.scrollHeight - log.scrollTop - log.clientHeight)"
    rest += "(document.querySelector('#log'))"
    page.wait_until(f"{rest} < 2")  # the button for older messages takes no room of the newest
    page.type("#text", "a\nb\nc\nd\ne\nf\ng")
    page.wait_until(f"{rest} < 2")
    page.run("document.querySelector('#log').scrollTop = 100")
    use_phone(page)
    assert page.run(rest) > 1000, "a reader elsewhere is left there"


def test_page_send_without_answer_is_repeated_under_same_key(page: Page) -> None:
    break_next_send(page)
    ask(page, "Only once MOCK:say:An answer to it.§")
    page.wait_for_text(ENDED, "An answer to it.")
    keys = [
        json.loads(frame)["params"]["idempotencyKey"]
        for frame in page.sent()
        if '"method":"chat.send"' in frame
    ]
    assert len(keys) == 2 and len(set(keys)) == 1
    page.reload()
    page.wait_for_text(ENDED, "An answer to it.")
    assert count(page, "article") == 2


def test_page_message_typed_offline_can_be_taken_back(
    browser: Browser, model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    with running_gateway(new_home(tmp_path, gateway.home.env, model)) as first:
        page = sign_in(browser, first)
    page.wait_for_text("#state", "Reconnecting")
    ask(page, "Not now")
    page.wait_for_text("article[data-role=user]", "Waits for the connection")
    page.click("article .discard")
    page.wait_until("!document.querySelector('article')")
    assert page.run("document.querySelector('#text').value") == "Not now"
    assert page.run("JSON.parse(sessionStorage.getItem('outbox')).length") == 0


def test_page_is_usable_by_keyboard_and_screen_reader(page: Page, model: ModelServer) -> None:
    model.script([Say("An answer to read out.")])
    ask(page, "Hello")
    page.wait_for_text(ENDED, "An answer")
    assert page.run("document.querySelector('#announce').ariaLive") == "polite"
    page.wait_until("document.querySelector('#announce').textContent.includes('to read out')")
    page.press("Tab")
    assert page.run("document.activeElement.id") == "attach"
    outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    reduced = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    page.call("Emulation.setEmulatedMedia", features=reduced)
    page.run("document.querySelector('article').dataset.live = ''")
    live = "getComputedStyle(document.querySelector('article[data-live]'), '::after')"
    assert page.run(f"{live}.animationName") == "none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_text_contrast_is_sufficient(page: Page, model: ModelServer, scheme: str) -> None:
    page.call(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    model.script([Say(MARKDOWN)])
    ask(page, "Show me")
    page.wait_for_text(ENDED, "a.example")
    worst = page.run(
        """(() => {
          const parse = (c) => c.match(/[\\d.]+/g).map(Number);
          const light = (c) => { const [r, g, b] = parse(c).map((v) => v / 255)
            .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const behind = (e) => { for (; e; e = e.parentElement) {
            const c = getComputedStyle(e).backgroundColor;
            if ((parse(c)[3] ?? 1) > 0) return c; } };
          let worst = [99, ''];
          for (const e of document.querySelectorAll('article *, header *, footer *')) {
            const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
            const isShown = e.checkVisibility({opacityProperty: true});
            if (!own || !isShown || e.matches(':disabled')) continue;
            const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 120)];
          }
          return worst;
        })()"""
    )
    assert worst[0] >= 4.5, worst[1]
