"""Settings of a group that gets another id: moved where `configWrites` allows it."""

import json
from pathlib import Path
from typing import Any

import pytest

import homarus
from homarus.config.group_migration import check_config_writes, move_group, move_group_settings
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.core.errors import UserError

OLD, NEW, HOME = "-77", "-10077", ("telegram", "default")
RULES = {"requireMention": False}


def write_and_move(folder: Path, telegram: dict[str, Any], account: str = "default") -> Any:
    """Write a config, move the group, and return the section that is in the file then."""
    state = folder / ".openclaw"
    state.mkdir()
    file = state / "openclaw.json"
    file.write_text(json.dumps({"channels": {"telegram": telegram}}))
    env = {"HOME": str(folder)}
    paths = Paths.find(env)
    loaded = load_config(paths, env)
    move_group_settings(paths, loaded, ("telegram", account), (OLD, NEW), 1)
    return json.loads(file.read_text())["channels"]["telegram"]


def test_migrated_group_has_its_settings_under_the_new_id(tmp_path: Path) -> None:
    found = write_and_move(tmp_path, {"groups": {"-1": {}, OLD: RULES, "*": {}}})
    assert found["groups"] == {"-1": {}, NEW: RULES, "*": {}}


def test_migrated_group_of_an_account_is_moved_in_its_own_section(tmp_path: Path) -> None:
    accounts = {"Work": {"groups": {OLD: RULES}}, "home": {"groups": {OLD: {}}}}
    found = write_and_move(tmp_path, {"accounts": accounts}, "work")
    assert found["accounts"] == {"Work": {"groups": {NEW: RULES}}, "home": {"groups": {OLD: {}}}}


@pytest.mark.parametrize(
    ("telegram", "account"),
    [
        ({"configWrites": False, "groups": {OLD: RULES}}, "default"),
        (
            {"configWrites": False, "accounts": {"a": {"groups": {OLD: RULES}}}},
            "a",
        ),
        (
            {"accounts": {"a": {"configWrites": False, "groups": {OLD: RULES}}}},
            "a",
        ),
    ],
)
def test_migrated_group_is_refused_without_config_writes(
    telegram: dict[str, Any], account: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="configWrites is false"):
        write_and_move(tmp_path, telegram, account)
    text = (tmp_path / ".openclaw/openclaw.json").read_text()
    assert json.loads(text) == {"channels": {"telegram": telegram}}


def test_config_writes_of_an_account_win_over_those_of_the_channel(tmp_path: Path) -> None:
    account = {"configWrites": True, "groups": {OLD: RULES}}
    found = write_and_move(tmp_path, {"configWrites": False, "accounts": {"a": account}}, "a")
    assert found["accounts"]["a"]["groups"] == {NEW: RULES}


@pytest.mark.parametrize("groups", [{"*": {}}, {OLD: {}, NEW: RULES}])
def test_migrated_group_that_needs_no_change_leaves_the_file(
    groups: dict[str, Any], tmp_path: Path
) -> None:
    assert write_and_move(tmp_path, {"groups": groups}) == {"groups": groups}


def test_migration_obeys_a_file_that_forbids_it_since_the_config_was_read() -> None:
    tree = {"channels": {"telegram": {"configWrites": False, "groups": {OLD: RULES}}}}
    assert move_group(tree, HOME, (OLD, NEW)) == tree
    assert move_group({"channels": []}, HOME, (OLD, NEW)) == {"channels": []}


def test_config_writes_are_allowed_unless_the_config_forbids_them(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    check_config_writes(load_config(Paths.find(env), env).config, "irc", "default")


def test_config_is_written_for_chats_through_ports_alone() -> None:
    """Code that serves chats must not write the config past `configWrites`."""
    source = Path(homarus.__file__).parent
    serving = ("agent", "channels", "sessions", "tools", "plugins", "memory")
    found = [
        str(file.relative_to(source))
        for package in serving
        for file in (source / package).rglob("*.py")
        if "homarus.config.write" in file.read_text()
    ]
    assert found == []


def test_channel_of_slack_has_its_settings_under_its_id() -> None:
    section = {"channels": {OLD: RULES, "*": {}}, "accounts": {"default": {"channels": {OLD: {}}}}}
    tree = {"channels": {"slack": section}}
    found: Any = move_group(tree, ("slack", "default"), (OLD, NEW))
    slack = found["channels"]["slack"]
    assert slack["channels"] == {NEW: RULES, "*": {}}
    assert slack["accounts"]["default"]["channels"] == {NEW: {}}
