"""The first evening with the control UI: from an empty home and the wheel to a lost connection.

A new user starts the gateway, opens the link of `homarus dashboard`, is led through the setup, and
then chats, approves a command, searches the memory, changes the config, and loses the connection
and the gateway while an answer is written. All of it happens on a desktop, and on a phone.
"""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, ViewportSize, expect

from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall
from tests.e2e.program import Home
from tests.peers.gateway import Running, running_gateway
from tests.peers.test_ui_chat import Wire, answers, saved
from tests.peers.ui import DESKTOP, WAIT_MS, UiPage, new_page
from tests.peers.wheel import NewUser, clean_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]  # the first run builds the wheel

SMALL_PHONE: ViewportSize = {"width": 360, "height": 740}
NOTE = "- Ada is allergic to walnuts.\n"
WORDS = 120
# What a person types and chooses; a step that is not listed keeps what it offers.
TYPED = {"The base URL of the service": "", "A name for the service": "mock", "API key": "sk-story"}
CHOSEN = {"Which model should answer": "Another service"}
MAX_STEPS, MAX_INPUTS = 14, 5


@dataclass
class Story:
    """One user with their browser, and the gateway that they started."""

    user: NewUser
    home: Home
    program: Path
    model: ModelServer
    page: UiPage
    wire: Wire
    is_phone: bool
    gateway: Running
    _running: ExitStack

    def start_again(self) -> None:
        """Kill the gateway as a power cut does, and start it again on its port."""
        self.gateway.process.kill()
        self._running.close()
        self.gateway = self._running.enter_context(
            running_gateway(self.home, self.gateway.port, ui=True, program=self.program)
        )

    def go(self, title: str) -> None:
        """Go to a page with the navigation."""
        tab = self.page.tab
        if self.is_phone:
            tab.get_by_role("button", name="More", exact=True).tap()
        menu = tab.get_by_role("navigation", name="Pages", exact=True)
        link = menu.get_by_role("link", name=title, exact=True)
        if not link.is_visible():
            menu.get_by_text("More pages").click()
        link.click()
        expect(tab).to_have_url(re.compile(f"/{title.lower()}\\b"))
        expect(tab.get_by_role("heading", level=1)).to_be_visible()
        self.check_width()

    def new_conversation(self) -> None:
        tab = self.page.tab
        before = tab.url
        if self.is_phone:
            tab.get_by_role("button", name="More", exact=True).tap()
        tab.get_by_role("button", name="New conversation").click()
        expect(tab).not_to_have_url(before)
        expect(tab.get_by_text("What can I do for you?")).to_be_visible()

    def send(self, text: str) -> None:
        tab = self.page.tab
        tab.get_by_label("Message", exact=True).fill(text)
        if self.is_phone:  # where Enter starts a line
            tab.get_by_role("button", name="Send").tap()
        else:
            tab.keyboard.press("Enter")

    def check_width(self) -> None:
        """Nothing is wider than the screen."""
        assert self.page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(params=["desktop", "phone"])
def story(
    request: pytest.FixtureRequest,
    programs: Path,
    model: ModelServer,
    ui_browser: Browser,
    tmp_path: Path,
) -> Iterator[Story]:
    """Start the gateway in an empty home, and open the link that `homarus dashboard` prints."""
    folder = tmp_path / "home"
    folder.mkdir()
    user = NewUser(folder, clean_env(folder, programs))
    home, program = Home(folder, user.env), programs / "homarus"
    is_phone = request.param == "phone"
    with ExitStack() as running:
        gateway = running.enter_context(running_gateway(home, ui=True, program=program))
        page = new_page(ui_browser, has_touch=is_phone, is_mobile=is_phone)
        page.tab.set_viewport_size(SMALL_PHONE if is_phone else DESKTOP)
        wire = Wire(page)
        link = re.search(r"http://\S+#token=\S+", user.must("homarus dashboard"))
        assert link
        page.tab.goto(link[0])
        page.wait_for_connection()
        yield Story(user, home, program, model, page, wire, is_phone, gateway, running)
        assert page.problems == []
        page.tab.context.close()


def test_story_of_a_new_user(story: Story) -> None:
    started_s = time.monotonic()
    steps, inputs = set_up(story)
    print(f"the setup: {steps} steps, {inputs} inputs, {time.monotonic() - started_s:.1f} s")
    assert steps <= MAX_STEPS and inputs <= MAX_INPUTS, (steps, inputs)
    use_tool(story)
    approve_command(story)
    search_memory(story)
    change_config(story)
    lose_connection(story)
    lose_gateway(story)


def set_up(story: Story) -> tuple[int, int]:
    """Go through the setup, and send the first message; return its steps and what was typed."""
    tab = story.page.tab
    tab.get_by_role("link", name="Set up your assistant").click()
    tab.get_by_role("button", name="Start").click()
    title = tab.locator(".setup-title")
    steps = inputs = 0
    shown = title.inner_text()
    while "is ready" not in shown:
        steps += 1
        inputs += answer_step(story, shown)
        story.check_width()
        tab.get_by_role("button", name=re.compile("^(Continue|Yes)$")).click()
        expect(title).not_to_have_text(re.compile(f"^({re.escape(shown)}|One moment)$"))
        shown = title.inner_text()
    tab.get_by_label("Your first message").fill("Hello MOCK:say:Hello, I am **ready**.§")
    tab.get_by_role("button", name="Send message").click()
    expect(saved(story.page).locator("strong")).to_have_text("ready")
    expect(tab.get_by_role("link", name="Set up your assistant")).to_have_count(0)
    return steps, inputs


