"""Who a bearer token of an HTTP request is, and which scopes it gives."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.config.gateway_schema import GatewayConfig
from homarus.gateway.auth import SharedSecretAuth
from homarus.gateway.bearer_client import authenticate_bearer
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.method import Caller
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.scopes import SCOPES
from homarus.testing.clock import FakeClock

READ, WRITE = "operator.read", "operator.write"
LOCAL = RequestInfo("127.0.0.1", host="127.0.0.1:18789")
REMOTE = RequestInfo("10.0.0.9", own="10.0.0.2", host="10.0.0.2:18789")
PAGE = replace(LOCAL, origin="http://127.0.0.1:18789", is_browser=True)
PROXIED = replace(LOCAL, is_forwarded=True, forwarded_for=("1.2.3.4",))
SECRET = SharedSecretAuth("token", "right")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def authenticator(tmp_path: Path, clock: FakeClock) -> ConnectionAuthenticator:
    return make(tmp_path, clock)


def make(
    folder: Path, clock: FakeClock, auth: SharedSecretAuth = SECRET
) -> ConnectionAuthenticator:
    return ConnectionAuthenticator.from_config(GatewayConfig(), auth, 18789, folder, clock)


def pair(authenticator: ConnectionAuthenticator, *scopes: str, role: Any = "operator") -> str:
    request = DevicePairingRequest("d1", "key", role, scopes)
    return authenticator.devices.pair(request).tokens[role].secret


def accept(
    authenticator: ConnectionAuthenticator, secret: str, request: RequestInfo = LOCAL
) -> Caller:
    given = f"Bearer {secret}" if secret else ""
    return authenticate_bearer(authenticator, replace(request, authorization=given), "c1")


def refusal(
    authenticator: ConnectionAuthenticator, secret: str, request: RequestInfo = LOCAL
) -> int:
    with pytest.raises(RequestBlockedError) as caught:
        accept(authenticator, secret, request)
    return caught.value.status


def test_bearer_secret_of_a_local_program_gives_every_scope(
    authenticator: ConnectionAuthenticator,
) -> None:
    caller = accept(authenticator, "right")
    assert caller.scopes == set(SCOPES) and caller.is_local and not caller.device_id
    assert caller.role == "operator" and not caller.is_approver


@pytest.mark.parametrize("request_info", [REMOTE, PAGE, PROXIED])
def test_bearer_secret_from_elsewhere_gives_no_scopes(
    authenticator: ConnectionAuthenticator, request_info: RequestInfo
) -> None:
    assert refusal(authenticator, "right", request_info) == 403
    assert refusal(authenticator, "wrong", request_info) == 401


@pytest.mark.parametrize("secret", ["", "wrong", "right "[:-2], "Right"])
def test_bearer_secret_that_is_wrong_is_refused(
    authenticator: ConnectionAuthenticator, secret: str
) -> None:
    assert refusal(authenticator, secret) == 401


@pytest.mark.parametrize("request_info", [LOCAL, REMOTE, PAGE, PROXIED])
def test_bearer_device_token_gives_its_scopes_anywhere(
    authenticator: ConnectionAuthenticator, request_info: RequestInfo
) -> None:
    caller = accept(authenticator, pair(authenticator, WRITE), request_info)
    assert caller.scopes == {READ, WRITE} and caller.device_id == "d1" and not caller.is_local


def test_bearer_device_token_cannot_exceed_token_or_device(
    authenticator: ConnectionAuthenticator,
) -> None:
    pair(authenticator, WRITE)
    token = authenticator.devices.rotate("d1", "operator", [READ], SCOPES)
    assert accept(authenticator, token.secret).scopes == {READ}


def test_bearer_device_token_that_is_void_is_refused(
    authenticator: ConnectionAuthenticator,
) -> None:
    old = pair(authenticator, READ)
    new = authenticator.devices.rotate("d1", "operator", None, SCOPES).secret
    assert refusal(authenticator, old) == 401 and accept(authenticator, new).device_id
    authenticator.devices.revoke("d1", "operator", SCOPES)
    assert refusal(authenticator, new) == 401


def test_bearer_token_of_a_node_is_no_operator(authenticator: ConnectionAuthenticator) -> None:
    assert refusal(authenticator, pair(authenticator, role="node")) == 401


def test_bearer_guesses_from_elsewhere_are_limited(
    authenticator: ConnectionAuthenticator, clock: FakeClock
) -> None:
    token = pair(authenticator, READ)
    for _ in range(9):
        assert refusal(authenticator, "guess", REMOTE) == 401
    assert accept(authenticator, token, REMOTE).device_id, "the right one clears the count"
    for _ in range(10):
        refusal(authenticator, "guess", REMOTE)
    assert refusal(authenticator, token, REMOTE) == 429
    assert accept(authenticator, token, LOCAL).device_id, "no other address notices"


def test_bearer_without_authentication_is_for_local_programs(
    tmp_path: Path, clock: FakeClock
) -> None:
    open_gateway = make(tmp_path, clock, SharedSecretAuth())
    assert accept(open_gateway, "").scopes == set(SCOPES)
    assert refusal(open_gateway, "", PAGE) == 403 and refusal(open_gateway, "", REMOTE) == 401
