"""`homarus inbox` without a gateway: the journal itself is read and changed."""

import asyncio
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from homarus.cli.inbox import command
from homarus.core.errors import UserError
from homarus.core.message import Address, Inbound
from homarus.store.journal import InboxState, OutboxRecord
from homarus.store.sqlite import open_store

KEY = "agent:main:main"
CHAT = Address("mock", "7")


@pytest.fixture
def state(home: Path) -> Path:
    return home / ".openclaw"


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def refused(*args: str) -> UserError:
    error = run(*args).exception
    assert isinstance(error, UserError)
    return error


def fill(
    state: Path, *parked: str, waiting: tuple[str, ...] = (), lost: tuple[str, ...] = ()
) -> None:
    async def main() -> None:
        async with open_store(state) as store:
            journal = store.journal
            for name in (*parked, *waiting):
                inbound = Inbound(name, CHAT, "ann", f"about \x1b{name}", run_id=name)
                await journal.accept(KEY, inbound, at_ms=1)
            async with journal.lease(f"session:{KEY}") as lease, journal.transaction() as unit:
                for name in parked:
                    unit.mark_running([name], lease, run=name)
                    unit.settle([name], lease, "parked", at_ms=1, why="it was too much")
            async with journal.lease("send") as lease, journal.transaction() as unit:
                for name in lost:
                    unit.enqueue(OutboxRecord(name, "r", CHAT, "a reply", 1, 2))
                    unit.send_started(name, lease)
                    unit.send_ended(name, lease, "dead", why="nobody took it")

    asyncio.run(main())


def state_of(state: Path, name: str) -> InboxState | None:
    async def main() -> InboxState | None:
        async with open_store(state) as store:
            row = await store.journal.inbox_record(name)
            return row.state if row else None

    return asyncio.run(main())


def test_inbox_when_empty_says_so(state: Path) -> None:
    assert run().output == "Nothing waits.\n"
    assert run("--stuck").output == "Nothing is stuck.\n"


def test_inbox_lists_pending_records_with_reason_and_escapes(state: Path) -> None:
    fill(state, "parked-1", waiting=("waits-1",), lost=("r:0",))
    shown = run().output
    assert "parked" in shown and "accepted" in shown and "dead" in shown
    assert "parked-1: it was too much" in shown and "r:0: nobody took it" in shown
    assert "about \\u{1b}parked-1" in shown and "\x1b" not in shown
    assert f"{KEY} (mock, from ann)" in shown and "reply to mock (7)" in shown
    assert "waits-1" not in run("--stuck").output


def test_inbox_json_prints_one_object(state: Path) -> None:
    fill(state, "parked-1", lost=("r:0",))
    found = json.loads(run("--stuck", "--json").output)
    assert [one["id"] for one in found["messages"]] == ["parked-1"]
    assert [one["state"] for one in found["parcels"]] == ["dead"]


def test_inbox_retry_without_gateway_waits_for_the_next_start(state: Path) -> None:
    fill(state, "parked-1")
    told = run("retry", "park").output
    assert told == "parked-1 is tried again when the gateway next starts.\n"
    assert state_of(state, "parked-1") == "accepted"
    assert "nothing that is stuck" in refused("retry", "parked-1").message


def test_inbox_discard_reports_the_record(state: Path) -> None:
    fill(state, "parked-1", lost=("r:0",))
    assert run("discard", "parked-1").output == "parked-1 is given up.\n"
    told = json.loads(run("discard", "r:0", "--json").output)
    assert told == {"ok": True, "id": "r:0", "now": False}
    assert state_of(state, "parked-1") == "reported"
    assert run("--stuck").output == "Nothing is stuck.\n"


def test_inbox_ambiguous_or_unknown_id_is_an_error(state: Path) -> None:
    fill(state, "parked-1", "parked-2", waiting=("waits-1",))
    assert "could be 2 things" in refused("discard", "parked").message
    assert "did you mean parked-" in refused("discard", "parked-3").fix
    assert "homarus inbox --stuck" in refused("retry", "par").fix
    assert "nothing that is stuck" in refused("retry", "waits-1").message
    assert "\x1b" not in refused("retry", "\x1b[2J").message


def test_inbox_options_before_the_verb_are_refused(state: Path) -> None:
    fill(state, "parked-1")
    error = run("--url", "ws://far", "discard", "parked-1").exception
    assert isinstance(error, click.UsageError) and "after discard" in error.message
    assert state_of(state, "parked-1") == "parked"
