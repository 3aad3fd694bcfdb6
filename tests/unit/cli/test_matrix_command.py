"""`homarus matrix`: what is asked of the gateway, and what is done on the file without one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nio.crypto import InboundGroupSession, OutboundGroupSession

from homarus.channels.matrix.encryption.machine import OlmMachine
from homarus.channels.matrix.encryption.store import open_store
from homarus.cli import matrix
from homarus.cli.matrix import command
from homarus.core.errors import UserError
from homarus.core.message import Json

EMOJI = [{"symbol": "🐶", "name": "Dog"}]
DEVICE = {"id": "t", "userId": "@ann:test", "deviceId": "PHONE", "problem": ""}
PASSPHRASE = "long enough\n"


class FakeGateway:
    """Records requests, and answers with the states of a verification in turn."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.states = ["waiting", "comparing", "done"]
        self.offered: list[dict[str, Json]] = []

    async def ask(
        self, _gateway: object, method: str, _account: str | None, params: Mapping[str, Json]
    ) -> dict[str, Any]:
        self.asked.append((method, params))
        if method == "matrix.keys.export":
            return {"text": "the keys", "count": 2}
        if params.get("step") == "pending":
            return {"verifications": [{**DEVICE, "state": "offered"}]}
        if params.get("step") == "show":
            state = self.states.pop(0)
            problem = "the other device cancelled it" if state == "cancelled" else ""
            strings = {"emoji": EMOJI, "decimals": [1, 2, 3]}
            return {**DEVICE, **strings, "state": state, "problem": problem}
        if method == "matrix.trust":
            return {"device": {**DEVICE, "trust": params["trust"]}}
        return {**DEVICE, "state": "requested"}

    @property
    def steps(self) -> list[Any]:
        return [params.get("step") for _, params in self.asked]


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    fake = FakeGateway()
    monkeypatch.setattr(matrix, "_ask", fake.ask)
    monkeypatch.setattr(matrix, "is_gateway_running", lambda _gateway: True)
    monkeypatch.setattr(matrix, "POLL_S", 0.0)
    return fake


@pytest.fixture
def state(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(matrix, "is_gateway_running", lambda _gateway: False)
    return home / ".openclaw"


def run(*args: str, said: str = "") -> Result:
    return CliRunner().invoke(command, args, input=said, standalone_mode=False)


def refused(*args: str, said: str = "") -> UserError:
    error = run(*args, said=said).exception
    assert isinstance(error, UserError), error
    return error


def test_matrix_verify_named_device_compares_strings(gateway: FakeGateway) -> None:
    done = run("verify", "@ann:test", "PHONE", said="y\n")
    assert done.exception is None
    assert gateway.steps == ["begin", "show", "show", "confirm", "show"]
    assert gateway.asked[3][1]["match"] is True
    assert "🐶 Dog" in done.stderr and "1 2 3" in done.stderr
    assert done.stdout == "Device PHONE is verified.\n"


def test_matrix_verify_waits_for_other_device(gateway: FakeGateway) -> None:
    assert run("verify", said="y\ny\n").exception is None
    assert gateway.steps == ["pending", "accept", "show", "show", "confirm", "show"]


def test_matrix_verify_other_strings_verify_nothing(gateway: FakeGateway) -> None:
    assert "not verified" in refused("verify", "@ann:test", said="n\n").message
    assert gateway.asked[-1][1]["match"] is False


def test_matrix_verify_cancelled_by_other_device_says_so(gateway: FakeGateway) -> None:
    gateway.states = ["cancelled"]
    assert "the other device cancelled it" in refused("verify", "@ann:test").message


def test_matrix_trust_and_block_name_the_device(gateway: FakeGateway) -> None:
    done = run("trust", "@ann:test", "PHONE", "--fingerprint", "abc")
    assert done.stdout == "Device PHONE is verified.\n"
    assert run("block", "@ann:test", "PHONE").stdout == "Device PHONE is blocked.\n"
    assert [params["trust"] for _, params in gateway.asked] == ["verified", "blocked"]


def test_matrix_key_export_writes_private_file(gateway: FakeGateway, tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    done = run("keys", "export", str(file), said=PASSPHRASE)
    assert done.exception is None and "2 room keys" in done.stdout
    assert file.read_text() == "the keys" and file.stat().st_mode & 0o777 == 0o600
    assert gateway.asked[0][1]["passphrase"] == "long enough"
    assert "exists" in refused("keys", "export", str(file), said=PASSPHRASE).message
    assert "no passphrase" in refused("keys", "export", f"{file}2").message


def _room_key(state: Path) -> str:
    """Create the file of an account with one room key; return the key's id."""
    file = state / "credentials" / "matrix" / "default.keys.sqlite"
    machine = OlmMachine("@bot:test", "D", open_store(file, "@bot:test", "D"), only_verified=False)
    made = OutboundGroupSession()
    machine.add_room_key(InboundGroupSession(made.session_key, "signing", "sender", "!r"))
    machine.store.close()
    return str(made.id)


def test_matrix_keys_without_gateway_use_the_file(state: Path, tmp_path: Path) -> None:
    _room_key(state)
    listed = json.loads(run("devices", "--json").stdout)
    assert (listed["own"]["deviceId"], listed["roomKeys"]) == ("D", 1)
    file = tmp_path / "keys.txt"
    assert run("keys", "export", str(file), said=PASSPHRASE).exception is None
    done = run("keys", "import", str(file), said=PASSPHRASE)
    assert done.stdout == "0 room keys are new, 1 were known.\n"
    (state / "credentials" / "matrix" / "default.keys.sqlite").unlink()
    _room_key(state)
    done = run("keys", "import", str(file), said=PASSPHRASE)
    assert done.stdout == "1 room keys are new, 0 were known.\n"
    assert "check the passphrase" in str(refused("keys", "import", str(file), said="other\n").fix)


def test_matrix_command_without_keys_says_how_they_come(state: Path) -> None:
    assert "no keys yet" in refused("devices").message
    assert "running gateway" in refused("verify", "@ann:test").message
    assert not (state / "credentials").exists()
