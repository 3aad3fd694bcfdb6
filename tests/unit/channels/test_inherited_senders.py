"""Senders that OpenClaw 2026.9 has approved in its database: approved here, until revoked."""

import json
import logging
from pathlib import Path

import pytest

from homarus.channels.pairing import PairingStore
from homarus.core.errors import UserError
from homarus.core.message import Address, Inbound
from homarus.testing.clock import FakeClock
from tests.openclaw_databases import file_contents, make_state_database, put_senders


@pytest.fixture
def state(tmp_path: Path) -> Path:
    put_senders(tmp_path, "7", "telegram:8", "*")
    put_senders(tmp_path, "9", account="work")
    return tmp_path


def pairings(state: Path) -> PairingStore:
    return PairingStore(state, FakeClock(), wait_s=0.05)


def approve(store: PairingStore, sender: str) -> None:
    found = store.get_or_create(Inbound("m", Address("telegram", sender), sender, "hi"))
    assert found
    store.approve("telegram", found.code)


def allow_file(state: Path) -> Path:
    return state / "homarus/credentials/telegram-allowFrom.json"


def test_senders_of_openclaw_are_approved_per_account_but_not_all(state: Path) -> None:
    store, before = pairings(state), file_contents(state)
    assert store.approved_senders("telegram", "default") == ("7", "telegram:8")
    assert store.approved_senders("telegram", "work") == ("9",)
    assert store.approved_senders("irc", "default") == ()
    assert file_contents(state) == before


def test_approval_here_is_added_to_openclaws(state: Path) -> None:
    store = pairings(state)
    approve(store, "42")
    assert store.approved_senders("telegram", "default") == ("42", "7", "telegram:8")
    put_senders(state, "43", account="")
    assert "43" in store.approved_senders("telegram", "default"), "a change is seen"


def test_revoked_sender_of_openclaw_is_refused_until_approved_again(state: Path) -> None:
    database = (state / "state/openclaw.sqlite").read_bytes()
    assert pairings(state).revoke("telegram", "8", "default") is True
    assert pairings(state).approved_senders("telegram", "default") == ("7",)
    assert (state / "state/openclaw.sqlite").read_bytes() == database
    with pytest.raises(UserError, match="is not approved on telegram"):
        pairings(state).revoke("telegram", "tg:8", "default")
    approve(pairings(state), "8")
    assert set(pairings(state).approved_senders("telegram", "default")) == {"8", "7", "telegram:8"}


def test_revoked_sender_of_ours_is_removed_from_the_file(tmp_path: Path) -> None:
    store = pairings(tmp_path)
    approve(store, "42")
    assert store.revoke("telegram", "telegram:42", "default") is False
    assert store.approved_senders("telegram", "default") == ()
    tree = json.loads((tmp_path / "credentials/telegram-allowFrom.json").read_text())
    assert tree == {"version": 1, "allowFrom": []}
    with pytest.raises(UserError):
        store.revoke("telegram", "@name", "default")


def test_unreadable_database_approves_no_sender_and_is_logged_once(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = pairings(state)
    approve(store, "42")
    (state / "state/openclaw.sqlite").write_bytes(b"no database" * 200)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert store.approved_senders("telegram", "default") == ("42",)
    assert len(caplog.records) == 1 and "openclaw.sqlite is damaged" in caplog.text


def test_unreadable_file_of_ours_approves_no_sender_of_openclaw(state: Path) -> None:
    store = pairings(state)
    store.revoke("telegram", "7", "default")
    allow_file(state).write_text("{broken")
    assert store.approved_senders("telegram", "default") == (), "it may revoke any of them"


def test_home_without_the_table_approves_no_sender(tmp_path: Path) -> None:
    make_state_database(tmp_path, {})
    assert pairings(tmp_path).approved_senders("telegram", "default") == ()
