"""The group history after a restart: what a second process reads from the records of the first."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from homarus.channels.group_history import GroupHistory
from homarus.core.message import Address, Inbound, InboundMetadata
from homarus.store.chat_records import ChatRecord, chat_key
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore

AGENT, GROUP = "main", Address("svc", "group")
ANN = InboundMetadata(kind="group", name="Ann")
LIMIT = 50
Step: TypeAlias = Callable[[GroupHistory], object]


def line(number: int, text: str = "") -> Inbound:
    return Inbound(f"m{number}", GROUP, "ann", text or f"line {number}", metadata=ANN)


async def restarted(*steps: Step) -> GroupHistory:
    """Return the history that another process loads after these steps."""
    first, key = GroupHistory(FakeClock()), chat_key(GROUP, AGENT)
    async with MemoryStore() as store:
        for step in steps:
            step(first)
            changes: list[ChatRecord] = first.take_changes()
            async with store.transaction() as transaction:
                transaction.put_chat_records(*changes)
        records = await store.journal.chat_records("history", key)
    second = GroupHistory(FakeClock())
    second.load(AGENT, GROUP, records)
    return second


def add(number: int) -> Step:
    return lambda history: history.add(AGENT, line(number), LIMIT)


def edit(number: int, text: str) -> Step:
    return lambda history: history.amend(AGENT, GROUP, f"m{number}", line(number, text))


def collect(number: int) -> Step:
    return lambda history: history.collect_for(AGENT, line(number), LIMIT)


async def test_group_history_edited_line_keeps_its_place_after_restart() -> None:
    history = await restarted(add(1), add(2), add(3), edit(1, "first"))
    assert history.collect_for(AGENT, line(9), LIMIT).split("\n") == [
        "Ann (ann): first",
        "Ann (ann): line 2",
        "Ann (ann): line 3",
    ]


@pytest.mark.parametrize("again", [[], [edit(1, "first")], [add(1)]])
async def test_group_history_collected_line_is_no_context_again(again: list[Step]) -> None:
    history = await restarted(add(1), collect(2), *again, add(3))
    asked = replace(line(4), metadata=replace(ANN, mentioned=True))
    assert history.collect_for(AGENT, asked, LIMIT) == "Ann (ann): line 3"
