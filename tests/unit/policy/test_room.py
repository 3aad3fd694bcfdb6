"""Which tools there are for whom in a group."""

from collections.abc import Mapping
from typing import Any

import pytest

from homarus.channels.roster import find_traits
from homarus.config.channels import AccountSettings
from homarus.core.message import Address
from homarus.policy.decide import Rules
from homarus.policy.room import find_room, tool_rules

NO_EXEC = Rules(deny=("exec",))


def rules(groups: Mapping[str, Any], sender: str = "42", chat: str = "-1") -> Rules | None:
    settings = AccountSettings.model_validate({"groups": groups})
    room = find_room(settings, Address("telegram", chat), find_traits)
    return tool_rules(room, "telegram", sender, find_traits)


def test_a_group_that_says_nothing_of_tools_takes_none_away() -> None:
    assert rules({}) is None
    assert rules({"-1": {"requireMention": False}, "*": {}}) is None


def test_a_group_is_found_by_its_id_and_what_is_usual_holds_for_the_others() -> None:
    groups = {"telegram:-1": {"tools": {"deny": ["exec"]}}, "*": {"tools": {"deny": ["read"]}}}
    assert rules(groups) == NO_EXEC
    assert rules(groups, chat="-2") == Rules(deny=("read",))


def test_naming_a_group_for_another_reason_does_not_free_its_tools() -> None:
    groups = {"-1": {"requireMention": False}, "*": {"tools": {"deny": ["exec"]}}}
    assert rules(groups) == NO_EXEC
    assert rules({**groups, "-1": {"tools": {}}}) == Rules()  # unless it says so itself


@pytest.mark.parametrize(
    ("sender", "found"),
    [
        ("7", Rules()),
        ("42", NO_EXEC),
        ("8", Rules(allow=("read",))),
        ("9", Rules(allow=("read",))),  # a name is not an id
        ("", Rules(allow=("read",))),
    ],
)
def test_what_is_said_of_a_person_comes_before_what_is_said_of_all(
    sender: str, found: Rules
) -> None:
    people = {
        "tg:7": {},
        "42": {"deny": ["bash"]},
        "@ann": {},
        "*": {"allow": ["read"]},
    }
    assert rules({"-1": {"toolsBySender": people, "tools": {"deny": ["read"]}}}, sender) == found


def test_who_is_not_among_the_people_has_what_the_group_has() -> None:
    groups = {"-1": {"toolsBySender": {"7": {}}, "tools": {"deny": ["exec"]}}}
    assert (rules(groups, "7"), rules(groups, "8")) == (Rules(), NO_EXEC)


def test_people_of_all_groups_count_where_a_group_says_nothing() -> None:
    groups = {"-1": {}, "*": {"toolsBySender": {"7": {"deny": ["exec"]}}}}
    assert (rules(groups, "7"), rules(groups, "8")) == (NO_EXEC, None)


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        ({"allow": ["group:web"], "alsoAllow": ["read"]},
         Rules(allow=("web_search", "web_fetch", "read"))),
        ({"alsoAllow": ["read"]}, Rules()),
        ({"alsoAllow": ["read"], "deny": ["Bash "]}, NO_EXEC),
    ],
)  # fmt: skip
def test_what_is_allowed_beside_adds_to_a_list_and_is_none_by_itself(
    tools: Mapping[str, Any], found: Rules
) -> None:
    assert rules({"-1": {"tools": tools}}) == found
