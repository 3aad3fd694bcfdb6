from typing import Any

import pytest

from homarus.config.approvals_file import DENY_ALL
from homarus.config.schema import Config
from homarus.core.channel_traits import ChannelTraits, FindTraits, no_traits
from homarus.core.message import Json, RunOptions
from homarus.policy.exec_settings import (
    ExecSettings,
    elevated_refusal,
    resolve_elevated,
    resolve_exec_settings,
    with_exec_options,
)


def resolve(
    tools: dict[str, Json] | None = None,
    entry: dict[str, Json] | None = None,
    *files: dict[str, Json],
    agent: str = "main",
    own: dict[str, Json] | None = None,
    is_owner: bool = True,
) -> ExecSettings:
    data: dict[str, Any] = {"tools": {"exec": tools or {}}}
    data["agents"] = {"list": [{"id": agent, "tools": {"exec": own}}] if own else []}
    config = Config.model_validate(data)
    return resolve_exec_settings(config, files or [{}], agent, entry or {}, is_owner=is_owner)


def test_exec_settings_unset_are_the_safe_defaults() -> None:
    expected = ExecSettings("allowlist", "on-miss", "deny", auto_allow_skills=False, host="gateway")
    assert resolve() == expected


def test_exec_settings_agent_replaces_those_of_all_agents() -> None:
    found = resolve({"security": "deny", "ask": "off"}, own={"security": "full"})
    assert (found.security, found.ask) == ("full", "off")


def test_exec_settings_session_replaces_config_for_owner() -> None:
    entry: dict[str, Json] = {"execSecurity": "full", "execAsk": "off", "execHost": "sandbox"}
    found = resolve({"security": "allowlist", "ask": "always"}, entry)
    assert (found.security, found.ask, found.host) == ("full", "off", "sandbox")


def test_exec_settings_looser_session_does_not_hold_for_others() -> None:
    entry: dict[str, Json] = {"execSecurity": "full", "execAsk": "off"}
    found = resolve(None, entry, is_owner=False)
    assert (found.security, found.ask) == ("allowlist", "on-miss")
    entry = {"execSecurity": "deny", "execAsk": "always"}
    found = resolve({"security": "full"}, entry, is_owner=False)
    assert (found.security, found.ask) == ("deny", "always")


def test_exec_settings_config_deny_is_not_lifted_by_session() -> None:
    assert resolve({"security": "deny"}, {"execSecurity": "full"}).security == "deny"


@pytest.mark.parametrize(
    ("file", "agent", "expected"),
    [
        ({"defaults": {"security": "deny"}}, "main", "deny"),
        ({"agents": {"*": {"security": "allowlist"}}}, "work", "allowlist"),
        ({"agents": {"Work": {"security": "full"}, "*": {"security": "deny"}}}, "work", "full"),
        ({"agents": {"default": {"security": "deny"}}}, "main", "deny"),
        ({"agents": {"default": {"security": "deny"}}}, "work", "full"),
        ({"agents": {"main": {}, "default": {"security": "allowlist"}}}, "main", "allowlist"),
        ({"defaults": {"security": "FULL "}}, "main", "full"),
        ({"defaults": {"security": "everything"}}, "main", "deny"),
        ({"defaults": {"security": True}}, "main", "deny"),
        ({"agents": [], "defaults": 5}, "main", "full"),
        (DENY_ALL, "main", "deny"),
    ],
)
def test_exec_settings_approvals_file_bounds_session(
    file: dict[str, Json], agent: str, expected: str
) -> None:
    assert resolve(None, {"execSecurity": "full"}, file, agent=agent).security == expected


def test_exec_settings_file_asks_more_never_less() -> None:
    assert resolve({"ask": "on-miss"}, None, {"defaults": {"ask": "always"}}).ask == "always"
    assert resolve({"ask": "always"}, None, {"defaults": {"ask": "off"}}).ask == "always"
    assert resolve(None, None, {"defaults": {"ask": "sometimes"}}).ask == "always"


