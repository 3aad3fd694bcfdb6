"""The chat of the control UI in a real browser, against the real gateway."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, WebSocketRoute, expect

from homarus.testing.model_server import (
    CallTools,
    HangUntilDisconnect,
    ModelServer,
    ReportedUsage,
    Say,
    ScriptedCall,
    Think,
)
from tests.peers.gateway import Running, call, new_home, running_gateway
from tests.peers.ui import DESKTOP, UiPage, new_page

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs everything

NOTES = """I read the changelog first, then wrote the notes.

## What changed

1. Agents can run commands, **after asking you**.
2. `skills` are loaded from the workspace.

| area | changes |
| --- | --: |
| approvals | 4 |
| sandbox | 2 |

```python
print("released")
```
"""


def write(ui: UiPage, text: str) -> None:
    field = ui.tab.get_by_label("Message", exact=True)
    field.fill(text)
    field.press("Enter")


def new_conversation(ui: UiPage) -> None:
    """Start a conversation, so that tests do not see each other's."""
    before = ui.tab.url
    ui.tab.get_by_role("button", name="New conversation").click()
    expect(ui.tab).not_to_have_url(before)
    expect(ui.tab.get_by_text("What can I do for you?")).to_be_visible()


def answers(ui: UiPage) -> Locator:
    return ui.tab.locator("article.chat-answer")


def saved(ui: UiPage) -> Locator:
    """Return the answers of the history, which have their actions."""
    return ui.tab.get_by_label("The agent answered")


def test_message_is_answered_with_markdown(ui: UiPage) -> None:
    new_conversation(ui)
    write(ui, f"Write the notes MOCK:say:{NOTES}§")
    expect(saved(ui).locator("ol li")).to_have_count(2)
    expect(saved(ui).locator("strong")).to_have_text("after asking you")
    expect(saved(ui).locator("td")).to_have_count(4)
    expect(saved(ui).locator("pre")).to_contain_text('print("released")')
    expect(ui.tab.locator("article.chat-question")).to_have_count(1)
    expect(ui.tab.locator(".conversation[aria-current=page]")).to_contain_text("Write the notes")


def test_token_leaves_the_address_and_stays_in_the_tab(ui: UiPage, ui_gateway: Running) -> None:
    assert "token" not in ui.tab.url
    assert ui.tab.evaluate("localStorage.getItem('token')") is None
    ui.tab.goto(f"{ui_gateway.page}chat?gatewayUrl=ws://evil.example")
    ui.wait_for_connection()
    assert [url for url in ui.requested if not url.startswith(ui_gateway.page)] == []


def test_wrong_token_asks_to_sign_in(ui_browser: Browser, ui_gateway: Running) -> None:
    page = new_page(ui_browser)
    page.tab.goto(f"{ui_gateway.page}#token=wrong")
    expect(page.tab.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.tab.get_by_text("This token is not right.")).to_be_visible()
    page.check_accessibility()
    page.tab.context.close()


def test_tool_calls_thinking_and_diff_are_shown(
    ui: UiPage, model: ModelServer, ui_gateway: Running
) -> None:
    file = ui_gateway.home.workspace / "release.md"
    file.write_text("Release 0.2 (draft)\n")
    edit = {"path": "release.md", "oldText": "Release 0.2 (draft)", "newText": "# Release 0.2"}
    new_conversation(ui)
    model.script(
        [Think("The heading is missing."), Say("I look."), CallTools(ScriptedCall("edit", edit))],
        [Say("The heading is there now."), ReportedUsage(1200, 40)],
    )
    write(ui, "Fix the heading")
    expect(saved(ui)).to_contain_text("The heading is there now.")
    assert file.read_text() == "# Release 0.2\n"
    card = saved(ui).locator("details.chat-tool")
    expect(card.locator("summary")).to_contain_text("edit")
    expect(card.locator("summary")).to_contain_text("release.md")
    expect(card.locator(".diff-add")).to_contain_text("# Release 0.2")
    expect(card.locator(".diff-del")).to_contain_text("Release 0.2 (draft)")
    saved(ui).locator("details.chat-thinking summary").click()
    expect(saved(ui).get_by_text("The heading is missing.")).to_be_visible()
    expect(saved(ui).locator(".chat-meta")).to_contain_text("tokens")


