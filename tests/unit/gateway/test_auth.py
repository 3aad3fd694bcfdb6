"""Tokens and passwords: where they come from, how they are compared, when none is enough."""

import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.check import check_config
from homarus.config.gateway_schema import GatewayConfig
from homarus.core.errors import ConfigError
from homarus.gateway.auth import SharedSecretAuth, check_bearer, resolve_auth, same_secret
from homarus.gateway.auth_rate_limiter import AuthRateLimiter
from homarus.gateway.listen_address import ListenAddress, resolve_listen_address
from homarus.gateway.origin_policy import OriginPolicy, RequestBlockedError, RequestInfo
from homarus.testing.clock import FakeClock

TOKEN = SharedSecretAuth("token", "right")
ENTRANCE = OriginPolicy.from_config(18789)


def gateway(**settings: Any) -> GatewayConfig:
    checked = check_config({"gateway": settings})
    assert checked.config, checked.problems
    return checked.config.gateway


@pytest.mark.parametrize(
    ("settings", "env", "expected"),
    [
        ({}, {}, SharedSecretAuth("token", "created")),
        ({"token": "a"}, {}, SharedSecretAuth("token", "a")),
        ({"password": "b"}, {}, SharedSecretAuth("password", "b")),
        ({"token": "a", "password": "b"}, {}, SharedSecretAuth("password", "b")),
        ({"mode": "token", "token": "a", "password": "b"}, {}, SharedSecretAuth("token", "a")),
        ({"mode": "none", "token": "a"}, {}, SharedSecretAuth()),
        ({}, {"OPENCLAW_GATEWAY_TOKEN": "e"}, SharedSecretAuth("token", "e")),
        ({}, {"OPENCLAW_GATEWAY_PASSWORD": "e"}, SharedSecretAuth("password", "e")),
        ({"token": "a"}, {"OPENCLAW_GATEWAY_TOKEN": "e"}, SharedSecretAuth("token", "a")),
        ({"token": " "}, {"OPENCLAW_GATEWAY_TOKEN": " e "}, SharedSecretAuth("token", "e")),
    ],
)
def test_auth_mode_is_the_named_one_or_follows_the_secret(
    settings: dict[str, Any], env: dict[str, str], expected: SharedSecretAuth
) -> None:
    assert resolve_auth(gateway(auth=settings), env, get_token=lambda: "created") == expected


@pytest.mark.parametrize("mode", ["token", "password", "trusted-proxy"])
def test_auth_mode_that_cannot_work_raises_config_error(mode: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_auth(gateway(auth={"mode": mode, "token": ""}), {})
    assert caught.value.key == "gateway.auth.mode"
    assert caught.value.fix


@pytest.mark.parametrize(
    "given", [None, "", "wrong", "righ", "right ", "RIGHT", [], ["right"], True, 1, {}]
)
def test_token_that_differs_is_refused(given: Any) -> None:
    """Row 6: a token being there is not a token being right."""
    assert TOKEN.check_secret(given, "right", is_local=True) in {"token_missing", "token_mismatch"}
    assert TOKEN.check_secret("right", None, is_local=False) is None


def test_password_is_not_accepted_as_token() -> None:
    assert (
        SharedSecretAuth("password", "right").check_secret("right", None, is_local=True)
        == "password_missing"
    )
    assert SharedSecretAuth("password", "right").check_secret(None, "right", is_local=False) is None
    assert (
        SharedSecretAuth("password", "right").check_secret(None, "x", is_local=False)
        == "password_mismatch"
    )


def test_auth_none_accepts_only_local_clients() -> None:
    assert SharedSecretAuth().check_secret(None, None, is_local=True) is None
    assert SharedSecretAuth().check_secret(None, None, is_local=False) == "local_only"


def test_empty_secret_matches_nothing() -> None:
    assert not same_secret("", "")
    assert SharedSecretAuth("token", "").check_secret("", None, is_local=True) == "token_missing"


@given(st.text(max_size=50), st.text(max_size=50))
def test_same_secret_equals_text_equality(a: str, b: str) -> None:
    assert same_secret(a, b) == (a == b != "")


def test_same_secret_compares_digests_of_equal_length(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert not same_secret("short", "a much longer secret")
    assert same_secret("\ud800é", "\ud800é")
    assert [(len(a), len(b)) for a, b in compared] == [(32, 32), (32, 32)]


def test_auth_repr_hides_the_secret() -> None:
    assert "right" not in repr(TOKEN)
    assert "s3cret" not in repr(gateway(auth={"token": "s3cret", "password": "s3cret"}))


def bearer(
    value: str, auth: SharedSecretAuth = TOKEN, limiter: AuthRateLimiter | None = None, **facts: Any
) -> int:
    request = RequestInfo("127.0.0.1", host="127.0.0.1:18789", authorization=value, **facts)
    try:
        check_bearer(request, ENTRANCE, auth, limiter or AuthRateLimiter(FakeClock()))
    except RequestBlockedError as exc:
        return exc.status
    return 200


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("Bearer right", 200),
        ("bearer  right ", 200),
        ("Bearer wrong", 401),
        ("Bearer", 401),
        ("", 401),
        ("right", 401),
        ("Basic right", 401),
        ("Bearer right right", 401),
    ],
)
def test_http_bearer_with_the_secret_is_accepted(value: str, status: int) -> None:
    assert bearer(value) == status
    assert bearer(value, SharedSecretAuth("password", "right")) == status


