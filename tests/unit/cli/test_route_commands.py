"""`homarus agents bind|unbind|bindings` and `homarus route explain`, without a gateway."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from homarus.cli.agents import command as agents_command
from homarus.cli.route import command as route_command
from homarus.core.errors import UnknownNameError, UserError

CONFIG = """{
  // Who lives here
  agents: { list: [{ id: "home", default: true }, { id: "work" }] },
  bindings: [
    // the family's
    { agentId: "home", match: { channel: "whatsapp", accountId: "*" } }, // all of it
  ],
  channels: { telegram: { botToken: "${BOT_TOKEN}" } },
}
"""


@pytest.fixture
def file(home: Path) -> Path:
    file = home / ".openclaw" / "openclaw.json"
    file.write_text(CONFIG)
    return file


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT_TOKEN", "secret-token")


def run(*args: str, command: click.Command = agents_command) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def told(*args: str, command: click.Command = agents_command) -> Any:
    done = run(*args, "--json", command=command)
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


def refused(*args: str, command: click.Command = agents_command) -> UserError:
    error = run(*args, command=command).exception
    assert isinstance(error, UserError), error
    return error


def test_bind_list_and_unbind_keep_comments(file: Path) -> None:
    chat = ("--agent", "Work", "--bind", "telegram:biz", "--peer", "group:-100")
    done = run("bind", *chat, "--role", "r1", "--role", "r2")
    shown = "work answers telegram (biz), group -100, role r1 or r2 (~/.openclaw/openclaw.json).\n"
    assert done.stdout == shown and done.stderr == ""
    text = file.read_text()
    assert "// the family's" in text and "// all of it" in text and "${BOT_TOKEN}" in text
    assert run("bindings").stdout == (
        "home         whatsapp (*)\nwork         telegram (biz), group -100, role r1 or r2\n"
    )
    assert told("bindings", "--agent", "work") == [
        {
            "agentId": "work",
            "match": {
                "channel": "telegram",
                "accountId": "biz",
                "peer": {"kind": "group", "id": "-100"},
                "roles": ["r1", "r2"],
            },
            "description": "telegram (biz), group -100, role r1 or r2",
        }
    ]
    assert "bound to it already" in str(refused("bind", *chat, "--role", "r2", "--role", "r1"))
    assert "is not bound" in str(refused("unbind", *chat))
    gone = told("unbind", *chat, "--role", "r1", "--role", "r2")
    assert gone["bindings"] == ["telegram (biz), group -100, role r1 or r2"]
    text = file.read_text()
    assert "// the family's" in text and "telegram (biz)" not in text
    assert [row["agentId"] for row in told("bindings")] == ["home"]


def test_bind_without_agent_uses_the_default_one(file: Path) -> None:
    assert told("bind", "--bind", "irc", "--bind", "irc:b")["bindings"] == ["irc", "irc (b)"]
    assert "irc" in file.read_text()
    assert told("unbind", "--all")["bindings"] == ["whatsapp (*)", "irc", "irc (b)"]
    assert "Nothing is bound to home." in run("unbind", "--all").stdout
    assert "home answers everywhere" in run("bindings").stdout


def test_bind_to_unconfigured_channel_warns(file: Path) -> None:
    done = run("bind", "--agent", "work", "--bind", "irc")
    assert done.stderr == "channels.irc is not configured yet: nothing comes from there.\n"
    assert "irc" in file.read_text()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("bind", "--agent", "wrok", "--bind", "telegram"), "work"),
        (("bind", "--agent", "work", "--bind", "telegarm"), "telegram"),
        (("add", "new", "--bind", "telegarm"), "telegram"),
        (("bindings", "--agent", "wrok"), "work"),
    ],
)
def test_bind_with_unknown_name_suggests_the_nearest(
    args: tuple[str, ...], why: str, file: Path
) -> None:
    error = refused(*args)
    assert isinstance(error, UnknownNameError) and why in str(error)
    assert file.read_text() == CONFIG


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("bind", "--agent", "work"), "no channel is named"),
        (("bind", "--bind", ":x"), "names no channel"),
        (("bind", "--bind", "irc", "--peer", "-100"), "names no chat"),
        (("bind", "--agent", "work", "--bind", "whatsapp:*"), 'bound to agent "home" already'),
        (("unbind", "--all", "--bind", "irc"), "two things"),
        (("unbind", "--all", "--peer", "group:1"), "two things"),
        (("unbind", "--bind", "nowhere"), "nowhere is not bound"),
    ],
)
def test_bind_with_invalid_match_changes_nothing(
    args: tuple[str, ...], why: str, file: Path
) -> None:
    assert why in str(refused(*args))
    assert file.read_text() == CONFIG


def explain(*args: str) -> Any:
    return told("explain", *args, command=route_command)


def test_route_explain_prints_agent_and_bindings(file: Path) -> None:
    run("bind", "--agent", "work", "--bind", "telegram:biz", "--peer", "group:-100")
    asked = ("--channel", "Telegram", "--account", "biz", "--peer", "group:-100", "--thread", "7")
    found = explain(*asked)
    assert found["routes"] == [
        {
            "agentId": "work",
            "channel": "telegram",
            "accountId": "biz",
            "sessionKey": "agent:work:telegram:group:-100:topic:7",
            "mainSessionKey": "agent:work:main",
            "matchedBy": "binding.peer.parent",
        }
    ]
    printed = run("explain", *asked, command=route_command).stdout
    assert printed.splitlines() == found["explanation"]
    assert "bindings[1], telegram (biz), group -100 → work: taken" in printed
    same = explain("--from", "telegram:group:-100:topic:7", "--account", "biz")
    assert same == found
    assert file.exists()


def test_route_explain_without_chat_is_that_of_the_channel(file: Path) -> None:
    assert explain("--channel", "whatsapp")["routes"][0]["matchedBy"] == "binding.channel"
    matrix = explain("--from", "matrix:dm:@Ann:hs")["routes"][0]
    assert matrix["sessionKey"] == "agent:home:main"
    thread = explain("--from", "slack:channel:C1:thread:1.2", "--guild", "g", "--team", "T")
    assert thread["explanation"][0] == "slack (default), channel C1, thread 1.2, guild g, team T"
    assert file.read_text() == CONFIG


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "no channel is named"),
        (("--channel", "telegarm"), "telegram"),
        (("--from", "telegram"), "names no chat"),
        (("--from", "telegram:-100"), "names no chat"),
        (("--from", "telegram:group:"), "has no id"),
        (("--from", "telegram:group:1", "--peer", "group:1"), "already names"),
    ],
)
def test_route_explain_with_invalid_chat_is_refused(
    args: tuple[str, ...], why: str, file: Path
) -> None:
    assert why in str(refused("explain", *args, command=route_command))
    assert file.read_text() == CONFIG
