"""The config of a bot: OpenClaw's keys, its token, its webhook."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from homarus.channels.base import ChannelContext, SendRetryPolicy
from homarus.channels.telegram import create
from homarus.channels.telegram.settings import TelegramSettings, find_token
from homarus.config.channels import account_settings
from homarus.config.known_keys import KnownKey, lookup
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelError, ConfigError

TOKEN = "123456:AAabc-def_0123456789"


def settings(**said: Any) -> TelegramSettings:
    return TelegramSettings.read(said)


def make(account: str = "default", env: dict[str, str] | None = None, **said: Any) -> Any:
    return create(
        ChannelContext("telegram", account, SystemClock(), env=env or {}), settings(**said)
    )


def example(known: KnownKey) -> Any:
    """Return a value that OpenClaw accepts for a key."""
    if known.children:
        if "<key>" in known.children:
            return {"-100": example(known.children["<key>"])}
        if "[]" in known.children:
            return [example(known.children["[]"])]
        names = known.children.keys() - ({"alsoAllow"} if "allow" in known.children else set())
        return {name: example(known.children[name]) for name in sorted(names)}
    kind = known.types[0]
    if kind.startswith("["):
        return ["11"]
    if kind.startswith('"'):
        return kind.split('"')[1]
    return {"boolean": True, "integer": 1, "number": 1, "string": "x"}[kind.split()[0]]


def test_telegram_settings_accept_all_keys_of_openclaw() -> None:
    known = lookup(("channels", "telegram"))
    assert known is not None
    tree = {name: example(child) for name, child in known.children.items() if name != "accounts"}
    assert len(tree) > 35
    tree |= {"proxy": "http://proxy:3128"}
    assert settings(**tree).common.name == "x"
    config = Config.model_validate({"channels": {"telegram": {"accounts": {"b": tree}}}})
    assert account_settings(config, "telegram", "b", TelegramSettings).common.name == "x"


def test_telegram_settings_unknown_key_is_refused() -> None:
    with pytest.raises(ValidationError):
        settings(botTokn=TOKEN)


def test_telegram_settings_repr_hides_token() -> None:
    said = settings(botToken=TOKEN, webhookSecret="hush", proxy="http://u:hunter2@p:1")
    for secret in (TOKEN, "hush", "hunter2"):
        assert secret not in repr(said) + str(said)


@pytest.mark.parametrize("token", ["", "x", "654321", "abc:def", f"{TOKEN}/getMe", f"{TOKEN} x"])
def test_telegram_invalid_token_error_hides_token(token: str) -> None:
    with pytest.raises(ConfigError, match=r"channels\.telegram\.botToken") as caught:
        make(botToken=token)
    assert len(token) < 6 or token not in str(caught.value)


def test_telegram_missing_token_error_has_fix() -> None:
    with pytest.raises(ConfigError, match="BotFather"):
        make()


def test_telegram_environment_token_is_for_default_account() -> None:
    env = {"TELEGRAM_BOT_TOKEN": TOKEN}
    assert make(env=env)
    with pytest.raises(ConfigError):
        make("second", env=env)
    assert find_token(settings(botToken="1:config"), "default", env) == "1:config"


def test_telegram_token_file_readable_by_others_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    file = tmp_path / "token"
    file.write_text(f"  {TOKEN}\n")
    file.chmod(0o600)
    assert find_token(settings(tokenFile=str(file)), "a", {}) == TOKEN
    assert not caplog.text
    file.chmod(0o644)
    assert find_token(settings(tokenFile=str(file)), "a", {}) == TOKEN
    assert "chmod 600" in caplog.text and TOKEN not in caplog.text


def test_telegram_missing_token_file_raises_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"channels\.telegram\.tokenFile"):
        make(tokenFile=str(tmp_path / "missing"))


@pytest.mark.parametrize("secret", [None, "", "with space", "ä", "x" * 257])
def test_telegram_webhook_without_valid_secret_is_refused(secret: str | None) -> None:
    said: dict[str, Any] = {"botToken": TOKEN, "webhookUrl": "https://bot.example/tg"}
    with pytest.raises(ConfigError, match="webhookSecret"):
        make(**said | ({} if secret is None else {"webhookSecret": secret}))


@pytest.mark.parametrize(
    ("said", "path", "url"),
    [
        ({}, "", ""),
        ({"webhookPath": "/x"}, "", ""),
        ({"webhookUrl": "https://b.example/tg"}, "/tg", "https://b.example/tg"),
        ({"webhookUrl": "https://b.example/tg/"}, "/tg", "https://b.example/tg"),
        (
            {"webhookUrl": "https://b.example"},
            "/telegram-webhook",
            "https://b.example/telegram-webhook",
        ),
        (
            {"webhookUrl": "https://b.example/", "webhookPath": "in"},
            "/in",
            "https://b.example/in",
        ),
        (
            {"webhookUrl": "https://b.example/out", "webhookPath": "/in"},
            "/in",
            "https://b.example/out",
        ),
    ],
)
def test_telegram_webhook_path_follows_url(said: dict[str, Any], path: str, url: str) -> None:
    found = settings(**said)
    assert found.path == path
    assert not path or found.public_url == url


def test_telegram_unsupported_proxy_is_refused() -> None:
    with pytest.raises(ValidationError, match="http://"):
        settings(proxy="socks5://localhost:1080")


def test_telegram_limits_and_retries_follow_config() -> None:
    usual, own = (
        settings(),
        settings(
            textChunkLimit=9_000,
            mediaMaxMb=0.5,
            retry={"attempts": 5, "minDelayMs": 0, "maxDelayMs": 1_000, "jitter": 0.0},
        ),
    )
    assert (usual.text_limit, own.text_limit) == (4_000, 4_096)
    assert settings(textChunkLimit=100).text_limit == 100
    assert (usual.media_max_bytes, own.media_max_bytes) == (52_428_800, 524_288)
    assert usual.retries == SendRetryPolicy(3, 0.4, 30.0, 0.1)
    assert own.retries == SendRetryPolicy(5, 0.0, 1.0, 0.0)


def test_telegram_invalid_api_root_is_refused() -> None:
    with pytest.raises(ConfigError):
        make(botToken=TOKEN, apiRoot="api.telegram.org")


WEBHOOK = {"webhookUrl": "https://bot.example/tg", "webhookSecret": "s3cret"}


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ({}, None),
        ({**WEBHOOK}, None),
        ({"webhookHost": "0.0.0.0"}, None),
        ({**WEBHOOK, "webhookHost": "::1"}, ("::1", 8787)),
        ({**WEBHOOK, "webhookPort": 9000}, ("127.0.0.1", 9000)),
        ({**WEBHOOK, "webhookHost": "localhost", "webhookPort": 9000}, ("localhost", 9000)),
    ],
)
def test_telegram_webhook_host_gives_the_webhook_its_own_listener(
    said: dict[str, Any], address: tuple[str, int] | None
) -> None:
    assert make(botToken=TOKEN, **said).webhook_address == address


@pytest.mark.parametrize("host", ["", "http://x", "a b", "x/y", "1.2.3.4\n"])
def test_telegram_webhook_host_that_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="an address of this machine"):
        settings(webhookHost=host)


@pytest.mark.parametrize(
    ("network", "is_parallel"),
    [({}, True), ({"autoSelectFamily": True}, True), ({"autoSelectFamily": False}, False)],
)
async def test_telegram_auto_select_family_decides_how_addresses_are_tried(
    network: dict[str, bool], is_parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = []

    async def connect(*_args: object, **options: Any) -> None:
        delays.append(options["happy_eyeballs_delay"])
        raise OSError("no network")

    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    channel = make(botToken=TOKEN, apiRoot="http://telegram.test", network=network)
    with pytest.raises(ChannelError):
        await channel.probe()
    assert [delay is not None for delay in delays] == [is_parallel]


def test_telegram_network_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValidationError):
        settings(network={"autoSelectFamilies": True})
