"""A flipped byte in state.sqlite costs no conversation: it is rebuilt from its file.

The gateway starts, every chat and `/new` go on, nothing is doubled, and the damaged file is kept.
"""

import asyncio
import logging
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from homarus.cli.doctor import command as doctor
from homarus.store.lock import StateLock
from homarus.store.sqlite import open_store
from homarus.store.state_paths import REPAIRED
from tests.crash.conftest import MakeRig
from tests.crash.random_kills import ECHO
from tests.hardening.state_sample import (
    AT_MS,
    ENTRIES,
    MESSAGES,
    SESSIONS,
    entry,
    fill_state,
    flip_byte,
    key,
    read_entries,
    session_id,
    use_store,
)

pytestmark = pytest.mark.slow  # random bytes are flipped, many times

TRIALS = 40
GATEWAY_TRIALS = 6
DATABASE = "state.sqlite"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("sample") / "state"
    asyncio.run(fill_state(state))
    return state


@pytest.mark.parametrize("seed", range(TRIALS))
async def test_flipped_byte_leaves_every_conversation_usable(
    sample: Path, tmp_path: Path, seed: int
) -> None:
    state = tmp_path / "state"
    flip_byte(sample, state, seed)
    async with open_store(state) as store:
        await use_store(store)
        for number in range(SESSIONS):
            found = await read_entries(store, number)
            written = [entry(number, place) for place in range(ENTRIES)]
            added = f"ffff{number:04x}"
            assert [one.id for one in found] == [*(one.id for one in written), added]
            assert [one.parent for one in found[1:]] == [one.id for one in found[:-1]]
            # Only a text that is still valid can differ, by the byte itself.
            pairs = zip(found, written, strict=False)
            assert sum(one.data != other.data for one, other in pairs) <= 1
        messages = await store.journal.inbox_records()
        assert len({one.message_id for one in messages}) == len(messages) <= MESSAGES + 1
    async with open_store(state) as store:  # and it stays so
        record = await store.session(key(SESSIONS - 1))
        assert record is not None and record.session_id == "new-session"
    for number in range(SESSIONS - 1):
        file = state / f"agents/main/sessions/{session_id(number)}.jsonl"
        lines = file.read_bytes().splitlines()
        assert len(lines) == ENTRIES + 2


