"""Which tools a sender has in a group."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from homarus.channels.registry import find_traits
from homarus.config.channels import AccountSettings
from homarus.core.message import Address, InboundMetadata
from homarus.policy.group_policy import ResolvedGroup, resolve_group, tool_rules
from homarus.policy.tool_policy import ToolRules

NO_EXEC = ToolRules(deny=("exec",))


def rules(groups: Mapping[str, Any], sender: str = "42", chat: str = "-1") -> ToolRules | None:
    settings = AccountSettings.model_validate({"groups": groups})
    room = resolve_group(settings, Address("telegram", chat), find_traits)
    return tool_rules(room, "telegram", sender, find_traits)


def test_group_rules_without_tools_remove_none() -> None:
    assert rules({}) is None
    assert rules({"-1": {"requireMention": False}, "*": {}}) is None


def test_group_rules_by_id_else_by_star() -> None:
    groups = {"telegram:-1": {"tools": {"deny": ["exec"]}}, "*": {"tools": {"deny": ["read"]}}}
    assert rules(groups) == NO_EXEC
    assert rules(groups, chat="-2") == ToolRules(deny=("read",))


def test_group_rules_group_without_tools_uses_star() -> None:
    groups = {"-1": {"requireMention": False}, "*": {"tools": {"deny": ["exec"]}}}
    assert rules(groups) == NO_EXEC
    assert rules({**groups, "-1": {"tools": {}}}) == ToolRules()  # unless it has its own rule


@pytest.mark.parametrize(
    ("sender", "found"),
    [
        ("7", ToolRules()),
        ("42", NO_EXEC),
        ("8", ToolRules(allow=("read",))),
        ("9", ToolRules(allow=("read",))),  # a name is no id
        ("", ToolRules(allow=("read",))),
    ],
)
def test_group_rules_of_sender_win_over_star(sender: str, found: ToolRules) -> None:
    people = {
        "tg:7": {},
        "42": {"deny": ["exec"]},
        "@ann": {},
        "*": {"allow": ["read"]},
    }
    assert rules({"-1": {"toolsBySender": people, "tools": {"deny": ["read"]}}}, sender) == found


def test_group_rules_unlisted_sender_has_rules_of_group() -> None:
    groups = {"-1": {"toolsBySender": {"7": {}}, "tools": {"deny": ["exec"]}}}
    assert (rules(groups, "7"), rules(groups, "8")) == (ToolRules(), NO_EXEC)


def test_group_rules_senders_of_star_group_count_for_silent_group() -> None:
    groups = {"-1": {}, "*": {"toolsBySender": {"7": {"deny": ["exec"]}}}}
    assert (rules(groups, "7"), rules(groups, "8")) == (NO_EXEC, None)


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        ({"allow": ["group:web", "read"]}, ToolRules(allow=("group:web", "read"))),
        ({"alsoAllow": ["read"]}, ToolRules()),
        ({"alsoAllow": ["read"], "deny": ["exec"]}, NO_EXEC),
    ],
)
def test_group_rules_also_allow_removes_nothing(tools: Mapping[str, Any], found: ToolRules) -> None:
    assert rules({"-1": {"tools": tools}}) == found


def test_group_rules_allow_with_also_allow_is_rejected() -> None:
    both = {"allow": ["read"], "alsoAllow": ["exec"]}
    for group in ({"tools": both}, {"toolsBySender": {"7": both}}):
        with pytest.raises(ValidationError, match="exclude each other"):
            rules({"-1": group})


def test_group_rules_name_the_group_they_are_of() -> None:
    found = rules({"-1": {"tools": {"deny": ["exec"]}}})
    assert found and "group -1 on telegram" in found.origin


def guild_group(
    guilds: Mapping[str, Any],
    chat: str = "11",
    *,
    parent: str = "",
    guild: str = "9",
    slug: str = "",
    names: tuple[str, ...] = (),
) -> ResolvedGroup:
    settings = AccountSettings.model_validate({"guilds": guilds})
    metadata = InboundMetadata("channel", parent=parent, guild=guild, guild_slug=slug, slugs=names)
    return resolve_group(settings, Address("discord", chat), find_traits, metadata)


@pytest.mark.parametrize(
    ("guilds", "found"),
    [
        ({"9": {}}, "by-id"),
        ({"9": {"channels": {"11": {}}}}, "by-id"),
        ({"9": {"channels": {"12": {}}}}, ""),
        ({"9": {"channels": {"*": {}}}}, "by-id"),
        ({"*": {}}, "by-star"),
        ({"*": {"channels": {"11": {}}}}, "by-id"),
        ({"8": {}}, ""),
        ({"friends": {}}, ""),
    ],
)
def test_group_of_guild_is_found_by_ids(guilds: Mapping[str, Any], found: str) -> None:
    assert guild_group(guilds).match_kind == found


def test_group_of_guild_names_count_only_where_unique() -> None:
    guilds: Mapping[str, Any] = {"friends": {"channels": {"plans": {}}}}
    assert guild_group(guilds, slug="friends", names=("plans",)).match_kind == "by-id"
    assert guild_group(guilds, slug="friends", names=("boat",)).match_kind == ""
    assert guild_group(guilds, names=("plans",)).match_kind == ""


def test_group_of_thread_has_layers_of_parent_and_guild() -> None:
    guilds = {"9": {"systemPrompt": "all", "channels": {"11": {"systemPrompt": "one"}}}}
    thread = guild_group(guilds, "77", parent="11")
    assert [layer.system_prompt for layer in thread.layers] == ["one", "all"]


def test_group_of_unknown_guild_is_found_by_its_channel() -> None:
    guilds = {"9": {"tools": {"deny": ["exec"]}, "channels": {"11": {}}}}
    room = guild_group(guilds, guild="")
    assert tool_rules(room, "discord", "42", find_traits) == NO_EXEC
    assert guild_group(guilds, "12", guild="").match_kind == ""


def test_group_rules_of_guild_hold_where_channel_has_none() -> None:
    guilds = {"9": {"tools": {"deny": ["exec"]}, "channels": {"11": {"tools": {"deny": ["read"]}}}}}
    room, other = guild_group(guilds), guild_group({"9": {"tools": {"deny": ["exec"]}}})
    assert tool_rules(room, "discord", "42", find_traits) == ToolRules(deny=("read",))
    assert tool_rules(other, "discord", "42", find_traits) == NO_EXEC


def test_group_channel_needs_both_allow_and_enabled() -> None:
    for off in ({"allow": False, "enabled": True}, {"allow": True, "enabled": False}):
        room = guild_group({"9": {"channels": {"11": off}}})
        assert not all(layer.enabled for layer in room.layers)
