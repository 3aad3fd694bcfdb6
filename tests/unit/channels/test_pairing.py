"""Pairing: codes, pending requests, approved senders, and files that others write too."""

import json
import multiprocessing
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.channels.pairing import ALPHABET, TTL_MS, PairingRequest, PairingStore
from homarus.channels.pairing_file import MAX_BYTES, PairingFile, locked
from homarus.core.clock import SystemClock
from homarus.core.errors import StoreError, UserError
from homarus.core.message import Address, Inbound, InboundMetadata
from homarus.testing.clock import START_MS, FakeClock


def message(sender: str = "42", account: str = "default", channel: str = "telegram") -> Inbound:
    about = InboundMetadata(name="Ann\n\x1b[31m", handle="ann")
    return Inbound("m", Address(channel, sender, account), sender, "hi", metadata=about)


def make(state: Path, clock: FakeClock | None = None) -> PairingStore:
    return PairingStore(state, clock or FakeClock(), wait_s=0.05)


def asked(pairings: PairingStore, sender: str = "42", account: str = "default") -> PairingRequest:
    found = pairings.get_or_create(message(sender, account))
    assert found is not None
    return found


def tree(state: Path, name: str = "telegram-pairing.json") -> Any:
    return json.loads((state / "credentials" / name).read_text())


async def pass_time(clock: FakeClock, ms: int) -> None:
    await clock.advance(ms / 1000)