def damage_page(state: Path, page: int) -> bytes:
    """Overwrite one page, and return the damaged file."""
    data = bytearray((state / DATABASE).read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xaa" * 4096
    (state / DATABASE).write_bytes(data)
    return bytes(data)


def pages_of(state: Path, table: str) -> list[int]:
    db = apsw.Connection(str(state / DATABASE))
    try:
        found = db.execute("SELECT pageno FROM dbstat WHERE name = ?", (table,)).fetchall()
    finally:
        db.close()
    return [int(str(page)) for (page,) in found]


@pytest.mark.parametrize(
    "table", ["sqlite_schema", "sessions", "transcripts", "entries", "accepted", "parcels", "meta"]
)
async def test_lost_page_of_any_table_is_survived(tmp_path: Path, table: str) -> None:
    await fill_state(tmp_path)
    damaged = damage_page(tmp_path, pages_of(tmp_path, table)[-1])
    async with open_store(tmp_path) as store:
        await use_store(store)
        for number in range(SESSIONS):
            assert len(await read_entries(store, number)) == ENTRIES + 1
    (kept,) = tmp_path.glob(f"{DATABASE}.damaged-*")
    assert kept.read_bytes() == damaged and kept.stat().st_mode & 0o777 == 0o600


async def test_lost_first_page_keeps_the_journal(tmp_path: Path) -> None:
    """The pages of the schema are rewritten: the rows are all there."""
    await fill_state(tmp_path)
    damage_page(tmp_path, 1)
    async with open_store(tmp_path) as store:
        assert len(await store.journal.inbox_records()) == MESSAGES
        assert len(await store.journal.inbox_records("accepted")) == MESSAGES // 20
        assert len(await store.usage_records()) == MESSAGES
        again = (await store.journal.inbox_records())[0].inbound
        assert again is not None
        assert (await store.journal.accept(key(0), again, at_ms=AT_MS)).kind == "duplicate"


async def test_entries_that_only_the_database_has_are_kept(tmp_path: Path) -> None:
    """The file is a moment behind; what it lacks follows what it has."""
    await fill_state(tmp_path)
    async with open_store(tmp_path, mirror=False) as store, store.transaction() as transaction:
        transaction.append(session_id(0), entry(0, ENTRIES), entry(0, ENTRIES + 1))
    db = apsw.Connection(str(tmp_path / DATABASE))
    db.execute("UPDATE entries SET json = '{' WHERE seq = 7")
    db.close()
    async with open_store(tmp_path) as store:
        found = await read_entries(store, 0)
    assert [one.id for one in found] == [entry(0, place).id for place in range(ENTRIES + 2)]


async def test_damage_met_while_running_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No start in between: the call that meets the damage is made again."""
    await fill_state(tmp_path)
    async with open_store(tmp_path) as store:
        other = apsw.Connection(str(tmp_path / DATABASE))
        other.set_busy_timeout(5_000)
        other.execute("UPDATE entries SET json = substr(json, 9) WHERE seq BETWEEN 3 AND 9")
        other.execute("UPDATE sessions SET json = CAST(x'ff' AS TEXT) WHERE key = ?", (key(2),))
        other.close()
        with caplog.at_level(logging.ERROR):
            await use_store(store)
        for number in range(SESSIONS):
            found = await read_entries(store, number)
            expected = [entry(number, place).id for place in range(ENTRIES)]
            assert [one.id for one in found] == [*expected, f"ffff{number:04x}"]
    assert "was repaired" in caplog.text


async def test_wrong_value_of_a_caller_starts_no_repair(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        with pytest.raises(ValueError, match="surrogates"):
            await store.session("agent:main:\ud800")
    assert not list(tmp_path.glob(f"{DATABASE}.damaged-*"))


@pytest.mark.parametrize("moved", [(), ("-wal",), ("-wal", "")])
async def test_repair_cut_short_is_finished_at_the_next_start(
    tmp_path: Path, moved: tuple[str, ...]
) -> None:
    """Killed between the renames: the old log must not be applied to the repaired database."""
    await fill_state(tmp_path / "good")
    await fill_state(tmp_path / "bad")
    database = tmp_path / "bad" / DATABASE
    (tmp_path / "good" / DATABASE).rename(tmp_path / "bad" / REPAIRED)
    Path(f"{database}-wal").write_bytes(b"old log")
    damage_page(tmp_path / "bad", 1)
    for suffix in moved:
        Path(f"{database}{suffix}").unlink()
    async with open_store(tmp_path / "bad") as store:
        await use_store(store)
        assert len(await read_entries(store, 0)) == ENTRIES + 1


async def test_doctor_finds_damage_and_fix_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / ".openclaw"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OPENCLAW_STATE_DIR", raising=False)
    await fill_state(state)
    sound = await asyncio.to_thread(CliRunner().invoke, doctor, ["--all"])
    assert "the database is sound" in sound.output
    db = apsw.Connection(str(state / DATABASE))
    db.execute("UPDATE entries SET json = replace(json, '7 7', '7 8') WHERE seq = 8")
    db.close()
    found = await asyncio.to_thread(CliRunner().invoke, doctor, [])
    assert found.exit_code == 1 and "6 entries" not in found.output
    assert "entries of agents/main/sessions" in found.output and "doctor --fix" in found.output
    lock = StateLock(state)
    refused = await asyncio.to_thread(CliRunner().invoke, doctor, ["--fix"])
    assert refused.exit_code == 1 and "uses the state directory" in refused.output
    lock.release()
    fixed = await asyncio.to_thread(CliRunner().invoke, doctor, ["--fix"])
    assert "was repaired" in fixed.output and "the database is sound" in fixed.output
    assert len(list(state.glob(f"{DATABASE}.damaged-*"))) == 1
    async with open_store(state) as store:
        found_entries = await read_entries(store, 3)
        assert [one.data for one in found_entries] == [entry(3, n).data for n in range(ENTRIES)]


@pytest.mark.parametrize("trial", range(GATEWAY_TRIALS))
def test_gateway_with_flipped_byte_starts_and_answers(
    make_rig: MakeRig,
    trial: int,
) -> None:
    rig = make_rig()
    rig.start()
    for chat in ("one", "two"):
        for _ in range(3):
            rig.offer(ECHO, chat)
            rig.settle()
    rig.kill()
    copy = rig.folder / "flipped"
    flip_byte(rig.state, copy, 100 + trial)
    (rig.state / DATABASE).write_bytes((copy / DATABASE).read_bytes())
    rig.start()
    rig.wait_ready()
    for chat in ("one", "two"):
        rig.offer(ECHO, chat)
    verdict = rig.settle()
    assert len(verdict.answered) == 8 and not verdict.doubled and not verdict.lost
    rig.offer("/new", "one", marks=["session"])
    rig.offer(ECHO, "one")
    rig.settle(reported=True)
    assert rig.gateway is not None and not rig.gateway.ended()
    history = rig.messages("agent:main:scripted:direct:two")
    assert [one["role"] for one in history] == ["user", "assistant"] * 4