def test_tool_that_waits_for_an_approval_says_so(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    command = {"command": "touch waiting.txt"}
    model.script([CallTools(ScriptedCall("exec", command))], [Say("It was refused.")])
    write(ui, "Run it")
    facts = ui.tab.locator("details.chat-tool .chat-card-facts")
    expect(facts).to_have_text("waiting for approval")
    ui.tab.reload()
    expect(facts).to_have_text("waiting for approval")
    ui.tab.locator("[data-pending]").get_by_role("button", name="Deny").click()
    expect(saved(ui)).to_contain_text("It was refused.")
    expect(facts).not_to_contain_text("waiting")


def test_stop_ends_the_answer_and_keeps_its_text(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    model.script([Say("It began"), HangUntilDisconnect()])
    write(ui, "Begin")
    expect(answers(ui)).to_contain_text("It began")
    ui.tab.get_by_role("button", name="Stop").click()
    expect(saved(ui)).to_contain_text("Stopped.")
    expect(saved(ui)).to_contain_text("It began")


def test_escape_stops_the_answer(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    model.script([Say("It began"), HangUntilDisconnect()])
    write(ui, "Begin")
    expect(answers(ui)).to_contain_text("It began")
    ui.tab.keyboard.press("Escape")
    expect(saved(ui)).to_contain_text("Stopped.")


def begin_answer(ui: UiPage, model: ModelServer) -> None:
    """Start an answer that does not end by itself, in a conversation of its own."""
    new_conversation(ui)
    model.script([Say("It began"), HangUntilDisconnect()])
    write(ui, "Begin")
    expect(answers(ui)).to_contain_text("It began")


def test_stop_gives_a_queued_message_back(ui: UiPage, model: ModelServer) -> None:
    begin_answer(ui, model)
    write(ui, "And then MOCK:say:The second answer.§")
    expect(ui.tab.get_by_text("1 queued")).to_be_visible()
    ui.tab.get_by_role("button", name="Stop").click()
    expect(saved(ui)).to_contain_text("Stopped.")
    dropped = ui.tab.locator("article[data-outgoing=refused]")
    expect(dropped).to_contain_text("And then")
    expect(dropped).to_contain_text("Stopped before the agent read it.")
    dropped.get_by_role("button", name="Send again").click()
    expect(saved(ui).last).to_contain_text("The second answer.")
    expect(ui.tab.locator("article.chat-question")).to_have_count(2)


def test_escape_outside_of_the_chat_does_not_stop_the_answer(
    ui: UiPage, model: ModelServer
) -> None:
    begin_answer(ui, model)
    search = ui.tab.get_by_label("Search the conversations")
    search.fill("nothing like it")
    search.press("Escape")
    expect(search).to_have_value("")
    more = ui.tab.get_by_role("button", name="Conversation", exact=True)
    more.click()
    ui.tab.keyboard.press("Tab")
    expect(ui.tab.get_by_role("menu")).to_have_count(0)
    ui.tab.set_viewport_size({"width": 360, "height": 740})
    ui.tab.get_by_role("button", name="More", exact=True).click()
    sidebar = ui.tab.get_by_role("complementary", name="Navigation")
    expect(sidebar).to_be_visible()
    ui.tab.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    expect(saved(ui)).to_have_count(0)
    ui.tab.get_by_role("button", name="Stop").click()
    expect(saved(ui)).to_contain_text("Stopped.")


def test_draft_is_kept_when_the_conversation_has_another_name(
    ui_browser: Browser, ui_gateway: Running
) -> None:
    ui = new_page(ui_browser)
    wire = Wire(ui)
    ui.open(ui_gateway)
    wire.cut()
    ui.tab.goto(f"{ui_gateway.page}chat?session=main")  # the gateway calls it agent:main:main
    field = ui.tab.get_by_label("Message", exact=True)
    write(ui, "Sent early MOCK:say:Heard.§")
    field.fill("Half a thought")
    wire.is_cut = False
    ui.tab.get_by_role("button", name="Try now").click()
    expect(saved(ui)).to_contain_text("Heard.")
    expect(field).to_have_value("Half a thought")
    expect(ui.tab.locator("article.chat-question")).to_have_count(1)
    expect(ui.tab.locator("[data-outgoing]")).to_have_count(0)
    assert ui.tab.evaluate("sessionStorage.getItem('outbox')") is None
    ui.tab.context.close()


def test_reload_joins_the_run_without_double_text(ui: UiPage, model: ModelServer) -> None:
    new_conversation(ui)
    model.script([Say("It began"), HangUntilDisconnect()])
    write(ui, "Begin")
    expect(answers(ui)).to_contain_text("It began")
    ui.tab.reload()
    expect(answers(ui)).to_contain_text("It began")
    expect(answers(ui)).to_have_count(1)
    expect(ui.tab.locator("article.chat-question")).to_have_count(1)
    ui.tab.get_by_role("button", name="Stop").click()
    expect(saved(ui)).to_contain_text("Stopped.")


class Wire:
    """The WebSocket of a page, which a test can cut, or through which nothing passes."""

    def __init__(self, ui: UiPage) -> None:
        self.is_cut = False
        self.is_silent = False
        self._open: list[WebSocketRoute] = []
        ui.tab.route_web_socket(re.compile("."), self._connect)

    def _connect(self, route: WebSocketRoute) -> None:
        if self.is_cut:
            route.close(code=1012, reason="cut")
            return
        server = route.connect_to_server()
        route.on_message(lambda data: None if self.is_silent else server.send(data))
        server.on_message(lambda data: None if self.is_silent else route.send(data))
        self._open.append(route)

    def cut(self) -> None:
        self.is_cut = True
        for route in self._open:
            route.close(code=1012, reason="cut")
        self._open.clear()


def test_lost_connection_in_a_stream_loses_no_text(
    ui_browser: Browser, ui_gateway: Running
) -> None:
    ui = new_page(ui_browser)
    wire = Wire(ui)
    ui.open(ui_gateway)
    new_conversation(ui)
    write(ui, "Tell me MOCK:long:150:20")
    expect(answers(ui)).to_contain_text("word0010")
    wire.cut()
    expect(ui.tab.get_by_text("Reconnecting").first).to_be_visible()
    expect(answers(ui)).to_contain_text("word0010")  # what was read stays there
    write(ui, "And this MOCK:say:Second answer.§")
    expect(ui.tab.get_by_text("Waits for the connection")).to_be_visible()
    wire.is_cut = False
    ui.tab.get_by_role("button", name="Try now").click()
    expect(saved(ui)).to_have_count(2, timeout=40_000)
    first = saved(ui).first.inner_text()
    assert re.findall(r"word\d{4}", first) == [f"word{n:04d}" for n in range(150)]
    expect(saved(ui).nth(1)).to_contain_text("Second answer.")
    expect(ui.tab.locator("article.chat-question")).to_have_count(2)
    ui.tab.context.close()


def test_dead_connection_is_noticed_and_loses_no_text(
    ui_browser: Browser, ui_gateway: Running
) -> None:
    ui = new_page(ui_browser)
    wire = Wire(ui)
    ui.open(ui_gateway)
    new_conversation(ui)
    write(ui, "Tell me MOCK:long:150:20")
    expect(answers(ui)).to_contain_text("word0010")
    wire.is_silent = True  # lost packets: neither end closes
    before = ""
    while before != (before := answers(ui).inner_text()):  # what was under way has arrived
        ui.tab.wait_for_timeout(300)
    ui.tab.evaluate("dispatchEvent(new Event('online'))")  # another network
    expect(ui.tab.get_by_text("Reconnecting").first).to_be_visible()
    expect(answers(ui)).to_contain_text("word0010")
    wire.is_silent = False
    expect(saved(ui)).to_have_count(1, timeout=40_000)
    words = re.findall(r"word\d{4}", saved(ui).inner_text())
    assert words == [f"word{n:04d}" for n in range(150)]
    expect(ui.tab.locator("article.chat-question")).to_have_count(1)
    ui.tab.context.close()


def test_message_that_is_refused_stays_with_the_reason(ui: UiPage) -> None:
    new_conversation(ui)
    address = ui.tab.url.split("?")[0]
    ui.tab.goto(f"{address}?session=agent:nobody:main")
    ui.wait_for_connection()
    write(ui, "Hello?")
    expect(ui.tab.locator("article.chat-question")).to_contain_text("unknown agent")
    ui.tab.get_by_role("button", name="Edit").click()
    expect(ui.tab.get_by_label("Message", exact=True)).to_have_value("Hello?")


def test_files_are_attached_and_reach_the_model(
    ui: UiPage, model: ModelServer, tmp_path: Path
) -> None:
    new_conversation(ui)
    notes = tmp_path / "notes.csv"
    notes.write_text("name,age\nAda,36\n")
    ui.tab.get_by_label("Files to attach").set_input_files([notes])
    expect(ui.tab.get_by_label("Attached files")).to_contain_text("notes.csv")
    write(ui, "Who is in it? MOCK:say:Ada is.§")
    expect(saved(ui)).to_contain_text("Ada is.")
    expect(ui.tab.locator("article.chat-question")).to_contain_text("notes.csv")
    assert "Ada,36" in str(model.requests[-1].body)


def test_slash_shows_commands_and_enter_completes_one(ui: UiPage) -> None:
    new_conversation(ui)
    field = ui.tab.get_by_label("Message", exact=True)
    field.press_sequentially("/sta")
    expect(ui.tab.get_by_role("option").first).to_contain_text("/status")
    field.press("Enter")
    expect(field).to_have_value(re.compile(r"^/status ?$"))
    field.press("Enter")
    expect(saved(ui)).to_have_count(1)


def test_branch_continues_from_a_message(ui: UiPage) -> None:
    new_conversation(ui)
    write(ui, "First MOCK:say:One.§")
    expect(saved(ui)).to_have_count(1)
    write(ui, "Second MOCK:say:Two.§")
    expect(saved(ui)).to_have_count(2)
    before = ui.tab.url
    saved(ui).first.get_by_role("button", name="Branch").click()
    expect(ui.tab).not_to_have_url(before)
    expect(saved(ui)).to_have_count(1)
    expect(saved(ui)).to_contain_text("One.")


def test_conversation_is_exported_as_markdown(ui: UiPage) -> None:
    new_conversation(ui)
    write(ui, "Export this MOCK:say:With **stars**.§")
    expect(saved(ui)).to_have_count(1)
    ui.tab.get_by_role("button", name="Conversation", exact=True).click()
    with ui.tab.expect_download() as download:
        ui.tab.get_by_role("menuitem", name="Export as Markdown").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert "With **stars**." in text and "## You" in text


def test_hostile_text_executes_and_loads_nothing(
    ui: UiPage, model: ModelServer, ui_gateway: Running
) -> None:
    hostile = (
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
        "<svg onload=\"document.title='owned'\"></svg> ![p](https://evil.example/p.png)"
        " [click](javascript:document.title='owned') [bank.example](https://evil.example/)"
        " ![s](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+)"
    )
    (ui_gateway.home.workspace / "evil.txt").write_text(hostile)
    new_conversation(ui)
    read = ScriptedCall("read", {"path": "evil.txt", "<b>x</b>": hostile})
    model.script([Think(hostile), Say(hostile), CallTools(read)], [Say(hostile)])
    write(ui, hostile)
    expect(saved(ui).locator("details.chat-tool")).to_have_count(1)
    for summary in saved(ui).locator("summary").all():
        summary.click()
    key = re.search(r"session=([^&]+)", ui.tab.url)
    assert key
    call(ui_gateway, "sessions.patch", key=key[1].replace("%3A", ":"), label="<img src=x>\u202e")
    expect(ui.tab.locator(".conversation[aria-current=page]")).to_contain_text("⟨U+202E⟩")
    expect(ui.tab.locator("h1")).to_contain_text("<img src=x>")
    assert ui.tab.title() == "Chat · Homarus"
    found = ui.tab.locator("main img, main script, main iframe, main a[href^='javascript']")
    expect(found).to_have_count(0)
    assert not [url for url in ui.requested if not url.startswith(ui_gateway.page)]


def test_chat_is_usable_on_a_phone(ui_browser: Browser, ui_gateway: Running) -> None:
    page = new_page(ui_browser, has_touch=True, is_mobile=True)
    page.tab.set_viewport_size({"width": 360, "height": 740})
    page.open(ui_gateway)
    page.tab.get_by_role("button", name="More").tap()
    page.tab.get_by_role("button", name="New conversation").tap()
    field = page.tab.get_by_label("Message", exact=True)
    field.fill("Hello MOCK:say:Hello on the phone.§")
    page.tab.get_by_role("button", name="Send").tap()
    expect(saved(page)).to_contain_text("Hello on the phone.")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 360
    page.tab.get_by_role("link", name="Approvals").first.tap()
    expect(page.tab.get_by_text("Nothing waits for you")).to_be_visible()
    assert page.problems == []
    page.tab.context.close()


def test_keyboard_reaches_everything(ui: UiPage) -> None:
    new_conversation(ui)
    ui.tab.keyboard.press("Alt+2")
    expect(ui.tab.get_by_role("heading", name="Approvals", level=1)).to_be_focused()
    ui.tab.keyboard.press("Alt+1")
    expect(ui.tab.get_by_label("Message", exact=True)).to_be_visible()
    ui.tab.get_by_role("log").focus()
    ui.tab.keyboard.press("?")
    expect(ui.tab.get_by_role("dialog")).to_contain_text("Start a new conversation")
    ui.check_accessibility()
    ui.tab.keyboard.press("Escape")
    expect(ui.tab.get_by_role("dialog")).to_have_count(0)
    ui.tab.keyboard.press("Alt+N")
    expect(ui.tab.get_by_text("What can I do for you?")).to_be_visible()


def test_drawer_of_a_phone_keeps_the_focus_and_gives_it_back(
    ui_browser: Browser, ui_gateway: Running
) -> None:
    page = new_page(ui_browser, has_touch=True, is_mobile=True)
    page.tab.set_viewport_size({"width": 360, "height": 740})
    page.open(ui_gateway)
    tab = page.tab
    tab.get_by_role("button", name="More", exact=True).tap()
    sidebar = tab.get_by_role("complementary", name="Navigation")
    expect(sidebar.get_by_role("link", name="Chat", exact=True)).to_be_focused()
    page.check_accessibility()
    for _ in range(30):  # the page below is not reached
        tab.keyboard.press("Tab")
        assert not tab.evaluate(
            "document.querySelector('.app-main').contains(document.activeElement)"
        )
    tab.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    expect(tab.get_by_role("button", name="More", exact=True)).to_be_focused()
    tab.keyboard.press("Enter")
    sidebar.get_by_text("More pages").tap()
    sidebar.get_by_role("link", name="Audit").tap()
    expect(tab.get_by_role("heading", name="Audit", level=1)).to_be_focused()
    tab.set_viewport_size(DESKTOP)
    expect(sidebar.get_by_role("link", name="Audit")).to_be_visible()  # where the page is
    assert page.problems == []
    tab.context.close()


def test_gateway_restart_is_survived(
    ui_browser: Browser, ui_gateway: Running, model: ModelServer, tmp_path: Path
) -> None:
    home = new_home(tmp_path, {"PATH": ui_gateway.home.env["PATH"]}, model)
    with running_gateway(home, ui=True) as first:
        page = new_page(ui_browser).open(first)
        port = first.port
    expect(page.tab.get_by_test_id("connection-state")).not_to_have_text("Connected")
    with running_gateway(home, port, ui=True):
        page.wait_for_connection()
        write(page, "Hello MOCK:say:Here again.§")
        expect(saved(page)).to_contain_text("Here again.")
    page.tab.context.close()