def test_pairing_request_is_written_in_openclaw_format_mode_0600(tmp_path: Path) -> None:
    found = asked(make(tmp_path))
    assert len(found.code) == 8 and set(found.code) <= set(ALPHABET)
    (row,) = tree(tmp_path)["requests"]
    assert tree(tmp_path)["version"] == 1
    assert row["id"] == "42" and row["code"] == found.code
    assert row["createdAt"] == row["lastSeenAt"] == "2027-01-15T08:00:00.000Z"
    assert row["meta"] == {"name": "Ann \\u{1b}[31m", "username": "ann", "accountId": "default"}
    mode = (tmp_path / "credentials" / "telegram-pairing.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert found.created_ms == START_MS


async def test_pairing_repeated_request_keeps_code_and_writes_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    pairings = make(tmp_path, clock)
    first = asked(pairings)
    before = (tmp_path / "credentials" / "telegram-pairing.json").stat().st_mtime_ns
    assert asked(pairings).code == first.code
    assert (tmp_path / "credentials" / "telegram-pairing.json").stat().st_mtime_ns == before
    await pass_time(clock, 61_000)
    again = asked(pairings)
    assert again.code == first.code and again.seen_ms == again.created_ms + 61_000
    assert tree(tmp_path)["requests"][0]["lastSeenAt"] == "2027-01-15T08:01:01.000Z"


async def test_pairing_code_expires_after_an_hour(tmp_path: Path) -> None:
    clock = FakeClock()
    pairings = make(tmp_path, clock)
    first = asked(pairings)
    await pass_time(clock, TTL_MS - 1)
    assert asked(pairings).code == first.code
    await pass_time(clock, 1)
    assert pairings.pending("telegram") == ()
    with pytest.raises(UserError, match="older than 60 minutes"):
        pairings.approve("telegram", first.code)
    assert asked(pairings).code != first.code
    assert len(tree(tmp_path)["requests"]) == 1


def test_pairing_more_than_three_requests_are_refused(tmp_path: Path) -> None:
    pairings = make(tmp_path)
    waiting = [asked(pairings, str(n)) for n in range(1, 4)]
    assert all(pairings.get_or_create(message(str(n))) is None for n in range(4, 40))
    assert [one.code for one in pairings.pending("telegram")] == [one.code for one in waiting]
    assert asked(pairings, "4", "work").account == "work"  # another account has its own three
    pairings.reject("telegram", waiting[0].code)
    assert asked(pairings, "5").id == "5"


def test_pairing_approved_sender_is_listed_and_request_removed(tmp_path: Path) -> None:
    pairings = make(tmp_path)
    found = asked(pairings)
    written = f" {found.code[:4].lower()}-{found.code[4:].lower()} "
    assert pairings.approve("telegram", written).id == "42"
    assert pairings.approved_senders("telegram", "default") == ("42",)
    assert tree(tmp_path, "telegram-allowFrom.json") == {"version": 1, "allowFrom": ["42"]}
    assert pairings.pending("telegram") == ()
    with pytest.raises(UserError, match="wrong, used, or older"):
        pairings.approve("telegram", found.code)
    assert pairings.approved_senders("telegram", "work") == ()  # another account
    assert pairings.approved_senders("matrix", "default") == ()


def test_pairing_each_account_has_its_own_list(tmp_path: Path) -> None:
    pairings = make(tmp_path)
    found = asked(pairings, account="work")
    with pytest.raises(UserError, match="of account default"):
        pairings.approve("telegram", found.code, "default")
    pairings.approve("telegram", found.code, "work")
    assert tree(tmp_path, "telegram-work-allowFrom.json")["allowFrom"] == ["42"]
    assert pairings.approved_senders("telegram", "work") == ("42",)
    assert pairings.approved_senders("telegram", "default") == ()


def test_pairing_openclaw_files_are_read_for_default_account(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    for name, ids in (("telegram", ["1", 2, "*", None, ["3"]]), ("telegram-default", ["4"])):
        told = {"version": 1, "allowFrom": ids, "extra": True}
        (folder / f"{name}-allowFrom.json").write_text(json.dumps(told))
    pairings = make(tmp_path)
    assert pairings.approved_senders("telegram", "default") == (
        "1",
        "2",
        "4",
    )  # `*` approves no sender here
    pairings.approve("telegram", asked(pairings).code)
    kept = tree(tmp_path, "telegram-allowFrom.json")
    assert kept["extra"] is True and kept["allowFrom"][-1] == "42"


@pytest.mark.parametrize("content", ["{", "[]", "x" * (MAX_BYTES + 1), "\xff", '{"a":' * 100_000])
def test_pairing_unreadable_file_lists_no_one_and_is_kept(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    for name in ("telegram-allowFrom.json", "telegram-pairing.json"):
        (folder / name).write_bytes(content.encode("latin-1"))
    pairings = make(tmp_path)
    for _ in range(3):
        assert pairings.approved_senders("telegram", "default") == ()
    assert sum("nobody is let in by" in one.message for one in caplog.records) == 1
    with pytest.raises(StoreError):
        pairings.get_or_create(message())
    with pytest.raises(StoreError):
        pairings.approve("telegram", "ABCDEFGH")
    assert (folder / "telegram-pairing.json").read_bytes() == content.encode("latin-1")
    (folder / "telegram-allowFrom.json").write_text('{"allowFrom": ["42"]}')
    assert pairings.approved_senders("telegram", "default") == ("42",)  # repaired


@pytest.mark.parametrize(
    "rows",
    [
        "nobody",
        [1, None, {}],
        [{"id": "1", "code": "", "createdAt": "2027-01-15T08:00:00Z"}],
        [{"id": "1", "code": "ABCDEFGH", "createdAt": "yesterday"}],
        [{"id": "1", "code": "ABCDEFGH", "createdAt": "2027-01-15T08:00:00"}],
        [{"id": "1", "code": "ABCDEFGH", "createdAt": 5}],
        [{"id": "1", "code": "ABCDEFGH", "createdAt": "2099-01-15T08:00:00Z"}],
        [{"id": 1, "code": ["A"], "createdAt": "2027-01-15T08:00:00Z"}],
    ],
)
def test_pairing_malformed_requests_are_ignored(tmp_path: Path, rows: object) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "telegram-pairing.json").write_text(json.dumps({"version": 1, "requests": rows}))
    pairings = make(tmp_path)
    assert pairings.pending("telegram") == ()
    assert asked(pairings).id == "42"


@pytest.mark.parametrize("name", ["", "..", "a/b", "Telegram", "a b", "x" * 50, "a-", "telegram\n"])
def test_pairing_channel_name_cannot_escape_directory(tmp_path: Path, name: str) -> None:
    pairings = make(tmp_path)
    with pytest.raises(UserError, match="not the name of a channel"):
        pairings.pending(name)
    with pytest.raises(UserError):
        pairings.approve(name, "ABCDEFGH")
    with pytest.raises(UserError):
        pairings.approved_senders(name, "default")


def test_pairing_lists_channels_with_requests(tmp_path: Path) -> None:
    pairings = make(tmp_path)
    assert pairings.channels() == ()
    pairings.get_or_create(message())
    pairings.get_or_create(message("@a:b.org", channel="matrix"))
    assert pairings.channels() == ("matrix", "telegram")


def test_pairing_chat_is_kept_when_it_differs_from_sender(tmp_path: Path) -> None:
    pairings = make(tmp_path)
    inbound = message("@ann:x.org", channel="matrix")
    found = pairings.get_or_create(replace(inbound, address=Address("matrix", "!room:x.org")))
    assert found and found.id == "@ann:x.org" and found.chat == "!room:x.org"
    assert asked(pairings).chat == "42"


def test_pairing_lock_held_by_other_process_times_out(tmp_path: Path) -> None:
    path = tmp_path / "credentials" / ".telegram-pairing.lock"
    with locked(path, 0.0), pytest.raises(StoreError, match="another program holds it"):
        make(tmp_path).get_or_create(message())
    assert make(tmp_path).get_or_create(message())


def test_pairing_directory_that_cannot_be_made_raises_error(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("a file")
    with pytest.raises(StoreError, match="cannot be locked"):
        make(tmp_path).get_or_create(message())


def test_pairing_directory_in_place_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    with pytest.raises(StoreError, match="is not a file"):
        PairingFile(tmp_path / "x.json").read()


def _approve_all(state: str, codes: list[str]) -> None:
    pairings = PairingStore(Path(state), SystemClock(), wait_s=60)
    for code in codes:
        pairings.approve("telegram", code)


def test_pairing_concurrent_processes_lose_nothing(tmp_path: Path) -> None:
    clock = SystemClock()
    pairings = PairingStore(tmp_path, clock, wait_s=60)
    accounts = [f"a{n}" for n in range(8)]
    codes = [asked(pairings, str(n), account).code for account in accounts for n in (1, 2, 3)]
    spawn = multiprocessing.get_context("spawn")
    halves = [codes[0::2], codes[1::2]]
    others = [spawn.Process(target=_approve_all, args=(str(tmp_path), half)) for half in halves]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
        assert other.exitcode == 0
        other.close()
    assert pairings.pending("telegram") == ()
    assert all(
        sorted(pairings.approved_senders("telegram", one)) == ["1", "2", "3"] for one in accounts
    )
