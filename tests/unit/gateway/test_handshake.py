"""From a connect request to a caller: every check, in order, and every refusal by its name."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homarus.config.gateway_schema import GatewayConfig
from homarus.core.errors import InvalidRequestError, NotPairedError, ProtocolError
from homarus.gateway.auth import SharedSecretAuth
from homarus.gateway.connect_params import ConnectParams, parse_connect_params
from homarus.gateway.handshake import AuthenticatedClient, ConnectionAuthenticator
from homarus.gateway.identity import DeviceIdentity
from homarus.gateway.origin_policy import RequestInfo
from homarus.testing.clock import FakeClock

NONCE = "4c9d8dbb-1ae0-4366-81a9-dbecc9edad27"
ADMIN, READ, WRITE = "operator.admin", "operator.read", "operator.write"
LOCAL = RequestInfo("127.0.0.1", host="127.0.0.1:18789")
REMOTE = RequestInfo("10.0.0.9", own="10.0.0.2", host="10.0.0.2:18789")
PAGE = RequestInfo(
    "127.0.0.1", host="127.0.0.1:18789", origin="http://127.0.0.1:18789", is_browser=True
)
PROXIED = RequestInfo(
    "127.0.0.1", host="127.0.0.1:18789", is_forwarded=True, forwarded_for=("1.2.3.4",)
)


class Client:
    """A client with a device of its own."""

    def __init__(self, folder: Path, name: str = "device") -> None:
        self.clock = FakeClock()
        self.folder = folder
        self.identity = DeviceIdentity.load_or_create(folder / f"{name}.json", 1)

    def authenticator(
        self, auth: SharedSecretAuth | None = None, **settings: Any
    ) -> ConnectionAuthenticator:
        config = GatewayConfig.model_validate(settings)
        return ConnectionAuthenticator.from_config(
            config, auth or SharedSecretAuth("token", "right"), 18789, self.folder, self.clock
        )

    def params(self, token: str | None = "right", **changes: Any) -> dict[str, Any]:
        params: dict[str, Any] = {
            "minProtocol": 3,
            "maxProtocol": 3,
            "client": {"id": "cli", "version": "1", "platform": "linux", "mode": "cli"},
            "role": "operator",
            "scopes": [READ],
            "caps": [],
        } | changes
        return params if token is None else params | {"auth": {"token": token}}

    def signed(
        self, token: str | None = "right", nonce: str | None = NONCE, **changes: Any
    ) -> dict[str, Any]:
        params = self.params(token, **changes)
        device = self.identity.device_params(
            client_id=params["client"]["id"],
            client_mode=params["client"]["mode"],
            role=params["role"],
            scopes=params["scopes"],
            signed_at_ms=self.clock.now_ms(),
            token=token,
            nonce=nonce,
        )
        return params | {"device": device}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


def accept(
    authenticator: ConnectionAuthenticator, params: Any, door: RequestInfo = LOCAL
) -> AuthenticatedClient:
    return authenticator.authenticate(params, door, NONCE, "c1")


def refusal(
    authenticator: ConnectionAuthenticator, params: Any, door: RequestInfo = LOCAL
) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        accept(authenticator, params, door)
    assert caught.value.close_code in {1002, 1008}
    return caught.value


def test_local_device_is_paired_silently_and_gets_a_token(client: Client) -> None:
    authenticator = client.authenticator()
    accepted = accept(authenticator, client.signed(scopes=[ADMIN, READ, "operator.talk"]))
    assert accepted.method == "token"
    assert accepted.caller.scopes == {ADMIN, READ}, "what is no scope is not granted"
    assert accepted.caller.may("write"), "admin includes it"
    assert (accepted.caller.device_id, accepted.caller.is_local) == (
        client.identity.device_id,
        True,
    )
    assert accepted.auth and accepted.auth.keys() == {"deviceToken", "role", "scopes", "issuedAtMs"}
    again = accept(authenticator, client.signed(scopes=[ADMIN, READ]))
    assert again.auth and again.auth["deviceToken"] == accepted.auth["deviceToken"]


def test_device_token_replaces_the_shared_secret(client: Client) -> None:
    authenticator = client.authenticator()
    first = accept(authenticator, client.signed())
    assert first.auth
    second = accept(authenticator, client.signed(token=first.auth["deviceToken"]), REMOTE)
    assert second.method == "device-token"
    assert second.caller.scopes == {READ}
    newer = client.signed(token=first.auth["deviceToken"])
    newer["auth"] = {"deviceToken": newer["auth"]["token"]}
    assert accept(authenticator, newer, REMOTE).method == "device-token"


def test_remote_device_needs_an_approval(client: Client) -> None:
    authenticator = client.authenticator()
    error = refusal(authenticator, client.signed(), REMOTE)
    assert isinstance(error, NotPairedError)
    assert error.message == "pairing required"
    assert error.details
    request = str(error.details["requestId"])
    assert authenticator.devices.listing()["pending"][0]["remoteIp"] == "10.0.0.9"
    authenticator.devices.approve(request, [ADMIN])
    assert accept(authenticator, client.signed(), REMOTE).caller.scopes == {READ}


@pytest.mark.parametrize("door", [LOCAL, REMOTE, PAGE])
def test_granted_scopes_are_approved_ones_and_upgrade_waits(
    client: Client, door: RequestInfo
) -> None:
    """Row 8: a client declares or upgrades its own scopes."""
    authenticator = client.authenticator()
    accept(authenticator, client.signed(scopes=[READ]))
    error = refusal(authenticator, client.signed(scopes=[READ, ADMIN]), door)
    assert error.message == "pairing required"
    assert accept(authenticator, client.signed(scopes=[READ]), door).caller.scopes == {READ}


def test_second_role_of_remote_device_needs_an_approval(client: Client) -> None:
    authenticator = client.authenticator()
    accept(authenticator, client.signed())
    node = {"id": "node-host", "version": "1", "platform": "linux", "mode": "node"}
    asked = client.signed(client=node, role="node", scopes=[ADMIN])
    error = refusal(authenticator, asked, REMOTE)
    assert error.details
    authenticator.devices.approve(str(error.details["requestId"]), [ADMIN])
    assert accept(authenticator, asked, REMOTE).caller.scopes == frozenset(), "a node has no scopes"


def test_token_without_device_grants_no_scopes(client: Client) -> None:
    accepted = accept(client.authenticator(), client.params(scopes=[ADMIN]))
    assert accepted.caller.scopes == frozenset()
    assert accepted.auth is None
    assert not accepted.caller.may("read")


def test_client_without_secret_and_device_is_refused(client: Client) -> None:
    authenticator = client.authenticator(SharedSecretAuth())
    error = refusal(authenticator, client.params(token=None))
    assert isinstance(error, NotPairedError)
    assert error.message == "device identity required"
    assert accept(authenticator, client.signed(token=None)).method == "none"


def test_auth_none_through_a_proxy_is_refused(client: Client) -> None:
    """Row 5: a token is required of everybody who is not here."""
    authenticator = client.authenticator(SharedSecretAuth())
    assert "only this machine" in refusal(authenticator, client.signed(token=None), PROXIED).message
    authenticator = client.authenticator()
    assert "token missing" in refusal(authenticator, client.signed(token=None), PROXIED).message
    assert refusal(authenticator, client.signed(), PROXIED).message == "pairing required"


@pytest.mark.parametrize("token", ["wrong", "", [], True, {}, 0, ["right"], None])
@pytest.mark.parametrize("with_device", [True, False])
def test_wrong_token_is_refused(client: Client, token: Any, with_device: bool) -> None:
    """Row 6."""
    params = client.signed() if with_device else client.params()
    params["auth"] = {"token": token}
    message = refusal(client.authenticator(), params).message
    assert message.startswith(("unauthorized: ", "invalid connect params: at auth/token", "device"))


def test_wrong_token_error_equals_openclaw(client: Client) -> None:
    error = refusal(client.authenticator(), client.params(token="wrong"))
    told = "unauthorized: gateway token mismatch (provide gateway auth token)"
    assert (error.message, error.wire, error.close_code) == (told, "INVALID_REQUEST", 1008)
    assert error.details is None


@pytest.mark.parametrize("extra", [{}, {"deviceToken": "bogus"}])
@pytest.mark.parametrize("with_device", [True, False])
def test_browser_with_wrong_tokens_is_locked_out(
    client: Client, extra: dict[str, str], with_device: bool
) -> None:
    """Row 3: loopback is no excuse for a page, and a bogus device token no way around."""
    authenticator = client.authenticator()
    page = {"id": "openclaw-control-ui", "version": "1", "platform": "web", "mode": "ui"}
    make = client.signed if with_device else client.params
    for _ in range(10):
        params = make(token="wrong", client=page)
        params["auth"] |= extra
        assert "mismatch" in refusal(authenticator, params, PAGE).message
    error = refusal(authenticator, make(token="right", client=page), PAGE)
    assert error.retry_after_ms == 300_000
    assert error.details == {"code": "AUTH_RATE_LIMITED"}
    accept(authenticator, client.signed())  # the owner's own programs still come in


def test_locked_out_address_still_accepts_device_tokens(client: Client) -> None:
    authenticator = client.authenticator()
    own = accept(authenticator, client.signed()).auth
    assert own
    for _ in range(11):
        refusal(authenticator, client.params(token="wrong"), REMOTE)
    assert refusal(authenticator, client.params(token="right"), REMOTE).retry_after_ms
    accept(authenticator, client.signed(token=own["deviceToken"]), REMOTE)


def test_device_token_guessing_is_rate_limited(client: Client) -> None:
    authenticator = client.authenticator(SharedSecretAuth("password", "right"))
    accept(authenticator, client.signed(token=None) | {"auth": {"password": "right"}})
    for _ in range(10):
        error = refusal(authenticator, client.signed(token="guess"), REMOTE)
        assert "device token mismatch" in error.message
    assert refusal(authenticator, client.signed(token="guess"), REMOTE).retry_after_ms


def change(params: dict[str, Any], **device: Any) -> dict[str, Any]:
    return params | {"device": params["device"] | device}


def test_each_device_error_has_its_message(client: Client, tmp_path: Path) -> None:
    authenticator, good = client.authenticator(), client.signed()
    other = Client(tmp_path, "other").signed()["device"]
    now = client.clock.now_ms()
    cases: list[tuple[dict[str, Any], RequestInfo, str]] = [
        (change(good, publicKey="AAAA"), LOCAL, "device public key invalid"),
        (change(good, id="0" * 64), LOCAL, "device identity mismatch"),
        (change(good, publicKey=other["publicKey"]), LOCAL, "device identity mismatch"),
        (change(good, signedAt=now - 600_001), LOCAL, "device signature expired"),
        (change(good, signedAt=now + 600_001), LOCAL, "device signature expired"),
        (client.signed(nonce=None), LOCAL, "device nonce required"),
        (client.signed(nonce=None), REMOTE, "device nonce required"),
        (client.signed(nonce=None), PROXIED, "device nonce required"),
        (client.signed(nonce="another"), LOCAL, "device nonce mismatch"),
        (change(good, signature=other["signature"]), LOCAL, "device signature invalid"),
        (change(good, signature="!"), LOCAL, "device signature invalid"),
        (change(good, signedAt=now - 1), LOCAL, "device signature invalid"),
        (good | {"scopes": [ADMIN]}, LOCAL, "device signature invalid"),
        (good | {"role": "node"}, LOCAL, "device signature invalid"),
    ]
    for params, door, message in cases:
        error = refusal(authenticator, params, door)
        assert (error.message, error.close_code, error.wire) == (message, 1008, "INVALID_REQUEST")
    assert authenticator.devices.listing()["paired"] == []


def test_nonce_of_another_connection_is_refused(client: Client) -> None:
    authenticator, params = client.authenticator(), client.signed()
    accept(authenticator, params)
    with pytest.raises(InvalidRequestError, match="nonce mismatch"):
        authenticator.authenticate(params, LOCAL, "the next one's", "c2")


@pytest.mark.parametrize(("low", "high"), [(1, 2), (5, 5), (5, 9), (3, 1), (4, 3)])
def test_unsupported_protocol_range_is_a_mismatch(client: Client, low: int, high: int) -> None:
    params = client.signed(minProtocol=low, maxProtocol=high)
    error = refusal(client.authenticator(), params)
    assert (error.message, error.close_code) == ("protocol mismatch", 1002)
    assert error.details == {"expectedProtocol": 3}


def test_newer_client_gets_the_newest_protocol(client: Client) -> None:
    authenticator = client.authenticator()
    assert accept(authenticator, client.signed(minProtocol=1, maxProtocol=9)).caller.protocol == 4
    assert accept(authenticator, client.signed(minProtocol=4, maxProtocol=4)).caller.protocol == 4
    assert accept(authenticator, client.signed()).caller.protocol == 3


def test_protocol_is_checked_before_role_and_role_before_secret(
    client: Client,
) -> None:
    authenticator = client.authenticator()
    wrong = client.params(token="wrong", role="owner", minProtocol=5, maxProtocol=5)
    assert refusal(authenticator, wrong).message == "protocol mismatch"
    assert refusal(authenticator, wrong | {"minProtocol": 3}).message == "invalid role"


def test_page_client_needs_an_allowed_origin(client: Client) -> None:
    """Rows 1 and 2: a page from elsewhere is refused, whatever it knows."""
    authenticator = client.authenticator()
    page = {"id": "webchat", "version": "1", "platform": "web", "mode": "webchat"}
    assert "origin missing" in refusal(authenticator, client.signed(client=page)).message
    evil = RequestInfo(
        "127.0.0.1", host="127.0.0.1:18789", origin="https://evil.example", is_browser=True
    )
    assert "origin not allowed" in refusal(authenticator, client.signed(client=page), evil).message
    assert "origin not allowed" in refusal(authenticator, client.signed(), evil).message
    accept(authenticator, client.signed(client=page), PAGE)


@pytest.mark.parametrize("field", ["senderIsOwner", "isOwner", "isLocal", "__proto__"])
def test_claimed_permissions_are_ignored(client: Client, field: str) -> None:
    """Row 9: the owner is known by the server, not by a flag."""
    error = refusal(client.authenticator(), client.signed() | {field: True})
    assert "invalid connect params" in error.message


def test_rotated_or_revoked_token_is_refused(client: Client) -> None:
    """Row 10."""
    authenticator = client.authenticator()
    old = accept(authenticator, client.signed()).auth
    assert old
    authenticator.devices.rotate(client.identity.device_id, "operator", None, [ADMIN])
    error = refusal(authenticator, client.signed(token=old["deviceToken"]), REMOTE)
    assert "device token mismatch" in error.message
    authenticator.devices.revoke(client.identity.device_id, "operator", [ADMIN])
    assert refusal(authenticator, client.signed(), LOCAL).message == "pairing required"


def test_narrowed_token_grants_only_its_scopes(client: Client) -> None:
    authenticator = client.authenticator()
    accept(authenticator, client.signed(scopes=[READ, WRITE]))
    device_id = client.identity.device_id
    narrow = authenticator.devices.rotate(device_id, "operator", [READ], [ADMIN])
    asked = client.signed(token=narrow.secret, scopes=[READ, WRITE])
    assert refusal(authenticator, asked, REMOTE).message == "pairing required"
    accept(authenticator, client.signed(token=narrow.secret, scopes=[READ]), REMOTE)


async def test_signature_skew_uses_the_gateway_clock(client: Client) -> None:
    authenticator, params = client.authenticator(), client.signed()
    await client.clock.advance(600)
    accept(authenticator, params)
    await client.clock.advance(1)
    assert refusal(authenticator, params).message == "device signature expired"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
PLACES = [(), ("client",), ("device",), ("auth",)]
NAMES = sorted(
    {field.alias or name for name, field in ConnectParams.model_fields.items()}
    | {"id", "mode", "token", "password", "publicKey", "signature", "signedAt", "nonce"}
)


@given(raw=JSON)
def test_invalid_params_are_refused_in_one_line(raw: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_connect_params(raw)
    assert caught.value.close_code
    assert len(caught.value.message) < 1_000


@example(place=(), name="device", value=None)
@given(place=st.sampled_from(PLACES), name=st.sampled_from(NAMES), value=JSON)
def test_any_changed_field_never_pairs_a_remote_device(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[str, ...], name: str, value: Any
) -> None:
    client = Client(tmp_path_factory.mktemp("gate"))
    params = copy.deepcopy(client.signed(scopes=[READ]))
    target = params
    for step in place:
        target = target[step]
    target[name] = value
    authenticator = client.authenticator()
    if (place, name, value) == ((), "device", None):  # the token alone: let in, with no rights
        assert not authenticator.authenticate(params, REMOTE, NONCE, "c").caller.scopes
    else:
        refusal(authenticator, params, REMOTE)
    assert authenticator.devices.listing()["paired"] == []
