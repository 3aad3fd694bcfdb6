"""Clients of protocol 4 connect as they do to OpenClaw 2026.9.6.

A program on this machine that sends the shared secret and no device gets the scopes it requests. A
device may sign version 3 of the text, which has the platform and the device family.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ProtocolError
from homarus.gateway.auth import AuthMode, SharedSecretAuth
from homarus.gateway.auth_rate_limiter import AuthRateLimiter
from homarus.gateway.devices import DeviceRegistry
from homarus.gateway.foreign_hosts import ForeignHostLog
from homarus.gateway.handshake import AuthenticatedClient, ConnectionAuthenticator
from homarus.gateway.identity import DeviceIdentity, auth_payload
from homarus.gateway.origin_policy import OriginPolicy, RequestInfo
from homarus.testing.clock import FakeClock

NONCE = "11111111-2222-3333-4444-555555555555"
ADMIN, READ = "operator.admin", "operator.read"
LOCAL = RequestInfo("127.0.0.1", own="127.0.0.1", host="127.0.0.1:18789")
TUI = {
    "id": "openclaw-tui", "displayName": "openclaw-tui", "version": "2026.9.6", "mode": "ui",
    "platform": "linux", "deviceFamily": "Linux", "instanceId": "i", "buildId": "b",
    "timeZone": "Europe/Vienna",
}  # fmt: skip


def params(**changes: Any) -> dict[str, Any]:
    return {
        "minProtocol": 4,
        "maxProtocol": 4,
        "client": TUI,
        "caps": ["tool-events", "agent-kind"],
        "auth": {"token": "right"},
        "role": "operator",
        "scopes": [ADMIN, READ],
        **changes,
    }


class Door:
    """A gateway's authenticator."""

    def __init__(self, folder: Path, mode: AuthMode = "token") -> None:
        self.clock = FakeClock()
        secret = SharedSecretAuth(mode, "right" if mode != "none" else "")
        self.identity = DeviceIdentity.load_or_create(folder / "device.json", 1)
        self.authenticator = ConnectionAuthenticator(
            OriginPolicy(18789),
            secret,
            AuthRateLimiter(self.clock),
            DeviceRegistry(folder / "devices", self.clock),
            self.clock,
            ForeignHostLog(folder, self.clock),
        )

    def enter(self, asked: dict[str, Any], request: RequestInfo = LOCAL) -> AuthenticatedClient:
        return self.authenticator.authenticate(asked, request, NONCE, "c1")

    def signed(self, **described: str) -> dict[str, Any]:
        """Return params with a signature of version 3, over this platform and device family."""
        at_ms = self.clock.now_ms()
        text = auth_payload(
            device_id=self.identity.device_id,
            client_id="openclaw-tui",
            client_mode="ui",
            role="operator",
            scopes=[ADMIN, READ],
            signed_at_ms=at_ms,
            token="right",
            nonce=NONCE,
            platform=described.get("platform", "linux"),
            device_family=described.get("family", "Linux"),
        )
        device = {
            "id": self.identity.device_id,
            "publicKey": self.identity.public_key,
            "signature": self.identity.sign(text),
            "signedAt": at_ms,
            "nonce": NONCE,
        }
        return params(device=device)


def test_local_program_with_token_and_no_device_gets_its_scopes(tmp_path: Path) -> None:
    accepted = Door(tmp_path).enter(params(scopes=[READ]))
    assert accepted.caller.scopes == {READ} and not accepted.caller.may("admin")
    assert accepted.caller.protocol == 4
    assert Door(tmp_path).enter(params()).caller.may("admin")


@pytest.mark.parametrize(
    "request_info",
    [
        RequestInfo("10.0.0.5", own="10.0.0.1", host="10.0.0.1:18789"),
        replace(LOCAL, is_forwarded=True),
        replace(LOCAL, origin="http://127.0.0.1:18789", is_browser=True),
        replace(LOCAL, is_browser=True),
    ],
    ids=["remote", "forwarded", "page", "browser"],
)
def test_other_client_without_device_gets_no_scopes(
    tmp_path: Path, request_info: RequestInfo
) -> None:
    assert Door(tmp_path).enter(params(), request_info).caller.scopes == frozenset()


def test_client_of_protocol_3_without_device_gets_no_scopes(tmp_path: Path) -> None:
    accepted = Door(tmp_path).enter(params(minProtocol=3, maxProtocol=3))
    assert accepted.caller.scopes == frozenset()


@pytest.mark.parametrize("secret", [{}, {"token": "wrong"}, {"password": "right"}])
def test_local_program_without_the_secret_is_refused(tmp_path: Path, secret: Any) -> None:
    with pytest.raises(ProtocolError, match="unauthorized"):
        Door(tmp_path).enter(params(auth=secret))


def test_local_program_without_auth_and_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="device identity required"):
        Door(tmp_path, "none").enter(params())


def test_signature_of_version_3_is_accepted_in_any_case(tmp_path: Path) -> None:
    door = Door(tmp_path)
    accepted = door.enter(door.signed(platform=" LINUX ", family="linux"))
    assert accepted.caller.device_id == door.identity.device_id
    assert accepted.caller.may("admin")


@pytest.mark.parametrize("described", [{"platform": "darwin"}, {"family": "Mac"}])
def test_signature_of_version_3_over_other_facts_is_refused(
    tmp_path: Path, described: dict[str, str]
) -> None:
    door = Door(tmp_path)
    with pytest.raises(ProtocolError, match="device signature invalid"):
        door.enter(door.signed(**described))


def test_signed_text_of_version_3_has_the_fields_of_version_2_first() -> None:
    common: dict[str, Any] = {
        "device_id": "d", "client_id": "cli", "client_mode": "cli", "role": "operator",
        "scopes": [READ], "signed_at_ms": 7, "token": "t", "nonce": "n",
    }  # fmt: skip
    second = auth_payload(**common)
    third = auth_payload(**common, platform="Linux", device_family="Desktop")
    assert third == second.replace("v2|", "v3|", 1) + "|linux|desktop"


@pytest.mark.parametrize(("low", "high", "chosen"), [(3, 3, 3), (3, 4, 4), (4, 4, 4), (2, 9, 4)])
def test_protocol_range_selects_the_highest_common_version(
    tmp_path: Path, low: int, high: int, chosen: int
) -> None:
    asked = params(minProtocol=low, maxProtocol=high)
    assert Door(tmp_path).enter(asked).caller.protocol == chosen


@pytest.mark.parametrize(("low", "high"), [(5, 6), (1, 2), (4, 3)])
def test_protocol_range_without_a_common_version_is_refused(
    tmp_path: Path, low: int, high: int
) -> None:
    with pytest.raises(ProtocolError, match="protocol mismatch"):
        Door(tmp_path).enter(params(minProtocol=low, maxProtocol=high))
