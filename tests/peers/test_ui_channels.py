"""The channels of the control UI, and the setup of a new gateway."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from homarus.testing.model_server import ModelServer
from tests.e2e.program import Home
from tests.peers.gateway import LOG, READY_S, Running, call, running_gateway
from tests.peers.ircd import Ircd, ngircd
from tests.peers.ui import WAIT_MS, UiPage, new_page
from tests.peers.ui_state import EVIL

pytestmark = pytest.mark.peers

PASSWORD = "server-password"


class IrcUser:
    """A user on the server, who writes to the bot and reads what it answers."""

    def __init__(self, port: int, nick: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), READY_S)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._send(f"PASS {PASSWORD}\r\nNICK {nick}\r\nUSER {nick} 0 * :{EVIL}")
        self.wait_for(" 001 ")

    def say(self, target: str, text: str) -> None:
        self._send(f"PRIVMSG {target} :{text}")

    def wait_for(self, text: str) -> str:
        """Return the next line with this text; the socket has a timeout."""
        while text not in (line := self._lines.readline()):
            if line.startswith("PING"):
                self._send(line.strip().replace("PING", "PONG", 1))
        return line

    def leave(self) -> None:
        self._lines.close()
        self._socket.close()

    def _send(self, line: str) -> None:
        self._socket.sendall(f"{line}\r\n".encode())


@pytest.fixture(scope="module")
def irc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ircd]:
    with ngircd(tmp_path_factory.mktemp("ngircd"), password=PASSWORD) as server:
        yield server


@pytest.fixture
def ada(irc: Ircd) -> Iterator[IrcUser]:
    user = IrcUser(irc.port, "Ada")
    yield user
    user.leave()


def fill_form(ui: UiPage, server: Ircd, password: str) -> Locator:
    """Fill in the guided form for an account of the server."""
    ui.tab.get_by_role("button", name="Add channel").first.click()
    form = ui.tab.get_by_role("dialog")
    form.get_by_label("Service").select_option("irc")
    form.get_by_label("Host").fill("127.0.0.1")
    form.get_by_label("Nick", exact=True).fill("homarus")
    form.get_by_label("Password", exact=True).fill(password)
    form.get_by_text("More settings").click()
    form.get_by_label("Port").fill(str(server.port))
    form.get_by_label("Tls").select_option("false")
    return form


def test_channel_is_added_and_its_state_is_shown(
    ui: UiPage, ui_gateway: Running, irc: Ircd
) -> None:
    tab = ui.tab
    tab.goto(f"{ui_gateway.page}channels")
    expect(tab.get_by_text("No channels yet")).to_be_visible()
    form = fill_form(ui, irc, "wrong")
    ui.check_accessibility()
    form.get_by_role("button", name="Add channel").click()
    expect(tab.get_by_text("IRC is added.")).to_be_visible()
    account = tab.get_by_role("list", name="Accounts of irc")
    expect(account.locator(".field-error")).to_contain_text("assword", timeout=WAIT_MS)
    fill_form(ui, irc, PASSWORD).get_by_role("button", name="Add channel").click()
    expect(account.get_by_text("connected", exact=True)).to_be_visible(timeout=WAIT_MS)
    tab.get_by_role("button", name="Check all logins").click()
    expect(account.get_by_text("The login works: homarus")).to_be_visible(timeout=WAIT_MS)
    assert PASSWORD not in tab.content()
    config = call(ui_gateway, "config.get")["parsed"]
    assert config["channels"]["irc"]["port"] == irc.port


def test_person_is_paired_and_answered(
    ui: UiPage, ui_gateway: Running, irc: Ircd, ada: IrcUser
) -> None:
    tab = ui.tab
    ada.say("homarus", "Hello?")
    code = re.search(r"\b[A-Z0-9]{8}\b", ada.wait_for("code"))
    assert code
    tab.goto(f"{ui_gateway.page}channels")
    waiting = tab.get_by_role("list", name="People who wait for approval")
    expect(waiting).to_contain_text(code[0])
    ui.take_pictures("channels")
    waiting.get_by_role("button", name="Approve").click()
    expect(tab.get_by_text("is approved.")).to_be_visible()
    expect(waiting).to_have_count(0)
    ada.say("homarus", "And now? MOCK:say:Now I know you.§")
    assert "Now I know you." in ada.wait_for("Now I")
    account = tab.get_by_role("list", name="Accounts of irc")
    expect(account).to_contain_text("last message in", timeout=WAIT_MS)
    account.get_by_role("button", name="Log out irc default").click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_role("button", name="Log out").click()
    expect(dialog.get_by_role("alert")).to_contain_text("what lets it in is in the config")


def test_channel_whose_server_is_away_says_so(ui: UiPage, ui_gateway: Running, irc: Ircd) -> None:
    tab = ui.tab
    tab.goto(f"{ui_gateway.page}channels")
    account = tab.get_by_role("list", name="Accounts of irc")
    expect(account.get_by_text("connected", exact=True)).to_be_visible(timeout=WAIT_MS)
    irc.stop()
    expect(account.get_by_text("reconnecting")).to_be_visible(timeout=WAIT_MS)
    expect(account.locator(".field-error")).to_be_visible()
    irc.start()
    expect(account.get_by_text("connected", exact=True)).to_be_visible(timeout=3 * WAIT_MS)


@pytest.mark.usefixtures("ui_tools")
def test_new_gateway_is_set_up_in_the_browser(
    ui_browser: Browser, model: ModelServer, tmp_path: Path
) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = Home(tmp_path, {**kept, "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"})
    home.configure({"logging": {"file": str(tmp_path / LOG)}})
    with running_gateway(home, ui=True) as gateway:
        page = new_page(ui_browser).open(gateway)
        tab = page.tab
        tab.get_by_role("link", name="Set up your assistant").click()
        tab.get_by_role("button", name="Start").click()
        tab.get_by_text("Welcome to Homarus").wait_for()
        while "Which model" not in tab.locator(".setup-title").inner_text():
            tab.get_by_role("button", name="Continue").click()
            tab.get_by_text("One moment").wait_for(state="detached")
        page.take_pictures("setup")
        tab.reload()  # in the middle of it
        tab.get_by_role("button", name="Start").click()
        tab.get_by_text("Welcome to Homarus").wait_for()
        answer_steps(tab, model.url)
        tab.get_by_text("Your assistant is ready").wait_for()
        page.check_accessibility()
        tab.get_by_role("button", name="Send message").click()
        tab.wait_for_url("**/chat?session=*")
        assert tab.get_by_role("link", name="Set up your assistant").count() == 0
        config = call(gateway, "config.get")["parsed"]
        assert config["agents"]["defaults"]["model"]["primary"].endswith("/mock-1")
        assert page.problems == []


def answer_steps(tab: Page, url: str) -> None:
    """Answer the questions for a service of one's own; defaults answer the others."""
    texts = {"The base URL of the service": url, "The model's id": "mock-1", "API key": "sk-test"}
    options = {
        "configuration already": "Go through",
        "Which model should answer": "Another service",
    }
    title, shown = tab.locator(".setup-title"), ""
    while "is ready" not in shown:
        shown = title.inner_text()
        for question, text in texts.items():
            if question in shown:
                tab.get_by_label("Your answer").fill(text)
        for question, option in options.items():
            if question in shown:
                tab.get_by_role("radio", name=option).check()
        button = tab.get_by_role("button", name="Continue").or_(
            tab.get_by_role("button", name="Yes", exact=True)
        )
        if "is ready" not in shown:
            button.click()
            tab.wait_for_function(
                "old => { const now = document.querySelector('.setup-title');"
                " return now && now.textContent !== old && !/moment/.test(now.textContent) }",
                arg=shown,
            )
