"""The order of sub-agents in a list, and which of them a word names."""

from typing import Any

import pytest

from homarus.agent.subagents.targets import SubagentList, arrange_subagents, find_target
from homarus.core.errors import UserError
from homarus.store.subagents import SubagentRecord

NOW_MS = 100 * 60_000


def record(name: str, created_ms: int, **fields: Any) -> SubagentRecord:
    child = f"agent:main:subagent:{name}-0000-4000-8000-000000000000"
    return SubagentRecord(child, f"run{name}-1111", "agent:main:main", "Work", created_ms, **fields)


OLD = record("aaaa", 1_000, status="done", ended_ms=2_000, label="old one")
RECENT = record("bbbb", 2_000, status="failed", ended_ms=NOW_MS - 60_000, label="lamps")
FIRST = record("cccc", 3_000, label="Boats")
SECOND = record("dddd", 4_000, label="boat house")


@pytest.fixture
def listed() -> SubagentList:
    return arrange_subagents([RECENT, OLD, FIRST, SECOND], NOW_MS)


def test_subagents_are_listed_active_first_and_newest_first(listed: SubagentList) -> None:
    assert listed.numbered == (SECOND, FIRST, RECENT)
    assert listed.older == (OLD,)
    assert arrange_subagents([OLD], NOW_MS, 1440).recent == (OLD,)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("1", SECOND),
        ("#2", FIRST),
        ("3", RECENT),
        ("lamps", RECENT),
        ("LAMPS", RECENT),
        ("boats", FIRST),
        ("boat h", SECOND),
        ("old one", OLD),
        ("runcccc", FIRST),
        (RECENT.run_id, RECENT),
        (SECOND.child_key, SECOND),
        ("agent:main:subagent:bbbb", RECENT),
        ("dddd-0000", SECOND),
    ],
)
def test_target_is_found_by_number_label_run_or_key(
    word: str, expected: SubagentRecord, listed: SubagentList
) -> None:
    assert find_target(listed, word) is expected


@pytest.mark.parametrize("word", ["", "0", "4", "#9", "nosuch", "run", "zz"])
def test_target_that_names_none_is_refused(word: str, listed: SubagentList) -> None:
    with pytest.raises(UserError) as refused:
        find_target(listed, word)
    assert "/subagents list" in refused.value.fix


@pytest.mark.parametrize("word", ["boat", "agent:main:subagent"])
def test_target_that_names_several_is_refused_with_run_ids(word: str, listed: SubagentList) -> None:
    with pytest.raises(UserError) as refused:
        find_target(listed, word)
    assert "runcccc" in refused.value.fix and "rundddd" in refused.value.fix


def test_target_prefers_the_active_one_of_two_with_a_label() -> None:
    ended = record("eeee", 1, status="done", ended_ms=NOW_MS, label="boats")
    assert find_target(arrange_subagents([ended, FIRST], NOW_MS), "boats") is FIRST


def test_target_in_an_empty_list_says_that_there_are_none() -> None:
    with pytest.raises(UserError) as refused:
        find_target(arrange_subagents([], NOW_MS), "1")
    assert refused.value.fix == "this conversation has no sub-agents"
