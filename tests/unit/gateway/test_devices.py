"""Pairing: who is approved for what, by whom, and how that ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.gateway.device_records import (
    DevicePairingRequest,
    describe_pending,
    read_device,
)
from homarus.gateway.devices import MAX_PENDING, DeviceRegistry
from homarus.gateway.scopes import SCOPES, granted, implied, missing
from homarus.testing.clock import START_MS, FakeClock

ADMIN, READ, WRITE = "operator.admin", "operator.read", "operator.write"
PAIRING, APPROVALS = "operator.pairing", "operator.approvals"


def ask(device: str = "d1", role: Any = "operator", *scopes: str) -> DevicePairingRequest:
    return DevicePairingRequest(
        device, "key", role, scopes or (READ,), "cli", "cli", "linux", "Laptop", "1.2.3.4"
    )


class Harness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "devices"
        self.clock = FakeClock()
        self.devices = DeviceRegistry(self.folder, self.clock)
        self.broadcasts: list[tuple[str, Any]] = []
        self.dropped: list[tuple[str, str, str]] = []
        self.devices.on_event = lambda name, payload: self.broadcasts.append((name, payload))
        self.devices.on_token_voided = lambda *what: self.dropped.append(what)

    def file(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())


@pytest.fixture
def world(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_scopes_include_others_as_the_protocol_defines() -> None:
    assert implied([ADMIN]) == set(SCOPES)
    assert implied([WRITE]) == {WRITE, READ}
    assert implied(["nonsense", APPROVALS]) == {APPROVALS}
    assert missing([READ, ADMIN], [WRITE]) == (ADMIN,)
    assert missing(["operator.talk"], []) == ()
    assert granted([READ, ADMIN, "operator.talk"], [WRITE]) == {READ}
    assert granted([READ], [ADMIN]) == {READ}


def test_local_pairing_is_stored_in_openclaw_format(world: Harness) -> None:
    device = world.devices.pair(ask("d1", "operator", ADMIN, READ))
    entry = world.file("paired")["d1"]
    token = device.tokens["operator"]
    assert entry == {
        "deviceId": "d1",
        "publicKey": "key",
        "displayName": "Laptop",
        "platform": "linux",
        "clientId": "cli",
        "clientMode": "cli",
        "remoteIp": "1.2.3.4",
        "role": "operator",
        "roles": ["operator"],
        "scopes": [ADMIN, READ],
        "createdAtMs": START_MS,
        "approvedAtMs": START_MS,
        "tokens": {
            "operator": {
                "role": "operator",
                "scopes": [ADMIN, READ],
                "token": token.secret,
                "createdAtMs": START_MS,
            }
        },
    }
    assert oct((world.folder / "paired.json").stat().st_mode)[-3:] == "600"
    assert oct(world.folder.stat().st_mode)[-3:] == "700"
    assert len(token.secret) >= 32


async def test_pairing_request_expires_after_five_minutes(world: Harness) -> None:
    request = world.devices.request(ask())
    assert world.file("pending")[request]["ts"] == START_MS
    assert [e["requestId"] for e in world.devices.listing()["pending"]] == [request]
    await world.clock.advance(299)
    assert world.devices.request(ask()) == request, "the same ask is the same request"
    await world.clock.advance(1)
    assert world.devices.listing()["pending"] == []
    with pytest.raises(InvalidRequestError, match="unknown requestId"):
        world.devices.approve(request, [ADMIN])
    assert world.devices.get("d1") is None


def test_approval_of_a_changed_request_needs_the_new_id(world: Harness) -> None:
    shown = world.devices.request(ask("d1", "operator", READ))
    other = world.devices.request(ask("d1", "operator", ADMIN))
    assert other != shown
    with pytest.raises(InvalidRequestError, match="unknown requestId"):
        world.devices.approve(shown, [ADMIN])
    assert [name for name, _ in world.broadcasts] == ["device.pair.requested"] * 2


def test_pairing_request_is_approved_once(world: Harness) -> None:
    request = world.devices.request(ask("d1", "operator", READ))
    device = world.devices.approve(request, [ADMIN])
    assert device.scopes == (READ,)
    assert device.tokens["operator"].scopes == (READ,)
    with pytest.raises(InvalidRequestError, match="unknown requestId"):
        world.devices.approve(request, [ADMIN])
    name, payload = world.broadcasts[-1]
    assert name == "device.pair.resolved"
    assert payload == {
        "requestId": request,
        "deviceId": "d1",
        "decision": "approved",
        "ts": START_MS,
    }


def test_rejected_request_is_removed(world: Harness) -> None:
    request = world.devices.request(ask())
    assert world.devices.reject(request) == "d1"
    assert world.devices.listing() == {"pending": [], "paired": []}
    assert world.broadcasts[-1][1]["decision"] == "rejected"


def test_approver_cannot_grant_more_than_its_own_scopes(world: Harness) -> None:
    request = world.devices.request(ask("d1", "operator", ADMIN))
    with pytest.raises(InvalidRequestError, match=r"missing scope: operator\.admin"):
        world.devices.approve(request, [PAIRING])
    assert world.devices.get("d1") is None
    world.devices.approve(request, [ADMIN])


def test_upgrade_request_exceeds_the_approved_scopes(world: Harness) -> None:
    device = world.devices.pair(ask("d1", "operator", READ))
    assert not device.lacks("operator", (READ,))
    assert device.lacks("operator", (READ, WRITE))
    assert device.lacks("node", ())
    assert not world.devices.pair(ask("d2", "operator", ADMIN)).lacks("operator", SCOPES)


def test_approved_upgrade_keeps_token_and_unknown_fields(world: Harness) -> None:
    before = world.devices.pair(ask("d1", "operator", READ))
    request = world.devices.request(ask("d1", "operator", READ, WRITE))
    assert world.file("pending")[request]["isRepair"] is True
    after = world.devices.approve(request, [ADMIN])
    assert after.tokens["operator"].secret == before.tokens["operator"].secret
    assert set(after.tokens["operator"].scopes) == {READ, WRITE}
    node = world.devices.approve(world.devices.request(ask("d1", "node")), [ADMIN])
    assert node.roles == {"operator", "node"}
    assert node.tokens.keys() == {"operator", "node"}


def test_device_lists_contain_no_token(world: Harness) -> None:
    device = world.devices.pair(ask())
    shown = json.dumps(world.devices.listing())
    assert device.tokens["operator"].secret not in shown
    (paired,) = world.devices.listing()["paired"]
    assert paired["tokens"] == [{"role": "operator", "scopes": [READ], "createdAtMs": START_MS}]


def test_token_is_found_by_device_role_and_secret(world: Harness) -> None:
    token = world.devices.pair(ask()).tokens["operator"]
    assert world.devices.find_token("d1", "operator", token.secret)
    for wrong in (("d2", "operator"), ("d1", "node")):
        assert not world.devices.find_token(*wrong, token.secret)
    for secret in ("", "x", token.secret[:-1]):
        assert not world.devices.find_token("d1", "operator", secret)
    assert world.file("paired")["d1"]["tokens"]["operator"]["lastUsedAtMs"] == START_MS


def test_rotated_token_is_void_and_its_connections_closed(world: Harness) -> None:
    """Row 10: the old bearer was valid after rotation."""
    old = world.devices.pair(ask("d1", "operator", READ, WRITE)).tokens["operator"]
    new = world.devices.rotate("d1", "operator", None, [ADMIN], except_conn_id="c1")
    assert new.secret != old.secret
    assert set(new.scopes) == {READ, WRITE}
    assert world.dropped == [("d1", "operator", "c1")]
    assert not world.devices.find_token("d1", "operator", old.secret)
    assert world.devices.find_token("d1", "operator", new.secret)


def test_rotation_beyond_approved_scopes_is_refused(world: Harness) -> None:
    world.devices.pair(ask("d1", "operator", READ))
    with pytest.raises(InvalidRequestError, match="missing scope"):
        world.devices.rotate("d1", "operator", [ADMIN], [ADMIN])
    world.devices.pair(ask("d2", "operator", ADMIN))
    with pytest.raises(InvalidRequestError, match="missing scope"):
        world.devices.rotate("d2", "operator", [ADMIN], [PAIRING])
    with pytest.raises(InvalidRequestError, match="missing scope"):
        world.devices.rotate("d2", "operator", [READ], [PAIRING, READ])
    assert world.devices.rotate("d1", "operator", [READ], [PAIRING, READ]).scopes == (READ,)
    for unknown in (("d3", "operator"), ("d1", "node")):
        with pytest.raises(InvalidRequestError, match="unknown deviceId/role"):
            world.devices.rotate(*unknown, None, [ADMIN])


def test_revoked_role_needs_a_new_approval(world: Harness) -> None:
    old = world.devices.pair(ask("d1", "operator", READ)).tokens["operator"]
    assert world.devices.is_token_current("d1", "operator", old.issued_ms)
    world.devices.revoke("d1", "operator", [ADMIN])
    assert world.dropped == [("d1", "operator", "")]
    assert not world.devices.find_token("d1", "operator", old.secret)
    assert not world.devices.is_token_current("d1", "operator", old.issued_ms)
    device = world.devices.get("d1")
    assert device and device.lacks("operator", (READ,))
    again = world.devices.approve(world.devices.request(ask("d1", "operator", READ)), [ADMIN])
    assert not again.lacks("operator", (READ,))
    assert again.tokens["operator"].secret != old.secret


def test_revocation_by_another_program_is_detected(world: Harness) -> None:
    token = world.devices.pair(ask()).tokens["operator"]
    path = world.folder / "paired.json"
    path.write_text("{}")
    assert not world.devices.is_token_current("d1", "operator", token.issued_ms)
    assert world.devices.get("d1") is None


def test_ensure_token_widens_within_the_approved_scopes(world: Harness) -> None:
    device = world.devices.pair(ask("d1", "operator", WRITE))
    assert world.devices.ensure_token(device, "operator", (READ,)) == device.tokens["operator"]
    stamp = (world.folder / "paired.json").stat().st_mtime_ns
    world.devices.ensure_token(device, "operator", (WRITE,))
    assert (world.folder / "paired.json").stat().st_mtime_ns == stamp, "nothing new: not written"


def test_pending_requests_are_bounded(world: Harness) -> None:
    for at in range(MAX_PENDING + 20):
        world.devices.request(ask(f"d{at}"))
    assert len(world.devices.listing()["pending"]) == MAX_PENDING
    assert world.devices.listing()["pending"][0]["deviceId"]


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "\ud800".encode("utf-8", "surrogatepass")])
def test_damaged_file_counts_as_empty_and_is_archived(world: Harness, text: str | bytes) -> None:
    world.folder.mkdir()
    data = text.encode() if isinstance(text, str) else text
    (world.folder / "paired.json").write_bytes(data)
    assert world.devices.get("d1") is None
    world.devices.pair(ask())
    assert world.devices.get("d1")
    assert (world.folder / "paired.json.corrupt").read_bytes() == data


def test_invalid_entries_are_skipped_and_kept(world: Harness) -> None:
    world.folder.mkdir()
    odd: dict[str, Any] = {
        "a": 1,
        "b": {"deviceId": "other"},
        "c": {"deviceId": "c", "role": 7, "roles": "x", "scopes": [1, READ], "tokens": {"node": 3}},
        "e": {"deviceId": "e", "tokens": {"node": {"token": "t", "revokedAtMs": [1]}}},
        "d": {"deviceId": "d", "tokens": {"operator": {"token": 5}}, "future": {"x": 1}},
    }
    (world.folder / "paired.json").write_text(json.dumps(odd))
    pending = {"r": [], "s": {"deviceId": "x"}, "t": {"deviceId": "x", "role": [], "ts": START_MS}}
    (world.folder / "pending.json").write_text(json.dumps(pending))
    assert world.devices.get("a") is None
    assert world.devices.get("b") is None
    device = world.devices.get("c")
    assert device and device.scopes == (READ,) and not device.tokens
    assert world.devices.listing()["pending"] == []
    world.devices.pair(ask())
    assert world.file("paired").items() >= odd.items()


@pytest.mark.parametrize("ts", [True, "now", None, START_MS + 5, float("inf")])
def test_pending_request_with_invalid_time_is_not_approved(world: Harness, ts: Any) -> None:
    world.folder.mkdir()
    entry = {"deviceId": "d", "role": "operator", "scopes": [ADMIN], "ts": ts}
    (world.folder / "pending.json").write_text(json.dumps({"r": entry}))
    with pytest.raises(InvalidRequestError):
        world.devices.approve("r", [ADMIN])


def test_device_paired_by_openclaw_is_known(world: Harness) -> None:
    entry = {
        "deviceId": "d",
        "publicKey": "k",
        "role": "operator",
        "scopes": [ADMIN],
        "tokens": {"operator": {"token": "t", "role": "operator", "scopes": [ADMIN]}},
        "createdAtMs": 1,
        "approvedAtMs": 1,
    }
    device = read_device("d", entry)
    assert device and device.roles == {"operator"}
    assert device.token("operator")


def test_removed_device_is_disconnected_and_unknown(world: Harness) -> None:
    world.devices.pair(ask("d1"))
    with pytest.raises(InvalidRequestError, match="missing scope"):
        world.devices.remove("d1", (PAIRING,))
    world.devices.remove("d1", (PAIRING,), by_device="d1")
    assert world.file("paired") == {} and world.dropped == [("d1", "operator", "")]
    assert world.devices.get("d1") is None
    with pytest.raises(InvalidRequestError, match="unknown deviceId"):
        world.devices.remove("d1", (ADMIN,))


def test_pending_device_is_described_on_one_escaped_line() -> None:
    entry = {"requestId": "12345678-9", "displayName": "a\nb\x1b[2J", "platform": "ios"}
    line = describe_pending(entry | {"remoteIp": "192.168.1.7"})
    assert line == (
        "a b\\u{1b}[2J (ios) from 192.168.1.7 waits for your approval:"
        " homarus devices approve 12345678"
    )
    assert describe_pending({}) == "a device waits for your approval: homarus devices approve "
