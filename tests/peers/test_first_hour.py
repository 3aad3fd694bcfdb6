"""The first hour of a new user who has the wheel and an empty home, up to its removal."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from homarus.testing.model_server import ModelServer
from tests.peers.browser import Browser, Page
from tests.peers.install import debian
from tests.peers.screen import DEADLINE_S, Screen, shown
from tests.peers.wheel import NewUser, clean_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

ANSWER = "Hello from the mock model."
PROMPTS = ("Answer", "Number", "Not shown", "Yes or no")
ANSWERED = "article[aria-label='The agent answered']"
STATE = "document.querySelector('[data-testid=connection-state]')"
# What the user had before: none of it may change.
MINE = {".bashrc": "alias ll='ls -l'\n", ".config/editor.toml": "tabs = 4\n", "notes/a.txt": "x\n"}


@pytest.fixture
def user(programs: Path, tmp_path: Path) -> NewUser:
    debian(tmux="tmux", git="git")
    home = tmp_path / "home"
    for name, text in MINE.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    terminal = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": "$ "}
    return NewUser(home, {**clean_env(home, programs), **terminal})


@contextmanager
def shell(user: NewUser, folder: Path) -> Iterator[Screen]:
    """A shell on a screen of its own."""
    folder.mkdir()
    with shown(["sh", "-c", f"cd {user.home} && exec sh"], user.env, folder) as screen:
        screen.wait_for("$ ")
        yield screen


def wait_for_prompt(screen: Screen, *prompts: str) -> None:
    """Wait until the last line of the screen is a prompt."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (lines := screen.text.strip().splitlines()) or not lines[-1].startswith(prompts):
        assert time.monotonic() < deadline_s, f"none of {prompts} on the screen:\n{screen.text}"
        time.sleep(0.1)


def answer(screen: Screen, question: str, text: str = "") -> None:
    """Wait for a question of the wizard, and type the answer to it; alone, Enter is pressed."""
    screen.wait_for(question)
    wait_for_prompt(screen, *PROMPTS)
    if text:
        screen.type(text)
    screen.press("Enter")


def onboard(screen: Screen, model: ModelServer) -> None:
    """Go through the wizard: a model behind a key, a name, and the defaults."""
    screen.enter("homarus")
    screen.wait_for("Welcome to Homarus")
    answer(screen, "Which model should answer?", "custom")
    answer(screen, "The base URL of the service", model.url)
    answer(screen, "Which API does it speak?")
    answer(screen, "A name for the service", "mock")
    answer(screen, "The API key of mock", "sk-first-hour")
    answer(screen, "Which model?")
    screen.wait_for(ANSWER)
    answer(screen, "What is the agent called?", "Nyx")
    answer(screen, "In which folder are its files?")
    answer(screen, "Which chat service should reach the agent first?")
    end = screen.wait_for("Done")
    assert "sk-first-hour" not in end
    wait_for_prompt(screen, "$")


def ask(page: Page, text: str) -> None:
    page.wait_until(f"{STATE}?.textContent === 'Connected' && document.querySelector('textarea')")
    page.type("textarea", text)
    page.press("Enter")
    page.wait_for_text(ANSWERED, ANSWER)


def link(user: NewUser, command: str) -> str:
    found = re.search(r"https?://\S+", user.must(command))
    assert found and "#token=" in found[0]
    return found[0]


def let_in(user: NewUser, page: Page) -> None:
    """Approve the phone, as its page says."""
    text = page.wait_for_text("body", "homarus devices approve ")
    command = re.search(r"homarus devices approve [\w-]+", text)
    assert command
    user.must(command[0])


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_first_hour_from_the_wheel_leaves_nothing(
    user: NewUser, model: ModelServer, browser: Browser, tmp_path: Path
) -> None:
    before = contents(user.home)
    with shell(user, tmp_path / "first") as screen, shell(user, tmp_path / "second") as other:
        onboard(screen, model)
        screen.enter("clear; homarus chat")
        wait_for_prompt(screen, ">")
        screen.enter("Good morning")
        screen.wait_for(ANSWER)
        screen.enter("/quit")
        wait_for_prompt(screen, "$")

        other.enter("homarus gateway run --port 0")
        other.wait_for("The gateway is ready on ws://")
        ask(browser.open(link(user, "homarus dashboard")), "And in a browser?")
        other.press("C-c")
        wait_for_prompt(other, "$", "^C$")

        user.must("homarus config set gateway.bind lan")
        user.must("homarus config set gateway.tls.enabled true")
        other.enter("clear; homarus gateway run --port 0")
        other.wait_for("The gateway is ready on wss://")
        phone = browser.open("about:blank")
        phone.call("Security.setIgnoreCertificateErrors", ignore=True)
        size = {"width": 390, "height": 844, "deviceScaleFactor": 3, "mobile": True}
        phone.call("Emulation.setDeviceMetricsOverride", **size)
        address = link(user, "homarus qr --no-ascii")
        assert address.startswith("https://") and "127.0.0.1" not in address
        phone.go(address)
        let_in(user, phone)
        ask(phone, "And on a phone?")
        assert phone.run("document.documentElement.scrollWidth") <= 390

        screen.enter("clear; homarus uninstall")
        screen.wait_for("Remove the state?")
        screen.enter("y")
        screen.wait_for("Remove ~/.openclaw/workspace, too?")
        screen.enter("y")
        screen.wait_for("Stop it?")
        screen.enter("y")
        screen.wait_for("pip uninstall homarus")
    assert contents(user.home) == before
    assert sorted(path.name for path in user.home.iterdir()) == [".bashrc", ".config", "notes"]