def test_exec_settings_fallback_and_skills_come_from_file() -> None:
    file: dict[str, Json] = {"defaults": {"askFallback": "full", "autoAllowSkills": True}}
    found = resolve(None, None, file)
    assert (found.ask_fallback, found.auto_allow_skills) == ("full", True)
    found = resolve(None, None, file, {"defaults": {"askFallback": "x", "autoAllowSkills": 1}})
    assert (found.ask_fallback, found.auto_allow_skills) == ("deny", False)


def test_exec_settings_stored_nonsense_is_the_strictest() -> None:
    found = resolve({"security": "full"}, {"execSecurity": 1, "execAsk": "x", "execHost": "moon"})
    assert (found.security, found.ask, found.host) == ("deny", "always", "sandbox")


def test_exec_options_of_a_message_replace_those_of_its_session() -> None:
    options = RunOptions(exec_security="full", elevated="ask")
    entry = with_exec_options({"execSecurity": "deny", "execAsk": "off"}, options)
    assert entry == {"execSecurity": "full", "execAsk": "off", "elevatedLevel": "ask"}


def traits(channel: str) -> ChannelTraits:
    return ChannelTraits(channel, id_aliases=("tg",)) if channel == "telegram" else no_traits("")


def elevated(
    tools: dict[str, Json],
    own: dict[str, Json] | None = None,
    *,
    sender: str = "42",
    entry: dict[str, Json] | None = None,
    default: str | None = None,
    find_traits: FindTraits = traits,
) -> tuple[str, bool]:
    config = Config.model_validate(
        {
            "tools": {"elevated": tools},
            "agents": {
                "defaults": {"elevatedDefault": default} if default else {},
                "list": [{"id": "main", "tools": {"elevated": own}}] if own is not None else [],
            },
        }
    )
    return resolve_elevated(config, "main", entry or {}, "telegram", sender, find_traits)


ALLOWED: dict[str, Json] = {"allowFrom": {"telegram": ["tg:42", 7]}}


def test_elevated_is_off_for_senders_that_are_not_listed() -> None:
    entry: dict[str, Json] = {"elevatedLevel": "full"}
    assert elevated({}, entry=entry) == ("off", False)
    assert elevated(ALLOWED, sender="43", entry=entry) == ("off", False)
    assert elevated({"allowFrom": {"irc": ["42", "*"]}}, entry=entry) == ("off", False)
    assert elevated({**ALLOWED, "enabled": False}, entry=entry) == ("off", False)
    assert elevated({"allowFrom": {"telegram": ["*"]}}, sender="", entry=entry) == ("off", False)


def test_elevated_level_is_of_session_else_config_else_off() -> None:
    assert elevated(ALLOWED) == ("off", True)
    assert elevated(ALLOWED, sender="7", default="ask") == ("ask", True)
    assert elevated(ALLOWED, default="ask", entry={"elevatedLevel": "full"}) == ("full", True)
    assert elevated(ALLOWED, default="ask", entry={"elevatedLevel": "everything"}) == ("off", True)
    assert elevated({"allowFrom": {"telegram": ["*"]}}, entry={"elevatedLevel": "on"})[1]


def test_elevated_needs_agent_and_config_to_allow() -> None:
    assert elevated(ALLOWED, {})[1]
    assert elevated(ALLOWED, ALLOWED)[1]
    assert not elevated(ALLOWED, {"allowFrom": {"telegram": ["43"]}})[1]
    assert not elevated(ALLOWED, {"enabled": False})[1]
    assert not elevated({}, ALLOWED)[1]


def test_elevated_refusal_names_the_setting() -> None:
    config = Config.model_validate({"tools": {"elevated": ALLOWED}})
    found = elevated_refusal(config, "main", "irc", "anna", traits)
    assert found == "tools.elevated.allowFrom.irc does not list you"
