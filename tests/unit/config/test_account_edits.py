"""Accounts put into the config and out of it."""

from typing import Any

import pytest

from homarus.channels.registry import load_channel
from homarus.config.account_edits import (
    account_ids,
    add_account,
    delete_account,
    disable_account,
    has_unset_variables,
)
from homarus.config.channels import merged_section, read_account
from homarus.config.json5_document import KeyPath
from homarus.core.errors import ConfigError, UnknownNameError, UserError

ALONE: dict[str, Any] = {"channels": {"telegram": {"botToken": "1:a"}}}
TWO: dict[str, Any] = {
    "channels": {
        "telegram": {
            "dmPolicy": "allowlist",
            "accounts": {"default": {"botToken": "1:a"}, "Work": {"botToken": "2:b"}},
        }
    }
}
TOKEN: dict[KeyPath, str] = {("botToken",): "3:c"}


def enabled(tree: Any, account: str) -> bool:
    return merged_section(tree["channels"], "telegram", account).get("enabled") is not False


def test_add_account_first_is_written_in_the_section() -> None:
    tree = add_account({"agents": {}}, "telegram", "default", TOKEN)
    section = {"enabled": True, "botToken": "3:c"}
    assert tree == {"agents": {}, "channels": {"telegram": section}}
    assert account_ids(tree, "telegram") == ("default",)


def test_add_account_second_keeps_the_first() -> None:
    tree = add_account(ALONE, "telegram", "work", TOKEN)
    assert account_ids(tree, "telegram") == ("default", "work")
    assert merged_section(tree["channels"], "telegram", "default")["botToken"] == "1:a"
    assert merged_section(tree["channels"], "telegram", "work")["botToken"] == "3:c"
    assert "accounts" not in ALONE["channels"]["telegram"]


def test_add_account_named_may_be_the_only_one() -> None:
    tree = add_account({}, "telegram", "work", TOKEN)
    assert account_ids(tree, "telegram") == ("work",)


def test_add_account_existing_is_changed_under_its_written_name() -> None:
    tree = add_account(TWO, "telegram", "work", TOKEN)
    accounts = tree["channels"]["telegram"]["accounts"]
    assert accounts == {"default": {"botToken": "1:a"}, "Work": {"botToken": "3:c"}}
    assert add_account(ALONE, "telegram", "default", TOKEN)["channels"]["telegram"] == {
        "botToken": "3:c"
    }


@pytest.mark.parametrize("tree", [ALONE, TWO])
def test_disable_account_keeps_settings_and_can_be_undone(tree: dict[str, Any]) -> None:
    off = disable_account(tree, "telegram", "default")
    assert not enabled(off, "default") and account_ids(off, "telegram")
    assert enabled(add_account(off, "telegram", "default", {}), "default")


def test_disable_account_of_channel_overrides_accounts() -> None:
    on = add_account(disable_account(TWO, "telegram", "work"), "telegram", "work", {})
    assert on["channels"]["telegram"]["accounts"]["Work"]["enabled"] is True
    off = disable_account(on, "telegram", None)
    assert not enabled(off, "default") and not enabled(off, "work")
    back = add_account(off, "telegram", "work", {})
    assert enabled(back, "work") and not enabled(back, "default")


def test_delete_account_last_removes_the_section() -> None:
    one = delete_account(TWO, "telegram", "work")
    assert account_ids(one, "telegram") == ("default",)
    assert delete_account(one, "telegram", "default") == {"channels": {}}
    assert delete_account(TWO, "telegram", None) == {"channels": {}}
    assert delete_account(ALONE, "telegram", "default") == {"channels": {}}


@pytest.mark.parametrize("change", [disable_account, delete_account])
def test_account_edit_unknown_account_raises_user_error(change: Any) -> None:
    with pytest.raises(UserError, match="no channel 'irc'") as caught:
        change(TWO, "irc", None)
    assert "telegram" in caught.value.fix
    for tree in (ALONE, TWO):
        with pytest.raises(UnknownNameError):
            change(tree, "telegram", "nobody")


def test_read_account_validates_with_the_channel_model() -> None:
    kind = load_channel("telegram").Settings
    assert read_account(TWO["channels"], "telegram", "work", kind).common.dm_policy == "allowlist"
    for settings, why in (
        ({"botToken": "1:a", "allowfrom": ["1"]}, "did you mean allowFrom"),
        ({"botToken": 7}, "channels.telegram.botToken"),
        ({"dmPolicy": "all"}, "dmPolicy"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_account({"telegram": settings}, "telegram", "default", kind)
        assert why in str(caught.value) and "1:a" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"a": ["${NAME}"]}, True),
        ("x${NAME}y", True),
        ("$${NAME}", False),
        ("${name}", False),
        (7, False),
        ({"a": [None, "b"]}, False),
    ],
)
def test_has_unset_variables_finds_unsubstituted_ones(value: Any, found: bool) -> None:
    assert has_unset_variables(value) is found
