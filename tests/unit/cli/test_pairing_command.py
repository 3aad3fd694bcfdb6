"""`homarus pairing`: by the files alone, whether or not a gateway runs."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from homarus.channels.pairing import PairingRequest, PairingStore
from homarus.cli.main import COMMANDS
from homarus.cli.pairing import command
from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.message import Address, Inbound, InboundMetadata
from tests.openclaw_databases import put_senders


@pytest.fixture
def pairings(home: Path) -> PairingStore:
    return PairingStore(home / ".openclaw", SystemClock())


def ask(
    pairings: PairingStore, sender: str, account: str = "default", name: str = ""
) -> PairingRequest:
    about = InboundMetadata(name=name)
    found = pairings.get_or_create(
        Inbound("m", Address("telegram", sender, account), sender, "hi", metadata=about)
    )
    assert found
    return found


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def refused(*args: str) -> UserError:
    error = run(*args).exception
    assert isinstance(error, UserError)
    return error


def listed(*args: str) -> Any:
    return json.loads(run("list", *args, "--json").output)["requests"]


def test_pairing_is_a_command() -> None:
    assert COMMANDS["pairing"][0] == "pairing"


def test_pairing_list_when_empty_says_so(pairings: PairingStore) -> None:
    assert run("list").output == "Nobody waits.\n"
    assert run("list", "telegram").output == "Nobody waits.\n"


def test_pairing_list_shows_requests_and_escapes(pairings: PairingStore) -> None:
    first = ask(pairings, "42", name="An\x1b[31mn")
    second = ask(pairings, "43", "work")
    shown = run("list").output
    assert f"{first.code}  telegram  42 (An\\u{{1b}}[31mn)" in shown
    assert f"{second.code}  telegram to work  43" in shown and "\x1b" not in shown
    assert "          new, good for 59 min more\n" in shown
    assert [one["id"] for one in listed("telegram", "--account", "Work")] == ["43"]
    assert [one["code"] for one in listed()] == [first.code, second.code]


def test_pairing_approve_accepts_the_code_in_any_case(pairings: PairingStore) -> None:
    found = ask(pairings, "42")
    told = run("approve", "Telegram", found.code.lower()).output
    assert told.startswith("42 is heard on telegram from now on.\n") and "ownerAllowFrom" in told
    assert pairings.approved_senders("telegram", "default") == ("42",)
    assert "nobody on telegram waits" in refused("approve", "telegram", found.code).message


def test_pairing_wrong_code_or_channel_is_reported(pairings: PairingStore) -> None:
    found = ask(pairings, "42")
    wrong = refused("approve", "telegram", "WRONGONE")
    assert "it is wrong, used, or older than 60 minutes" in wrong.message
    assert "homarus pairing list telegram" in wrong.fix
    assert "nobody on matrix" in refused("approve", "matrix", found.code).message
    assert (
        "of account work" in refused("approve", "telegram", found.code, "--account", "work").message
    )
    assert "not the name of a channel" in refused("approve", "../x", found.code).message
    assert "not the name of a channel" in refused("list", "a/b").message
    assert pairings.approved_senders("telegram", "default") == ()


def test_pairing_reject_allows_a_new_request(pairings: PairingStore) -> None:
    found = ask(pairings, "42")
    assert run("reject", "telegram", found.code).output == "42 was not let in.\n"
    assert pairings.pending("telegram") == () and not pairings.approved_senders(
        "telegram", "default"
    )
    again = ask(pairings, "42")
    done = json.loads(run("reject", "telegram", again.code, "--json").output)
    assert done["ok"] is True and done["request"]["id"] == "42"


def test_pairing_approve_without_gateway_approves_unnotified(
    pairings: PairingStore,
) -> None:
    found = ask(pairings, "42")
    done = run("approve", "telegram", found.code, "--notify", "--json")
    assert "no gateway runs" in done.stderr
    told = json.loads(done.stdout)
    assert told["notified"] is False and told["request"]["code"] == found.code
    assert pairings.approved_senders("telegram", "default") == ("42",)


def test_pairing_approve_requires_a_channel(pairings: PairingStore) -> None:
    assert isinstance(run("approve", "ABCDEFGH").exception, click.UsageError)


def test_pairing_revoke_removes_a_sender_and_names_openclaw(home: Path) -> None:
    put_senders(home / ".openclaw", "42")
    done = run("revoke", "telegram", "42")
    assert done.output == (
        "42 is not approved on telegram any more.\n"
        "OpenClaw still approves them when it runs: its database is not changed.\n"
    )
    assert "not approved on telegram by pairing" in refused("revoke", "telegram", "42").message
    put_senders(home / ".openclaw", "43", account="work")
    told = json.loads(run("revoke", "telegram", "43", "--account", "work", "--json").output)
    assert told == {"ok": True, "sender": "43", "inOpenClaw": True}
