"""A client changes no device that may do more than itself, and no signature stands for a key.

Revoking, rotating and approving need the scopes of the device concerned. A signature covers the
nonce of its connection, so a recorded request is useless; a key of small order, for which anyone
can make signatures, is not a key.
"""

import secrets
from pathlib import Path
from typing import Any

import pytest

from homarus.config.gateway_schema import GatewayConfig
from homarus.core.errors import InvalidRequestError
from homarus.gateway.auth import SharedSecretAuth
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.devices import DeviceRegistry
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.identity import DeviceIdentity, PublicKey, to_base64url
from homarus.gateway.origin_policy import RequestInfo
from homarus.testing.clock import FakeClock

ADMIN, READ, PAIRING = "operator.admin", "operator.read", "operator.pairing"
LOCAL = RequestInfo("127.0.0.1", host="127.0.0.1:18789")
FIELD = 2**255 - 19
CURVE = -121665 * pow(121666, -1, FIELD) % FIELD
Point = tuple[int, int]


@pytest.fixture
def devices(tmp_path: Path) -> DeviceRegistry:
    return DeviceRegistry(tmp_path / "devices", FakeClock())


def request(device: str, *scopes: str) -> DevicePairingRequest:
    return DevicePairingRequest(device, "key", "operator", scopes, "cli", "cli", "linux")


@pytest.mark.parametrize("by", [[PAIRING], [PAIRING, READ], []])
def test_pairing_client_cannot_revoke_an_admin_device(
    devices: DeviceRegistry, by: list[str]
) -> None:
    token = devices.pair(request("owner", ADMIN)).tokens["operator"]
    with pytest.raises(InvalidRequestError, match=r"missing scope: operator\.admin"):
        devices.revoke("owner", "operator", by, by_device="phone")
    for scopes in (None, [], [READ]):
        with pytest.raises(InvalidRequestError, match="missing scope"):
            devices.rotate("owner", "operator", scopes, by, by_device="phone")
    assert devices.find_token("owner", "operator", token.secret), "still valid"


def test_device_may_revoke_equals_and_itself(devices: DeviceRegistry) -> None:
    devices.pair(request("phone", PAIRING))
    devices.pair(request("tablet", PAIRING))
    devices.pair(request("owner", ADMIN))
    assert devices.revoke("tablet", "operator", [PAIRING], by_device="phone")
    devices.rotate("phone", "operator", None, [PAIRING], by_device="phone")
    assert devices.revoke("owner", "operator", [READ], by_device="owner"), "its own, narrowed"
    assert devices.revoke("phone", "operator", [ADMIN], by_device="laptop")


def test_approval_of_revoked_admin_needs_admin(devices: DeviceRegistry) -> None:
    """Requesting fewer scopes must not restore more than the approver may grant."""
    devices.pair(request("owner", ADMIN))
    devices.revoke("owner", "operator", [ADMIN])
    asked = devices.request(request("owner"))
    with pytest.raises(InvalidRequestError, match=r"missing scope: operator\.admin"):
        devices.approve(asked, [PAIRING])
    known = devices.get("owner")
    assert known and known.lacks("operator", ())
    devices.approve(asked, [ADMIN])


