"""`homarus update|docs|plugins|directory`: what they print, and what they run."""

import asyncio
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from homarus.cli import directory, docs, plugins, update
from homarus.core.errors import HomarusError, UnknownNameError, UserError
from homarus.core.installation import Installation
from homarus.store.base import SessionRecord
from homarus.store.sqlite import open_store


def run(command: click.Command, *args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def told(command: click.Command, *args: str) -> Any:
    done = run(command, *args, "--json")
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The programs that were started; each ends well unless it is called `broken`."""
    lines: list[list[str]] = []

    def start(argv: list[str], **_options: object) -> Any:
        lines.append(argv)
        return SimpleNamespace(returncode=int("broken" in argv))

    monkeypatch.setattr(subprocess, "run", start)
    return lines


def test_update_runs_the_tool_that_installed_it(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Installation("pipx", Path("/opt/pipx"))
    monkeypatch.setattr(update, "find_installation", lambda: installed)
    assert told(update.command, "--dry-run")["command"] == "pipx upgrade homarus" and not ran
    assert isinstance(run(update.command).exception, UserError) and not ran
    assert "gateway restart" in run(update.command, "--yes").stdout
    assert ran == [["pipx", "upgrade", "homarus"]]
    shown = told(update.command, "status")
    assert (shown["tool"], shown["command"]) == ("pipx", "pipx upgrade homarus")
    assert len(ran) == 1 and "installed with pipx" in run(update.command, "status").stdout


def test_failed_update_is_an_error(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SimpleNamespace(update="broken broken", tool="pip", folder="/x")
    monkeypatch.setattr(update, "find_installation", lambda: folder)
    error = run(update.command, "--yes").exception
    assert isinstance(error, UserError) and "status 1" in error.message


def test_docs_finds_pages_by_all_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "channels").mkdir()
    (tmp_path / "channels/telegram.md").write_text("# Telegram\n\n## Webhooks\n\nA webhook.\n")
    (tmp_path / "other.md").write_text("# Other\n\nA webhook, telegram.\n")
    (tmp_path / "none.md").write_text("# None\n")
    monkeypatch.setattr(docs, "find_docs", lambda: tmp_path)
    rows = told(docs.command, "Telegram", "webhook")["pages"]
    assert [row["title"] for row in rows] == ["Telegram", "Other"]
    assert rows[0]["sections"] == ["Webhooks"]
    assert rows[0]["address"].endswith("/channels/telegram.md")
    assert len(told(docs.command)["pages"]) == 3
    assert len(told(docs.command, "webhook", "--limit", "1")["pages"]) == 1
    assert "No page" in run(docs.command, "xyzzy").stdout


def test_docs_that_are_not_installed_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "find_docs", lambda: None)
    error = run(docs.command).exception
    assert isinstance(error, UserError) and error.fix.startswith("https://")


class FakeEntry(SimpleNamespace):
    """An entry point of an installed package."""

    def load(self) -> object:
        if self.name == "bad":
            raise ImportError("no module named x")
        return self


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SimpleNamespace(name="homarus", version="1", metadata={})
    other = SimpleNamespace(name="homarus-echo", version="2.0", metadata={"Summary": "Echoes"})
    entries = [
        FakeEntry(group="homarus.channels", name="echo", value="echo:module", dist=other),
        FakeEntry(group="homarus.providers", name="bad", value="echo:none", dist=other),
        FakeEntry(group="homarus.channels", name="irc", value="homarus.irc", dist=mine),
    ]

    def find(group: str, name: str | None = None) -> list[FakeEntry]:
        return [one for one in entries if one.group == group and name in {None, one.name}]

    monkeypatch.setattr(importlib.metadata, "entry_points", find)


@pytest.mark.usefixtures("packages")
def test_plugins_are_packages_of_others() -> None:
    (row,) = told(plugins.command, "list")["plugins"]
    assert (row["id"], row["version"], row["summary"]) == ("homarus-echo", "2.0", "Echoes")
    assert [(one["kind"], one["name"]) for one in row["adds"]] == [
        ("channel", "echo"), ("provider", "bad"),
    ]  # fmt: skip
    assert told(plugins.command, "info", "Homarus-Echo") == row
    assert isinstance(run(plugins.command, "info", "echo").exception, UnknownNameError)
    assert "channel echo" in run(plugins.command).stdout


@pytest.mark.usefixtures("packages")
def test_plugins_doctor_loads_what_they_add() -> None:
    done = CliRunner().invoke(plugins.command, ["doctor", "--json"])
    checked = json.loads(done.stdout)
    assert done.exit_code == 1 and not checked["ok"]
    assert [row["problem"] for row in checked["checked"]] == ["", "ImportError: no module named x"]


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("tool", "installs", "removes"),
    [
        ("pip", [sys.executable, "-m", "pip", "install", "homarus-x"],
         [sys.executable, "-m", "pip", "uninstall", "--yes", "homarus-echo"]),
        ("pipx", ["pipx", "inject", "homarus", "homarus-x"],
         ["pipx", "uninject", "homarus", "homarus-echo"]),
        ("uv", ["uv", "pip", "install", "--python", sys.executable, "homarus-x"],
         ["uv", "pip", "uninstall", "--python", sys.executable, "homarus-echo"]),
    ],
)  # fmt: skip
def test_plugins_are_installed_by_the_tool_of_the_program(
    ran: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tool: Any,
    installs: list[str],
    removes: list[str],
) -> None:
    monkeypatch.setattr(plugins, "find_installation", lambda: Installation(tool, Path("/x")))
    assert told(plugins.command, "install", "homarus-x", "--dry-run")["command"] == installs
    assert not ran and isinstance(run(plugins.command, "install", "x").exception, UserError)
    run(plugins.command, "install", "homarus-x", "--yes")
    run(plugins.command, "uninstall", "homarus-echo", "--yes")
    run(plugins.command, "update", "homarus-echo", "--yes")
    assert ran[:2] == [installs, removes] and ran[2][-1] == "homarus-echo"
    assert isinstance(run(plugins.command, "install", "--", "--pre").exception, HomarusError)
    assert len(ran) == 3


CONFIG = {
    "channels": {
        "telegram": {"botToken": "1:x", "allowFrom": ["77", "5"], "groups": {"-900": {}, "*": {}}}
    }
}


@pytest.fixture
def chats(home: Path) -> Path:
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(CONFIG))
    rows: list[tuple[str, dict[str, Any]]] = [
        ("agent:main:telegram:direct:5", {"lastChannel": "telegram", "lastTo": "5",
                                          "origin": {"label": "Ann\x1b[2J"}}),
        ("agent:main:telegram:group:-100", {"lastChannel": "telegram", "lastTo": "-100",
                                            "chatType": "group", "subject": "Family"}),
        ("agent:main:main", {"lastChannel": "webchat", "lastTo": "x"}),
    ]  # fmt: skip

    async def main() -> None:
        async with open_store(home / ".openclaw") as store, store.transaction() as transaction:
            for number, (key, data) in enumerate(rows):
                record = SessionRecord(key, "main", f"s{number}", 1_000 + number, data)
                transaction.put_session(record)

    asyncio.run(main())
    return home


def test_directory_has_each_chat_once(chats: Path) -> None:
    people = told(directory.command, "peers")["peers"]
    assert [(row["id"], row["source"]) for row in people] == [("5", "session"), ("77", "config")]
    rooms = told(directory.command, "groups")["groups"]
    assert [(row["id"], row["name"]) for row in rooms] == [("-100", "Family"), ("-900", "")]
    assert told(directory.command, "groups", "--query", "fam")["count"] == 1
    assert told(directory.command, "peers", "--channel", "irc")["count"] == 0
    assert "\x1b" not in run(directory.command, "peers").stdout


def test_directory_self_needs_a_gateway(home: Path) -> None:
    assert isinstance(run(directory.command, "self").exception, UserError)
