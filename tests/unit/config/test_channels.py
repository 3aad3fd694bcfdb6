"""The accounts of a channel: what they share, what each has alone, and what is refused."""

from typing import Any

import pytest

from homarus.config.channels import (
    ChannelSettings,
    account_names,
    account_settings,
    channel_names,
    common_settings,
)
from homarus.config.check import check_config
from homarus.config.schema import Config
from homarus.core.errors import ConfigError


class Radio(ChannelSettings):
    """A channel of the test's own."""

    call_sign: str
    power: int = 5


def config(**channels: Any) -> Config:
    return Config.model_validate({"channels": channels})


def told(**channels: Any) -> list[str]:
    found = check_config({"channels": channels}).problems
    return [f"{'.'.join(str(step) for step in one.path)}: {one.message}" for one in found]


def test_account_settings_override_those_of_the_channel() -> None:
    accounts = {"Work": {"allowFrom": [7], "name": "Work bot"}, "home": {}}
    made = config(telegram={"allowFrom": ["1", 2], "dmPolicy": "allowlist", "accounts": accounts})
    assert account_names(made, "telegram") == ("work", "home")
    work, home = (common_settings(made, "telegram", name) for name in ("work", "home"))
    assert (work.allow_from, work.dm_policy, work.name) == (("7",), "allowlist", "Work bot")
    assert (home.allow_from, home.name) == (("1", "2"), None)


def test_channel_without_accounts_has_the_default_account() -> None:
    made = config(irc={"nick": "crab"}, defaults={"groupPolicy": "open"})
    assert channel_names(made) == ("irc",) and account_names(made, "irc") == ("default",)
    irc = common_settings(made, "irc", "default")
    assert irc.group_policy == "open" and irc.model_extra == {"nick": "crab"}
    assert common_settings(made, "nosuch", "default").dm_policy == "pairing"


def test_channel_settings_have_own_and_common_values() -> None:
    made = config(radio={"callSign": "R1", "allowFrom": [7], "accounts": {"b": {"power": 9}}})
    found = account_settings(made, "radio", "b", Radio)
    assert (found.call_sign, found.power, found.common.allow_from) == ("R1", 9, ("7",))
    assert found.model_copy(update={"power": 1}).common.allow_from == ("7",)
    assert Radio.keys()[:2] == ("enabled", "name") and Radio.keys()[-2:] == ("callSign", "power")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"callSign": "R1", "powr": 9}, "channels.radio.powr: there is no such setting (did you"),
        ({"callSign": "R1", "allowfrom": []}, "did you mean allowFrom or"),
        ({"callSign": "R1", "common": {}}, "channels.radio.common: there is no such setting"),
        ({"callSign": 1}, "channels.radio.callSign: "),
        ({"callSign": "R1", "historyLimit": "x"}, "channels.radio.historyLimit: "),
    ],
)
def test_channel_settings_unknown_key_raises_config_error(
    section: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        account_settings(config(radio=section), "radio", "default", Radio)
    assert words in str(caught.value)


def test_common_settings_cache_is_per_config() -> None:
    one, other = config(irc={"name": "one"}), config(irc={"name": "other"})
    for made, name in ((one, "one"), (other, "other"), (one, "one")):
        assert common_settings(made, "irc", "default").name == name
    assert common_settings(one, "irc", "default") is common_settings(one, "irc", "default")
    with pytest.raises(ConfigError, match="historyLimit"):
        common_settings(config(irc={"historyLimit": "x"}), "irc", "default")


def test_dm_policy_open_without_star_is_a_problem() -> None:
    closed = {"dmPolicy": "open", "allowFrom": ["1"]}
    assert told(telegram=closed) == [
        'channels.telegram.dmPolicy: it is "open", and allowFrom does not say for whom'
    ]
    assert not told(telegram={"dmPolicy": "open", "allowFrom": ["*"]})
    one = told(telegram={"allowFrom": ["*"], "accounts": {"a": {}, "b": closed}})
    assert [line.split(":")[0] for line in one] == ["channels.telegram.accounts.b.dmPolicy"]


@pytest.mark.parametrize(
    ("section", "at"),
    [
        ({"dmPolicy": "maybe"}, "channels.telegram.dmPolicy"),
        ({"allowFrom": "me"}, "channels.telegram.allowFrom"),
        ({"groups": {"-1": {"requireMention": "no"}}}, "channels.telegram.groups.-1.require"),
        ({"botTokn": "x"}, "channels.telegram.botTokn"),
    ],
)
def test_channel_problem_names_its_path(section: dict[str, Any], at: str) -> None:
    assert any(line.startswith(at) for line in told(telegram=section))
