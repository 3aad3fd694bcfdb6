"""Accounts put into the config and out of it."""

from typing import Any

import pytest

from homarus.channels.roster import load_channel
from homarus.config.account_edits import (
    account_ids,
    add_account,
    delete_account,
    disable_account,
    has_unset_variables,
)
from homarus.config.channels import merged, read_account
from homarus.config.document import KeyPath
from homarus.core.errors import ConfigError, UnknownName, UserError

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
    return merged(tree["channels"], "telegram", account).get("enabled") is not False


def test_the_first_account_has_the_section_to_itself() -> None:
    tree = add_account({"agents": {}}, "telegram", "default", TOKEN)
    section = {"enabled": True, "botToken": "3:c"}
    assert tree == {"agents": {}, "channels": {"telegram": section}}
    assert account_ids(tree, "telegram") == ("default",)


def test_a_second_one_leaves_the_first_as_it_was() -> None:
    tree = add_account(ALONE, "telegram", "work", TOKEN)
    assert account_ids(tree, "telegram") == ("default", "work")
    assert merged(tree["channels"], "telegram", "default")["botToken"] == "1:a"
    assert merged(tree["channels"], "telegram", "work")["botToken"] == "3:c"
    assert "accounts" not in ALONE["channels"]["telegram"]


def test_a_named_account_may_be_the_only_one() -> None:
    tree = add_account({}, "telegram", "work", TOKEN)
    assert account_ids(tree, "telegram") == ("work",)


def test_one_that_is_there_is_changed_under_the_name_it_is_written_by() -> None:
    tree = add_account(TWO, "telegram", "work", TOKEN)
    accounts = tree["channels"]["telegram"]["accounts"]
    assert accounts == {"default": {"botToken": "1:a"}, "Work": {"botToken": "3:c"}}
    assert add_account(ALONE, "telegram", "default", TOKEN)["channels"]["telegram"] == {
        "botToken": "3:c"
    }


@pytest.mark.parametrize("tree", [ALONE, TWO])
def test_what_is_switched_off_stays_and_comes_back(tree: dict[str, Any]) -> None:
    off = disable_account(tree, "telegram", "default")
    assert not enabled(off, "default") and account_ids(off, "telegram")
    assert enabled(add_account(off, "telegram", "default", {}), "default")


def test_a_whole_channel_is_off_whatever_its_accounts_say() -> None:
    on = add_account(disable_account(TWO, "telegram", "work"), "telegram", "work", {})
    assert on["channels"]["telegram"]["accounts"]["Work"]["enabled"] is True
    off = disable_account(on, "telegram", None)
    assert not enabled(off, "default") and not enabled(off, "work")
    back = add_account(off, "telegram", "work", {})
    assert enabled(back, "work") and not enabled(back, "default")


def test_the_last_account_takes_the_section_along() -> None:
    one = delete_account(TWO, "telegram", "work")
    assert account_ids(one, "telegram") == ("default",)
    assert delete_account(one, "telegram", "default") == {"channels": {}}
    assert delete_account(TWO, "telegram", None) == {"channels": {}}
    assert delete_account(ALONE, "telegram", "default") == {"channels": {}}


@pytest.mark.parametrize("change", [disable_account, delete_account])
def test_what_is_not_there_cannot_be_taken_out(change: Any) -> None:
    with pytest.raises(UserError, match="no channel 'irc'") as caught:
        change(TWO, "irc", None)
    assert "telegram" in caught.value.fix
    for tree in (ALONE, TWO):
        with pytest.raises(UnknownName):
            change(tree, "telegram", "nobody")


def test_an_account_is_judged_as_its_channel_reads_it() -> None:
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
def test_a_variable_that_was_not_filled_in_is_noticed(value: Any, found: bool) -> None:
    assert has_unset_variables(value) is found