class Handshake:
    """A gateway's authenticator, and connect requests to it."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.identity = DeviceIdentity.load_or_create(folder / "device.json", 1)
        auth = SharedSecretAuth("token", "right")
        config = GatewayConfig.model_validate({})
        self.authenticator = ConnectionAuthenticator.from_config(
            config, auth, 18789, folder, self.clock
        )

    def params(self, nonce: str | None) -> dict[str, Any]:
        device = self.identity.device_params(
            client_id="cli",
            client_mode="cli",
            role="operator",
            scopes=[READ],
            signed_at_ms=self.clock.now_ms(),
            token="right",
            nonce=nonce,
        )
        client = {"id": "cli", "version": "1", "platform": "linux", "mode": "cli"}
        protocol = {"minProtocol": 3, "maxProtocol": 3, "role": "operator", "scopes": [READ]}
        return {**protocol, "client": client, "auth": {"token": "right"}, "device": device}

    def connect(self, params: dict[str, Any], nonce: str) -> None:
        self.authenticator.authenticate(params, LOCAL, nonce, "c1")


def test_request_without_nonce_is_refused_on_loopback(tmp_path: Path) -> None:
    gateway = Handshake(tmp_path)
    recorded = gateway.params(nonce=None)
    for nonce in ("first", "second"):
        with pytest.raises(InvalidRequestError, match="device nonce required"):
            gateway.connect(recorded, nonce)


def test_recorded_request_is_refused_on_the_next_connection(tmp_path: Path) -> None:
    gateway = Handshake(tmp_path)
    recorded = gateway.params(nonce="first")
    gateway.connect(recorded, "first")
    with pytest.raises(InvalidRequestError, match="device nonce mismatch"):
        gateway.connect(recorded, "second")


def test_signature_without_private_key_is_refused(tmp_path: Path) -> None:
    """A zero signature verifies for some texts under a key of small order."""
    gateway = Handshake(tmp_path)
    zero_key, zero_signature = bytes(32), to_base64url(bytes(64))
    forged = gateway.params(nonce="n")
    forged["device"] |= {
        "id": PublicKey(zero_key).device_id,
        "publicKey": to_base64url(zero_key),
        "signature": zero_signature,
    }
    for _ in range(32):  # each text is another try
        forged["device"]["signedAt"] += 1
        with pytest.raises(InvalidRequestError, match="device public key invalid"):
            gateway.connect(forged, "n")
    assert gateway.authenticator.devices.listing()["paired"] == []


@pytest.mark.parametrize("sign", [0, 1 << 255])
def test_every_key_of_small_order_is_refused(sign: int) -> None:
    points = small_order_points()
    assert len(points) == 8
    encodings = {y for _, y in points}
    encodings |= {y + FIELD for y in encodings if y + FIELD < 2**255}  # not canonical
    for y in encodings:
        raw = (y | sign).to_bytes(32, "little")
        assert PublicKey.read(to_base64url(raw)) is None, hex(y)


def test_key_of_a_pair_is_accepted(tmp_path: Path) -> None:
    for number in range(20):
        identity = DeviceIdentity.load_or_create(tmp_path / f"{number}.json", 1)
        key = PublicKey.read(identity.public_key)
        assert key and key.verify(identity.sign("text"), "text")
    for beyond in (FIELD, FIELD + 2, 2**255 - 1):
        assert PublicKey.read(to_base64url(beyond.to_bytes(32, "little"))) is None


def small_order_points() -> set[Point]:
    """Return the points of the curve whose order divides 8: multiples of one of order 8."""
    group_order = 2**252 + 27742317777372353535851937790883648493
    while True:
        y = secrets.randbelow(FIELD)
        square = (y * y - 1) * pow(CURVE * y * y + 1, -1, FIELD) % FIELD
        x = pow(square, (FIELD + 3) // 8, FIELD)
        if (x * x - square) % FIELD:
            x = x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
        if (x * x - square) % FIELD:
            continue  # no point has this y
        found = {multiple((x, y), group_order * factor) for factor in range(1, 9)}
        if len(found) == 8:
            return found


def multiple(point: Point, factor: int) -> Point:
    result = (0, 1)
    while factor:
        if factor & 1:
            result = add(result, point)
        point = add(point, point)
        factor >>= 1
    return result


def add(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    both = CURVE * x1 * x2 * y1 * y2 % FIELD
    return (
        (x1 * y2 + x2 * y1) * pow(1 + both, -1, FIELD) % FIELD,
        (y1 * y2 + x1 * x2) * pow(1 - both, -1, FIELD) % FIELD,
    )
