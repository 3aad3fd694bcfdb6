"""`homarus devices` on the files of a gateway that does not run; test_tls.py has a running one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli import devices as module
from homarus.cli.devices import command
from homarus.cli.doctor import command as doctor
from homarus.core.clock import SystemClock
from homarus.core.errors import NotPairedError, StateInUseError, UnavailableError, UserError
from homarus.core.message import Json
from homarus.gateway.device_records import VOIDED_REASON, DevicePairingRequest
from homarus.gateway.devices import DeviceRegistry
from homarus.store.lock import StateLock

READ = "operator.read"


@pytest.fixture
def devices(home: Path) -> DeviceRegistry:
    return DeviceRegistry(home / ".openclaw" / "devices", SystemClock())


def wanted(device_id: str, name: str = "Phone", role: Any = "operator") -> DevicePairingRequest:
    return DevicePairingRequest(
        device_id, "key", role, (READ,), "webchat-ui", "webchat", "ios", name, "192.168.1.7"
    )


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def output(*args: str) -> str:
    done = run(*args)
    assert done.exception is None or done.exit_code == 1, done.exception
    return done.output


def refused(*args: str) -> UserError:
    error = run(*args).exception
    assert isinstance(error, UserError), error
    return error


def listed() -> Any:
    return json.loads(output("list", "--json"))


def test_device_is_listed_approved_and_removed_by_a_prefix(devices: DeviceRegistry) -> None:
    assert "No device waits" in output("list") and "No device is paired" in output("list")
    request_id = devices.request(wanted("ab" * 32, "An\x1b[31mn\u202e"))
    shown = output("list")
    assert f"waits for your approval: homarus devices approve {request_id[:8]}" in shown
    assert "An\\u{1b}[31mn\\u{202e} (ios) from 192.168.1.7" in shown and "\x1b" not in shown
    done = output("approve", request_id[:6].upper())
    assert "is paired: abababab, operator (read)." in done
    (paired,) = listed()["paired"]
    assert paired["deviceId"] == "ab" * 32 and "token" not in paired["tokens"][0]
    assert "1 paired:" in output("list")
    output("remove", "aba")
    assert listed() == {"pending": [], "paired": []}


def test_revoked_device_that_asks_again_is_not_said_to_ask_for_more(
    devices: DeviceRegistry,
) -> None:
    devices.request(wanted("ab" * 32))
    output("approve", "--latest")
    output("revoke", "abab")
    devices.request(wanted("ab" * 32))
    assert "abababab, which was paired before; operator (read)" in output("list")


def test_approve_without_id_shows_the_waiting_and_latest_takes_one(
    devices: DeviceRegistry,
) -> None:
    nothing = run("approve")
    assert "No device waits" in nothing.output
    assert "No device waits" in output("approve", "--latest")
    devices.request(wanted("a1", "First"))
    assert "First (ios)" in output("approve") and not listed()["paired"]
    assert json.loads(output("approve", "--json"))["pending"]
    assert "First (ios) is paired" in output("approve", "--latest")
    assert "exclude each other" in refused("approve", "x", "--latest").message


def test_doctor_names_a_waiting_device_and_an_unusable_certificate(
    devices: DeviceRegistry, home: Path
) -> None:
    request_id = devices.request(wanted("a1"))
    tls = {"enabled": True, "certPath": "/no/cert", "keyPath": "/no/key"}
    config = json.dumps({"gateway": {"tls": tls}})
    (home / ".openclaw" / "openclaw.json").write_text(config)
    shown = CliRunner().invoke(doctor).output
    assert f"homarus devices approve {request_id[:8]}" in shown
    assert "gateway.tls.certPath: /no/cert cannot be read" in shown


def test_request_is_rejected_by_the_id_of_its_device(devices: DeviceRegistry) -> None:
    assert "no device waits" in refused("reject", "x").message
    request_id = devices.request(wanted("cd" * 32))
    assert "Phone (ios) was not let in." in output("reject", "cdcd")
    assert listed()["pending"] == []
    assert request_id


def test_mistyped_and_ambiguous_ids_are_explained(devices: DeviceRegistry) -> None:
    assert "no device is paired" in refused("remove", "x").message
    for device_id in ("abcd0000" + "0" * 56, "abcd1111" + "1" * 56):
        devices.pair(wanted(device_id))
    both = refused("remove", "abcd")
    assert "2 ids begin with 'abcd'" in both.message and "abcd0000" in both.message
    near = refused("remove", "abce0000")
    assert "unknown device" in near.message and "did you mean abcd0000" in near.fix
    assert "devices list" in refused("remove", "zzzz").fix
    assert refused("remove", "").message.startswith("unknown device")
    assert "no device is named" in refused("revoke").message


def test_token_is_rotated_and_revoked(devices: DeviceRegistry) -> None:
    before = devices.pair(wanted("ef" * 32)).tokens["operator"].secret
    text = output("rotate", "ef")
    after = devices.get("ef" * 32)
    assert after and after.tokens["operator"].secret != before
    assert after.tokens["operator"].secret not in text  # printed with --json alone
    rotated = json.loads(output("rotate", "--device", "ef", "--scope", READ, "--json"))
    assert rotated["token"] and rotated["scopes"] == [READ] and rotated["role"] == "operator"
    assert "missing scope" in str(run("rotate", "ef", "--scope", "operator.admin").exception)
    assert "roles of this device are operator" in refused("revoke", "ef", "--role", "node").message
    assert "must be approved again" in output("revoke", "ef")
    assert "revoked: operator" in output("list")


def test_device_with_two_roles_needs_the_role(devices: DeviceRegistry) -> None:
    devices.pair(wanted("aa"))
    devices.approve(devices.request(wanted("aa", role="node")), ("operator.admin",))
    assert "node and operator" in refused("revoke", "aa").message
    assert json.loads(output("revoke", "aa", "--role", "node", "--json"))["role"] == "node"


def test_change_waits_for_no_other_program(devices: DeviceRegistry, home: Path) -> None:
    devices.pair(wanted("aa"))
    lock = StateLock(home / ".openclaw")
    try:
        assert listed()["paired"]
        assert isinstance(run("remove", "aa").exception, StateInUseError)
    finally:
        lock.release()
    assert output("remove", "aa") == "Phone (ios) is forgotten.\n"


def test_own_command_line_is_approved_where_the_gateway_asks_it_to_pair(
    devices: DeviceRegistry, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotPairedError("pairing required")

    monkeypatch.setattr(module, "is_gateway_running", lambda _gateway: True)
    monkeypatch.setattr(module, "open_gateway", refuse)
    devices.request(wanted("aa", "This command line"))
    lock = StateLock(home / ".openclaw")  # as the gateway holds it
    try:
        assert "This command line (ios) is paired" in output("approve", "--latest")
        assert isinstance(run("remove", "aa").exception, NotPairedError)
        elsewhere = run("list", "--url", "wss://gw.example")
        assert isinstance(elsewhere.exception, NotPairedError)
    finally:
        lock.release()


class ClosedMethods:
    """A gateway that closes the connection instead of answering."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def call(self, method: str, params: Mapping[str, Json] | None = None) -> Json:
        raise UnavailableError(f"the gateway closed the connection: {self._reason}")


async def test_revoke_of_this_command_line_itself_succeeds() -> None:
    params = {"deviceId": "d1", "role": "operator"}
    done = await module._call(ClosedMethods(VOIDED_REASON), "device.token.revoke", params)
    assert done == {**params, "closed": True}
    with pytest.raises(UnavailableError):
        await module._call(ClosedMethods("service restart"), "device.token.revoke", params)
    with pytest.raises(UnavailableError):
        await module._call(ClosedMethods(VOIDED_REASON), "device.pair.approve", params)
