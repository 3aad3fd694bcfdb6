"""`homarus channels add` at a terminal: what an account needs is asked for."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.e2e.program import Home
from tests.e2e.screen import ScreenTerminal

BOT_TOKEN = f"1:{'A' * 35}"
TOY = '''
"""Toy: a service whose settings are a token, a number and a secret."""

from homarus.channels.base import Capabilities
from homarus.config.channels import ChannelSettings
from pydantic import Field, SecretStr

LABEL = "Toy"


class Settings(ChannelSettings):
    """One account."""

    server_url: str = Field(description="Where the toy server is.")
    api_key: SecretStr
    room_number: int
    comment: str = ""


def create(context, settings):
    return object()
'''


Add: TypeAlias = Callable[..., ScreenTerminal]


@pytest.fixture
def add(home: Home) -> Iterator[Add]:
    """Run `homarus channels add` at a terminal."""
    opened: list[ScreenTerminal] = []

    def start(*args: str) -> ScreenTerminal:
        opened.append(ScreenTerminal(home, "channels", "add", *args))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def section(home: Home, channel: str) -> dict[str, Any]:
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = config["channels"][channel]
    return found


def install_toy(home: Home, folder: Path) -> None:
    """Make the channel visible as an installed package is: by its entry point."""
    info = folder / "homarus_toy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: homarus-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[homarus.channels]\ntoy = homarus_toy\n")
    (folder / "homarus_toy.py").write_text(TOY, encoding="utf-8")
    path = home.env.get("PYTHONPATH")
    home.env["PYTHONPATH"] = f"{folder}:{path}" if path else str(folder)


def test_channels_add_in_terminal_asks_for_needed_settings(home: Home, add: Add) -> None:
    terminal = add("irc")
    terminal.wait_until("IRC needs more settings")
    terminal.wait_until("The IRC server:")
    terminal.type("irc.example")
    terminal.wait_until("The bot's nick:")
    terminal.type("lobster")
    shown = terminal.wait_until("irc:default is in")
    assert terminal.end() == 0
    assert "password" not in shown.lower()
    assert section(home, "irc") == {"enabled": True, "host": "irc.example", "nick": "lobster"}


def test_channels_add_in_terminal_hides_secret(home: Home, add: Add) -> None:
    terminal = add("telegram")
    terminal.wait_until("The bot's token:")
    terminal.type(BOT_TOKEN)
    shown = terminal.wait_until("telegram:default is in")
    assert terminal.end() == 0 and BOT_TOKEN not in shown
    assert section(home, "telegram")["botToken"] == BOT_TOKEN


def test_channels_add_in_terminal_asks_only_for_what_is_missing(home: Home, add: Add) -> None:
    terminal = add("matrix", "--access-token", "syt_x")
    terminal.wait_until("The homeserver of the bot's account:")
    terminal.type("https://matrix.example")
    shown = terminal.wait_until("matrix:default is in")
    assert terminal.end() == 0 and "The bot's id" not in shown


def test_channels_add_in_terminal_asks_for_what_the_mode_needs(home: Home, add: Add) -> None:
    terminal = add("slack", "--set", "mode=http")
    terminal.wait_until("The bot token, xoxb-…:")
    terminal.type("xoxb-1")
    terminal.wait_until("The signing secret:")
    terminal.type("0123456789abcdef")
    shown = terminal.wait_until("slack:default is in")
    assert terminal.end() == 0 and "The app token" not in shown and "xoxb-1" not in shown
    assert section(home, "slack")["signingSecret"] == "0123456789abcdef"


def test_channels_add_in_terminal_asks_for_no_token_of_the_environment(
    home: Home, add: Add
) -> None:
    home.env["SLACK_BOT_TOKEN"] = "xoxb-1"
    terminal = add("slack")
    terminal.wait_until("The app token, xapp-…:")
    terminal.type("xapp-1")
    shown = terminal.wait_until("slack:default is in")
    assert terminal.end() == 0 and "The bot token" not in shown
    assert section(home, "slack") == {"enabled": True, "appToken": "xapp-1"}


def test_channels_add_of_other_package_asks_by_its_schema(
    home: Home, add: Add, tmp_path: Path
) -> None:
    install_toy(home, tmp_path / "site")
    terminal = add("toy")
    shown = terminal.wait_until("Server url:")
    assert "Toy needs more settings" in shown and "Where the toy server is." in shown
    terminal.type("http://127.0.0.1:9")
    terminal.wait_until("Api key:")
    terminal.type("very-secret")
    terminal.wait_until("Room number:")
    terminal.type("12")
    shown = terminal.wait_until("toy:default is in")
    assert terminal.end() == 0 and "very-secret" not in shown
    saved = section(home, "toy")
    assert saved == {
        "enabled": True,
        "serverUrl": "http://127.0.0.1:9",
        "apiKey": "very-secret",
        "roomNumber": 12,
    }


def test_channels_add_wrong_answer_is_refused_and_writes_nothing(home: Home, add: Add) -> None:
    terminal = add("telegram")
    terminal.wait_until("The bot's token:")
    terminal.type("not-a-token")
    terminal.wait_until("that is not a token of a bot")
    assert terminal.end() != 0
    assert not (home.state / "openclaw.json").exists()


def test_channels_add_cancelled_writes_nothing(home: Home, add: Add) -> None:
    terminal = add("telegram")
    terminal.wait_until("The bot's token:")
    terminal.press("\x03")
    assert terminal.end() == 130
    assert not (home.state / "openclaw.json").exists()


@pytest.mark.parametrize("args", [("irc",), ("irc", "--json")])
def test_channels_add_without_terminal_asks_nothing(home: Home, args: tuple[str, ...]) -> None:
    done = home.run("channels", "add", *args, text="irc.example\nlobster\n")
    assert done.status == 2 and "host" in done.err + done.out and "IRC server" not in done.out
    assert not (home.state / "openclaw.json").exists()
