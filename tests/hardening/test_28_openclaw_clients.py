"""Clients and pages of OpenClaw read our schema, our log, and reach the gateway from loopback."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.cli.logs import show_line
from homarus.config.json_schema import inline_references
from homarus.config.log_setup import JsonLineFormatter
from homarus.core.errors import ProtocolError
from homarus.gateway.auth import AuthMode, SharedSecretAuth
from homarus.gateway.auth_rate_limiter import AuthRateLimiter
from homarus.gateway.devices import DeviceRegistry
from homarus.gateway.foreign_hosts import ForeignHostLog
from homarus.gateway.handshake import AuthenticatedClient, ConnectionAuthenticator
from homarus.gateway.identity import DeviceIdentity
from homarus.gateway.origin_policy import OriginPolicy, RequestBlockedError, RequestInfo
from homarus.testing.clock import FakeClock
from tests.unit.gateway.app_harness import run

PORT = 18789
NONCE = "11111111-2222-3333-4444-555555555555"
LOCAL = RequestInfo("127.0.0.1", own="127.0.0.1", host=f"127.0.0.1:{PORT}", is_upgrade=True)
PAGE = replace(LOCAL, origin="http://localhost:5173", is_browser=True)


def references(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        inside = [found for value in tree.values() for found in references(value)]
        return [*inside, str(tree["$ref"])] if "$ref" in tree else inside
    return (
        [found for value in tree for found in references(value)] if isinstance(tree, list) else []
    )


async def test_config_schema_has_no_references_and_every_channel(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        answer = await it.ask("config.schema")
    assert references(answer["schema"]) == [] and "$defs" not in answer["schema"]
    agents = answer["schema"]["properties"]["agents"]["properties"]
    assert agents["defaults"]["properties"]["model"]
    channels = answer["schema"]["properties"]["channels"]["properties"]
    assert {"telegram", "matrix", "irc"} <= channels.keys()
    telegram = channels["telegram"]["properties"]
    assert {"enabled", "botToken", "dmPolicy", "accounts"} <= telegram.keys()
    assert telegram["accounts"]["additionalProperties"]["properties"]["botToken"]
    assert answer["uiHints"]["channels.telegram.botToken"] == {"sensitive": True}


def test_inlined_definition_that_contains_itself_ends() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}}}
    inlined = inline_references({"$defs": {"Tree": tree}, "$ref": "#/$defs/Tree"})
    assert inlined["properties"]["child"] == {"type": "object"}


def log_row(level: int, text: str) -> dict[str, Any]:
    record = logging.LogRecord("homarus.gateway.server", level, "", 0, text, (), None)
    row: dict[str, Any] = json.loads(JsonLineFormatter(redacted=True).format(record))
    return row


def test_log_line_has_the_fields_of_openclaw() -> None:
    row = log_row(logging.WARNING, "slow disk")
    assert json.loads(row["0"]) == {"subsystem": "gateway/server"}
    assert row["1"] == row["message"] == "slow disk"
    assert (row["_meta"]["logLevelName"], row["_meta"]["logLevelId"]) == ("WARN", 4)
    assert row["_meta"]["date"] == row["time"] and row["_meta"]["name"] == row["0"]
    assert log_row(logging.CRITICAL, "x")["_meta"]["logLevelName"] == "FATAL"


def test_log_line_has_no_secret_in_any_field() -> None:
    assert "abcdef123456789" not in json.dumps(log_row(logging.INFO, "token=abcdef123456789"))


def test_logs_command_shows_a_line_that_openclaw_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    name = '{"subsystem":"gateway"}'
    meta = {"name": name, "logLevelName": "INFO", "date": "2026-02-17T10:00:00.000Z"}
    row = {"0": name, "1": "listening", "_meta": meta, "time": "2026-02-17T10:00:00.000Z"}
    show_line(json.dumps(row))
    assert capsys.readouterr().out == "2026-02-17T10:00:00.000Z info    gateway: listening\n"


class Door:
    """A gateway's authenticator and one client's device."""

    def __init__(self, folder: Path, mode: AuthMode = "token") -> None:
        self.clock, self.mode = FakeClock(), mode
        self.identity = DeviceIdentity.load_or_create(folder / "device.json", 1)
        self.authenticator = ConnectionAuthenticator(
            OriginPolicy(PORT),
            SharedSecretAuth(mode, "right" if mode != "none" else ""),
            AuthRateLimiter(self.clock),
            DeviceRegistry(folder / "devices", self.clock),
            self.clock,
            ForeignHostLog(folder, self.clock),
        )

    def enter(self, request: RequestInfo, client_id: str, role: str) -> AuthenticatedClient:
        token = "right" if self.mode != "none" else None
        mode = "node" if role == "node" else "webchat"
        scopes = ["operator.read"] if role == "operator" else []
        device = self.identity.device_params(
            client_id=client_id,
            client_mode=mode,
            role=role,
            scopes=scopes,
            signed_at_ms=self.clock.now_ms(),
            token=token,
            nonce=NONCE,
        )
        client = {"id": client_id, "version": "1", "platform": "linux", "mode": mode}
        params = {
            "minProtocol": 3, "maxProtocol": 3, "client": client, "role": role, "scopes": scopes,
            "device": device, **({"auth": {"token": token}} if token else {}),
        }  # fmt: skip
        return self.authenticator.authenticate(params, request, NONCE, "c1")


@pytest.mark.parametrize("mode", ["token", "none"])
@pytest.mark.parametrize(
    "origin", ["http://localhost:5173", "http://127.0.0.1:8080", "https://[::1]:3000"]
)
def test_page_of_another_loopback_port_is_refused_with_the_reason(
    tmp_path: Path, origin: str, mode: AuthMode
) -> None:
    door, page = Door(tmp_path, mode), replace(PAGE, origin=origin)
    door.authenticator.check_request(page)  # the socket opens, and carries the reason
    with pytest.raises(ProtocolError, match=r"gateway\.controlUi\.allowedOrigins") as caught:
        door.enter(page, "openclaw-control-ui", "operator")
    assert caught.value.close_code == 1008 and origin in caught.value.message


def test_page_of_another_loopback_port_connects_once_it_is_allowed(tmp_path: Path) -> None:
    door = Door(tmp_path)
    policy = OriginPolicy.from_config(PORT, ["http://localhost:5173"])
    door.authenticator = replace(door.authenticator, origin_policy=policy)
    assert door.enter(PAGE, "openclaw-control-ui", "operator").caller.may("read")


@pytest.mark.parametrize(
    "request_info",
    [
        replace(PAGE, origin="http://localhost.evil.example:5173"),
        replace(PAGE, origin="http://evil.example"),
        replace(PAGE, origin="null"),
        replace(PAGE, is_upgrade=False),
        replace(PAGE, is_forwarded=True),
        replace(PAGE, peer="10.0.0.5"),
    ],
    ids=["name", "foreign", "null", "plain-request", "forwarded", "remote"],
)
def test_other_pages_are_still_refused(tmp_path: Path, request_info: RequestInfo) -> None:
    with pytest.raises(RequestBlockedError, match="pages of this origin"):
        Door(tmp_path).authenticator.check_request(request_info)


def test_node_host_on_loopback_adds_its_role_to_a_paired_device(tmp_path: Path) -> None:
    door = Door(tmp_path)
    operator = replace(LOCAL, origin=f"http://127.0.0.1:{PORT}", is_browser=True)
    door.enter(operator, "openclaw-control-ui", "operator")
    accepted = door.enter(LOCAL, "node-host", "node")
    assert (accepted.caller.role, accepted.caller.scopes) == ("node", frozenset())
    assert door.enter(operator, "openclaw-control-ui", "operator").caller.may("read")
    device = door.authenticator.devices.get(door.identity.device_id)
    assert device is not None and {*device.roles} == {"operator", "node"}


def test_command_line_on_loopback_follows_its_node_host(tmp_path: Path) -> None:
    door = Door(tmp_path)
    door.enter(LOCAL, "node-host", "node")
    operator = replace(LOCAL, origin=f"http://127.0.0.1:{PORT}", is_browser=True)
    assert door.enter(operator, "openclaw-control-ui", "operator").caller.may("read")


def test_node_host_elsewhere_or_revoked_waits_for_approval(tmp_path: Path) -> None:
    door = Door(tmp_path)
    operator = replace(LOCAL, origin=f"http://127.0.0.1:{PORT}", is_browser=True)
    door.enter(operator, "openclaw-control-ui", "operator")
    with pytest.raises(ProtocolError, match="pairing required"):
        door.enter(replace(LOCAL, is_forwarded=True), "node-host", "node")
    door.enter(LOCAL, "node-host", "node")
    door.authenticator.devices.revoke(door.identity.device_id, "node", ["operator.admin"])
    with pytest.raises(ProtocolError, match="pairing required"):
        door.enter(LOCAL, "node-host", "node")