def answer_step(story: Story, question: str) -> int:
    """Answer a step; return whether anything was typed or chosen."""
    tab = story.page.tab
    for part, text in TYPED.items():
        if part in question:
            tab.get_by_label("Your answer").fill(text or story.model.url)
            return 1
    for part, option in CHOSEN.items():
        if part in question:
            tab.get_by_role("radio", name=option).check()
            return 1
    return 0


def tool_card(page: UiPage, name: str) -> Locator:
    return saved(page).locator("details.chat-tool").filter(has_text=name)


def use_tool(story: Story) -> None:
    """The agent writes a note of the day with a tool; its card shows the arguments."""
    story.new_conversation()
    path = "memory/2026-02-03.md"
    note = ScriptedCall("write", {"path": path, "content": NOTE})
    story.model.script([Say("I write it down."), CallTools(note)], [Say("I will remember.")])
    story.send("Ada is allergic to walnuts")
    expect(saved(story.page)).to_contain_text("I will remember.")
    expect(tool_card(story.page, "write")).to_contain_text(path)
    assert (story.home.workspace / path).read_text(encoding="utf-8") == NOTE
    story.check_width()


def approve_command(story: Story) -> None:
    """A command waits for the person, and runs when it is allowed."""
    made = story.home.workspace / "made.txt"
    touch = ScriptedCall("exec", {"command": "touch made.txt"})
    story.model.script([CallTools(touch)], [Say("It is made.")])
    story.send("Make the file")
    card = story.page.tab.locator("[data-pending]")
    expect(card).to_contain_text("touch made.txt")
    story.check_width()
    assert not made.exists()
    card.get_by_role("button", name="Allow once").click()
    expect(saved(story.page).last).to_contain_text("It is made.")
    assert made.exists()


def search_memory(story: Story) -> None:
    """What the agent wrote down is found, and opened where it was written."""
    story.go("Memory")
    tab = story.page.tab
    tab.get_by_label("What to look for").fill("walnuts")
    tab.keyboard.press("Enter")
    results = tab.get_by_role("list", name="Results")
    expect(results).to_contain_text("walnuts", timeout=WAIT_MS)
    story.check_width()
    results.get_by_role("button", name="memory/2026-02-03.md").first.click()
    expect(tab.get_by_role("dialog")).to_contain_text("Ada is allergic to walnuts.")
    tab.keyboard.press("Escape")


def change_config(story: Story) -> None:
    """A setting is changed in the form; the change is shown before it is applied."""
    story.go("Config")
    tab = story.page.tab
    tab.get_by_label("Search settings").fill("spend.perDay")
    tab.get_by_label("agents.defaults.spend.perDayUsd", exact=True).fill("2.5")
    tab.get_by_role("button", name="Review changes").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog.locator(".diff-add").filter(has_text='"perDayUsd": 2.5')).to_be_visible()
    story.check_width()
    dialog.get_by_role("button", name="Apply").click()
    expect(tab.get_by_text("Saved and in use.")).to_be_visible(timeout=WAIT_MS)
    assert story.user.must("homarus config get agents.defaults.spend.perDayUsd").strip() == "2.5"


def check_words(answer: Locator) -> None:
    """Every word of the answer is there, once and in order."""
    words = re.findall(r"word\d{4}", answer.inner_text())
    assert words == [f"word{number:04d}" for number in range(WORDS)]


def lose_connection(story: Story) -> None:
    """The socket closes while an answer is written: what was written meanwhile is there."""
    story.go("Chat")
    story.new_conversation()
    page = story.page
    story.send(f"Tell me MOCK:long:{WORDS}:20")
    expect(answers(page)).to_contain_text("word0010", timeout=WAIT_MS)
    story.wire.cut()
    expect(page.tab.get_by_role("button", name="Try now")).to_be_visible()
    story.wire.is_cut = False
    page.tab.get_by_role("button", name="Try now").click()
    expect(saved(page)).to_have_count(1, timeout=2 * WAIT_MS)
    check_words(saved(page))
    expect(answers(page)).to_have_count(1)


def lose_gateway(story: Story) -> None:
    """The gateway is killed while it answers: it answers after its start, once."""
    page = story.page
    story.send(f"And again MOCK:long:{WORDS}:20")
    expect(answers(page).last).to_contain_text("word0010", timeout=WAIT_MS)
    story.start_again()
    page.wait_for_connection()
    expect(saved(page)).to_have_count(2, timeout=3 * WAIT_MS)
    check_words(saved(page).last)
    expect(answers(page)).to_have_count(2)
    expect(page.tab.locator("article.chat-question")).to_have_count(2)
    story.check_width()
