"""A JSON file that would exceed its bound is an error that keeps the old content.

Devices that were paired without a person are bounded in number, so that they cannot fill the file
of approved devices; a file that cannot be read never counts as empty.
"""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.channels import pairing_file
from homarus.channels.pairing_file import PairingFile
from homarus.core.errors import StoreError
from homarus.gateway import json_file
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.devices import MAX_SILENT, DeviceRegistry
from homarus.gateway.json_file import JsonFile
from homarus.providers import profile_file
from homarus.providers.profile_file import ProfileFile
from homarus.testing.clock import FakeClock

ADMIN = "operator.admin"
LONG = "x" * 256  # the longest name that a client may send
SCOPES = tuple(f"operator.{number:055d}" for number in range(64))


def local(device: str) -> DevicePairingRequest:
    return DevicePairingRequest(
        device.ljust(64, "0"), LONG, "operator", SCOPES, LONG, LONG, LONG, LONG
    )


def paired_ids(devices: DeviceRegistry) -> set[str]:
    return {entry["deviceId"].rstrip("0") for entry in devices.listing()["paired"]}


async def test_auto_paired_devices_keep_approvals_and_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 40  # as many writes as with the real one would take a quarter of a minute
    monkeypatch.setattr("homarus.gateway.devices.MAX_SILENT", limit)
    clock = FakeClock()
    devices = DeviceRegistry(tmp_path, clock)
    asked = devices.request(replace(local("approved-x"), remote_ip="10.0.0.9"))
    devices.approve(asked, [ADMIN])
    owner = devices.pair(local("owner-x"))
    gone = devices.pair(local("revoked-x"))
    devices.revoke(gone.id, "operator", [ADMIN])
    for number in range(limit + 20):
        await clock.advance(25 * 3_600)
        devices.pair(local(f"n{number}x"))
        known = devices.get(owner.id)
        assert known is not None, "a device in use is kept"
        devices.ensure_token(known, "operator", ())
    kept = paired_ids(devices)
    assert {"approved-x", "owner-x", "revoked-x"} <= kept
    assert f"n{limit + 19}x" in kept and "n0x" not in kept
    assert len(kept) == limit + 2, "an approval and a revocation by a person do not count"
    size = (tmp_path / "paired.json").stat().st_size
    assert size * MAX_SILENT / limit < json_file.MAX_BYTES


def test_oversized_paired_file_of_the_past_is_read_and_pruned(tmp_path: Path) -> None:
    devices = DeviceRegistry(tmp_path, FakeClock())
    asked = devices.request(replace(local("approved-x"), remote_ip="10.0.0.9"))
    devices.approve(asked, [ADMIN])
    file = tmp_path / "paired.json"
    entries = json.loads(file.read_text())
    (entry,) = entries.values()
    for number in range(1_200):
        name = f"flood{number}x".ljust(64, "0")
        plain = {key: value for key, value in entry.items() if key != "remoteIp"}
        entries[name] = {**plain, "deviceId": name, "createdAtMs": 5, "approvedAtMs": 5}
    file.write_text(json.dumps(entries))
    assert file.stat().st_size > json_file.MAX_BYTES
    devices.pair(local("new-x"))
    assert {"approved-x", "new-x"} <= paired_ids(devices)
    assert file.stat().st_size < json_file.MAX_BYTES


def test_json_file_beyond_its_bound_keeps_old_content(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.write({"approved": 1})
    before = file.path.read_bytes()
    with pytest.raises(StoreError, match="was not changed"):
        file.write({"approved": 1, "flood": "x" * json_file.MAX_BYTES})
    assert file.path.read_bytes() == before and file.read() == {"approved": 1}


def test_json_file_too_large_to_read_is_an_error_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    with path.open("wb") as huge:
        huge.truncate(json_file.MAX_READ_BYTES + 1)
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be read: it is larger"):
            JsonFile(path).read()
        with pytest.raises(StoreError, match="cannot be read: it is larger"):
            JsonFile(path).write({"new": 1})
    assert [each.name for each in tmp_path.iterdir()] == ["f.json"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_json_file_that_cannot_be_opened_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.path.write_text('{"approved": 1}')

    def fail(_path: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(StoreError, match="cannot be read"):
            file.read()
        with pytest.raises(StoreError, match="cannot be read"):
            file.write({"new": 1})
    assert file.read() == {"approved": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["f.json"]


def test_channel_pairing_file_beyond_its_bound_keeps_old_content(tmp_path: Path) -> None:
    file = PairingFile(tmp_path / "telegram-allowFrom.json")
    file.write({"version": 1, "allowFrom": ["1"]})
    with pytest.raises(StoreError, match="was not changed"):
        file.write({"version": 1, "allowFrom": ["x" * pairing_file.MAX_BYTES]})
    assert PairingFile(file.path).read() == {"version": 1, "allowFrom": ["1"]}


def test_profile_file_beyond_its_bound_keeps_old_content(tmp_path: Path) -> None:
    file = ProfileFile(tmp_path / "auth-profiles.json")
    key = {"type": "api_key", "provider": "openai", "key": "sk-1"}
    file.update(lambda raw: raw["profiles"].update({"openai:a": key}))
    before = file.path.read_bytes()
    huge = {**key, "key": "x" * profile_file.MAX_BYTES}
    with pytest.raises(StoreError, match="was not changed"):
        file.update(lambda raw: raw["profiles"].update({"openai:b": huge}))
    assert file.path.read_bytes() == before