def test_http_without_configured_secret_accepts_only_local() -> None:
    assert bearer("", SharedSecretAuth()) == 200
    assert bearer("", SharedSecretAuth(), is_forwarded=True) == 401


def test_http_rate_limit_refuses_even_the_right_secret() -> None:
    limiter = AuthRateLimiter(FakeClock())
    for _ in range(10):
        assert bearer("Bearer x", limiter=limiter, is_browser=True) == 401
    assert bearer("Bearer right", limiter=limiter, is_browser=True) == 429
    assert bearer("Bearer right", limiter=limiter) == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"bind": "lan"},
        {"bind": "custom", "customBindHost": "0.0.0.0"},
        {"bind": "custom", "customBindHost": "10.0.0.2"},
        {"bind": "custom", "customBindHost": "::"},
    ],
)
def test_listen_beyond_loopback_without_secret_raises(settings: dict[str, Any]) -> None:
    """Row 4: thousands of gateways stood open like that."""
    with pytest.raises(ConfigError, match="refusing to listen") as caught:
        resolve_listen_address(gateway(**settings), {}, SharedSecretAuth())
    assert "gateway.auth.token" in caught.value.fix
    assert not resolve_listen_address(gateway(**settings), {}, TOKEN).is_loopback


@pytest.mark.parametrize(
    ("settings", "bind"),
    [({}, None), ({"bind": "auto"}, None), ({"bind": "lan"}, "loopback")],
)
def test_listen_on_loopback_needs_no_secret(settings: dict[str, Any], bind: str | None) -> None:
    listen = resolve_listen_address(gateway(**settings), {}, SharedSecretAuth(), bind=bind)
    assert listen == ListenAddress("127.0.0.1", 18789, ("::1",))
    assert listen.is_loopback


@pytest.mark.parametrize(
    "settings",
    [{"bind": "tailnet"}, {"bind": "custom"}, {"bind": "custom", "customBindHost": "gw.example"}],
)
def test_listen_on_invalid_address_raises(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_listen_address(gateway(**settings), {}, TOKEN)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("env", "port", "expected"),
    [
        ({}, None, 18789),
        ({}, 7, 7),
        ({"OPENCLAW_GATEWAY_PORT": "8"}, None, 8),
        ({"OPENCLAW_GATEWAY_PORT": "8"}, 7, 7),
        ({"CLAWDBOT_GATEWAY_PORT": "9"}, None, 9),
    ],
)
def test_port_comes_from_flag_environment_config_or_default(
    env: dict[str, str], port: int | None, expected: int
) -> None:
    assert resolve_listen_address(gateway(), env, SharedSecretAuth(), port=port).port == expected
    assert resolve_listen_address(gateway(port=5), {}, SharedSecretAuth()).port == 5


@pytest.mark.parametrize("text", ["0", "65536", "x", "-1", "1e3", "１", "9" * 5000])
def test_port_that_is_invalid_raises(text: str) -> None:
    with pytest.raises(ConfigError, match="not a port"):
        resolve_listen_address(gateway(), {"OPENCLAW_GATEWAY_PORT": text}, SharedSecretAuth())
