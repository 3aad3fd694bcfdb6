"""`homarus channels` without a gateway: the configuration and the journal themselves."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli import channel_accounts, message_options
from homarus.cli.channels import command
from homarus.core.errors import ConfigError, UnknownNameError, UserError
from homarus.core.message import Address
from homarus.store.journal import OutboxRecord, OutboxState
from homarus.store.sqlite import open_store

TOKEN = "123456:abc_DEF"


def run(*args: str, text: str | None = None) -> Result:
    return CliRunner().invoke(command, args, input=text, standalone_mode=False)


def done(*args: str, text: str | None = None) -> str:
    result = run(*args, text=text)
    assert result.exception is None, result.exception
    return result.output


def refused(*args: str) -> UserError:
    error = run(*args).exception
    assert isinstance(error, UserError), error
    return error


def config(home: Path) -> Any:
    return json.loads((home / ".openclaw" / "openclaw.json").read_text(encoding="utf-8"))


def test_channels_without_config_prints_the_available_ones(home: Path) -> None:
    assert "No channel is configured.\nCan be added: " in done("list")
    assert done().startswith("The gateway is not running")
    assert done("status") == done()
    assert "telegram" in json.loads(done("list", "--json"))["available"]


def test_channels_add_writes_account_and_prints_next_step(home: Path) -> None:
    told = done("add", "telegram", "--token", TOKEN)
    assert told.startswith("telegram:default is in ~/.openclaw/openclaw.json.\n")
    assert "homarus gateway run" in told and "homarus pairing approve telegram CODE" in told
    assert TOKEN not in told
    assert config(home)["channels"] == {"telegram": {"enabled": True, "botToken": TOKEN}}
    done("add", "telegram", "--account", "Work", "--bot-token", "9:z", "--name", "Work bot")
    rows = json.loads(done("list", "--json"))["accounts"]
    assert [(row["account"], row["name"]) for row in rows] == [
        ("default", ""),
        ("work", "Work bot"),
    ]
    assert "telegram:work" in done("status") and "configured" in done("status")


def test_channels_add_keeps_comments_of_the_file(home: Path) -> None:
    file = home / ".openclaw" / "openclaw.json"
    file.write_text("{\n  // mine\n  agents: {},\n}\n", encoding="utf-8")
    done("add", "irc", "--host", "irc.example", "--nick", "bot")
    assert "// mine" in file.read_text(encoding="utf-8")


def test_channels_add_accepts_and_checks_any_setting(home: Path) -> None:
    said = (
        "--set",
        "allowFrom=[1]",
        "--set",
        "dmPolicy=allowlist",
        "--set",
        'groups["*"].enabled=false',
    )
    told = done("add", "telegram", "--token", TOKEN, *said)
    assert "Those in allowFrom are heard" in told
    section = config(home)["channels"]["telegram"]
    assert section["allowFrom"] == [1] and section["groups"] == {"*": {"enabled": False}}
    assert "did you mean allowFrom" in refused("add", "telegram", "--set", "allowfrom=[1]").fix
    assert "KEY=VALUE" in refused("add", "telegram", "--set", "x").message
    assert "everybody" in str(refused("add", "telegram", "--set", "dmPolicy=open")).lower()


def test_channels_add_reads_secret_from_variable_or_stdin(home: Path) -> None:
    done("add", "telegram", "--token", "${NOT_SET_HERE}")
    assert config(home)["channels"]["telegram"]["botToken"] == "${NOT_SET_HERE}"
    done("add", "telegram", "--token", "-", text=f"{TOKEN}\n")
    assert config(home)["channels"]["telegram"]["botToken"] == TOKEN
    error = run("add", "telegram", "--token", "-", text="\n").exception
    assert isinstance(error, UserError) and "no token came" in error.message
    assert config(home)["channels"]["telegram"]["botToken"] == TOKEN


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("telegram",), "no token"),
        (("telegram", "--token", "abc"), "not a token"),
        (("telegram", "--token", TOKEN, "--homeserver", "x"), "has no --homeserver"),
        (("irc", "--host", "h"), "nick"),
        (("irc", "--host", "h", "--nick", "a b"), "channels.irc.nick: that cannot be a nick"),
        (("matrix", "--homeserver", "https://m.example"), "accessToken"),
        (("telegram", "--account", "…"), "cannot be an account's id"),
    ],
)
def test_channels_add_that_could_not_work_writes_nothing(
    home: Path, args: tuple[str, ...], why: str
) -> None:
    error = refused("add", *args)
    assert why in str(error) and "abc_DEF" not in str(error)
    assert not (home / ".openclaw" / "openclaw.json").exists()


def test_channels_unknown_channel_suggests_the_nearest(home: Path) -> None:
    for args in (("add", "telegarm"), ("capabilities", "telegarm"), ("logout", "../telegram")):
        error = refused(*args)
        assert isinstance(error, UnknownNameError) and "did you mean telegram?" in error.fix


def test_channels_remove_disables_account_and_deletes_login(home: Path) -> None:
    done("add", "telegram", "--token", TOKEN)
    done("add", "telegram", "--account", "work", "--token", "9:z")
    login = home / ".openclaw" / "credentials" / "telegram" / "work.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    assert "telegram:work is off" in done("remove", "telegram", "--account", "work")
    assert login.exists() and "off" in done("list")
    told = json.loads(done("remove", "telegram", "--account", "work", "--delete", "--json"))
    assert told["deleted"] is True and told["accounts"] == ["work"] and not login.exists()
    assert list(config(home)["channels"]["telegram"]["accounts"]) == ["default"]
    assert "telegram is deleted from" in done("remove", "telegram", "--delete")
    assert config(home)["channels"] == {}
    assert "no channel 'telegram'" in refused("remove", "telegram").message


def test_channels_capabilities_are_those_of_the_account(home: Path) -> None:
    assert "No channel is configured" in done("capabilities")
    assert "is not configured" in refused("capabilities", "telegram").message
    done("add", "telegram", "--token", TOKEN)
    row = json.loads(done("capabilities", "--json"))[0]
    assert (row["unit"], row["dialect"]) == ("utf16", "telegram")
    assert {"Edits", "Reacts", "Types", "Probes"} <= set(row["abilities"])
    assert row["structure"] == ["topics"] and row["maxButtons"] > 0
    assert "4000 utf16 units, shown as telegram" in done("capabilities", "telegram")
    assert done("capabilities", "telegram", "--account", "Default") == done("capabilities")
    error = refused("capabilities", "telegram", "--account", "work")
    assert error.message == "telegram:work is not configured"


def test_channels_list_shows_an_invalid_account_with_its_error(home: Path) -> None:
    file = home / ".openclaw" / "openclaw.json"
    file.write_text('{channels: {matrix: {homeserver: "https://m.example"}}}', encoding="utf-8")
    for name in ("list", "status", "capabilities"):
        assert "accessToken" in done(name)
    file.write_text("{channels: {pigeon: {}}}", encoding="utf-8")
    assert "unknown channel 'pigeon'" in done("list")


def test_channels_logout_deletes_the_login(home: Path) -> None:
    assert "keeps no login" in refused("logout", "matrix").message
    login = home / ".openclaw" / "credentials" / "matrix" / "default.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    assert "is forgotten" in done("logout", "matrix") and not login.exists()


def test_channels_logs_prints_only_lines_about_channels(home: Path) -> None:
    log = home / "log.jsonl"
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps({"logging": {"file": str(log)}}))
    rows = [
        ("homarus.channels.telegram.adapter", "one"),
        ("homarus.gateway.server", "two"),
        ("homarus.core.tasks", "channel irc:default failed (1 in a row)"),
        ("homarus.channels.outbox_worker", "parcel x to irc:default:#a was given up"),
    ]
    log.write_text(
        "".join(
            json.dumps({"time": "t", "level": "info", "logger": who, "message": what}) + "\n"
            for who, what in rows
        )
        + "torn"
    )
    assert [line.split(": ", 1)[1] for line in done("logs").splitlines()] == [
        "one",
        "channel irc:default failed (1 in a row)",
        "parcel x to irc:default:#a was given up",
    ]
    assert "one" in done("logs", "--channel", "telegram")
    assert done("logs", "--channel", "telegram").count("\n") == 1
    assert done("logs", "--channel", "irc").count("\n") == 2
    assert json.loads(done("logs", "--lines", "1", "--json"))["message"].startswith("parcel x")


def fill(home: Path, **parcels: OutboxState) -> None:
    async def main() -> None:
        async with open_store(home / ".openclaw") as store:
            journal = store.journal
            async with journal.lease("send") as lease, journal.transaction() as unit:
                for name, state in parcels.items():
                    unit.enqueue(
                        OutboxRecord(name, "r", Address("irc", "#a"), f"about {name}", 1, 2)
                    )
                    unit.send_started(name, lease)
                    unit.send_ended(name, lease, state, why="nobody took it")

    asyncio.run(main())


def test_dead_letters_are_listed_retried_and_discarded(home: Path) -> None:
    assert done("dead-letters") == "There are none.\n"
    fill(home, parcel1="dead", parcel2="unknown", parcel3="sent", parcel4="dead")
    told = done("dead-letters")
    assert "parcel1: nobody took it" in told and "parcel3" not in told
    assert [row["id"] for row in json.loads(done("dead-letters", "list", "--json"))] == [
        "parcel1",
        "parcel2",
        "parcel4",
    ]
    assert done("dead-letters", "list", "--channel", "telegram") == "There are none.\n"
    again = done("dead-letters", "retry", "parcel1")
    assert again == "parcel1 is sent again when the gateway next starts.\n"
    assert "nothing that is stuck" in refused("dead-letters", "retry", "parcel1").message
    for args in ((), ("parcel2", "--all")):
        assert "say which one" in refused("dead-letters", "discard", *args).message
    assert json.loads(done("dead-letters", "discard", "--all", "--json"))["ids"] == [
        "parcel2",
        "parcel4",
    ]
    assert done("dead-letters", "discard", "--all") == "There are none.\n"


def test_channels_with_broken_config_reports_it(home: Path) -> None:
    (home / ".openclaw" / "openclaw.json").write_text("{channels: 7}")
    assert isinstance(run("list").exception, ConfigError)


class FakeGateway:
    """A gateway that starts accounts, and answers what their services said."""

    def __init__(self, **row: Any) -> None:
        self.row, self.asked = row, list[str]()

    async def __aenter__(self) -> "FakeGateway":
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass

    async def call(self, method: str, _params: Any, **_named: object) -> Any:
        self.asked.append(method)
        return {"channelAccounts": {"matrix": [{"accountId": "default", **self.row}]}}


def test_channels_login_starts_the_account_and_asks_who_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "while a gateway runs" in refused("login", "matrix").message
    gateway = FakeGateway(probe={"ok": True, "identity": "@bot:x.test"})
    monkeypatch.setattr(channel_accounts, "is_gateway_running", lambda _gateway: True)
    monkeypatch.setattr(channel_accounts, "open_gateway", lambda _gateway: gateway)
    assert "logged in as @bot:x.test" in done("login", "matrix")
    assert gateway.asked == ["channels.start", "channels.status"]
    gateway.row = {"probe": {"ok": False, "error": "M_FORBIDDEN\x1b"}}
    error = refused("login", "matrix")
    assert "M_FORBIDDEN" in error.message and "\x1b" not in error.message


def test_channels_resolve_shows_the_chat(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(_gateway: object, _method: str, params: Any) -> Any:
        assert params["params"] == {"target": "#x"} and params["channel"] == "irc"
        return {"channel": "irc", "accountId": "default", "to": "#x", "threadId": None}

    monkeypatch.setattr(message_options, "call_gateway", call)
    assert done("resolve", "#x", "--channel", "irc") == "irc:default, chat #x\n"


def test_channels_add_without_terminal_refuses_account_without_its_tokens(home: Path) -> None:
    assert "botToken" in str(refused("add", "slack"))
    assert "channels" not in (
        config(home) if (home / ".openclaw" / "openclaw.json").exists() else {}
    )
