"""Device keys: made, kept, signed with, checked."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import HomarusError
from homarus.gateway.identity import (
    DeviceIdentity,
    PublicKey,
    auth_payload,
    from_base64url,
    to_base64url,
)

# Captured from the original and its client: what was sent, and that it was accepted.
CAPTURED = json.loads(
    (Path(__file__).parents[2] / "data" / "frames" / "connect.json").read_text(encoding="utf-8")
)


def test_captured_connect_signature_verifies() -> None:
    device, client = CAPTURED["device"], CAPTURED["client"]
    key = PublicKey.read(device["publicKey"])
    assert key and key.device_id == device["id"]
    payload = auth_payload(
        device_id=device["id"],
        client_id=client["id"],
        client_mode=client["mode"],
        role=CAPTURED["role"],
        scopes=CAPTURED["scopes"],
        signed_at_ms=device["signedAt"],
        token=CAPTURED["auth"]["token"],
        nonce=device["nonce"],
    )
    assert key.verify(device["signature"], payload)
    assert not key.verify(device["signature"], payload + " ")


def test_identity_is_created_once_with_owner_only_mode(tmp_path: Path) -> None:
    path = tmp_path / "identity" / "device.json"
    made = DeviceIdentity.load_or_create(path, 17)
    again = DeviceIdentity.load_or_create(path, 18)
    assert (made.device_id, made.public_key) == (again.device_id, again.public_key)
    assert oct(path.stat().st_mode)[-3:] == "600"
    tree = json.loads(path.read_text())
    assert tree.keys() == {"version", "deviceId", "publicKeyPem", "privateKeyPem", "createdAtMs"}
    assert (tree["version"], tree["createdAtMs"], tree["deviceId"]) == (1, 17, made.device_id)
    pem = PublicKey.read(tree["publicKeyPem"])
    assert pem and pem.text == made.public_key
    assert "PRIVATE" not in repr(made)
    key = PublicKey.read(made.public_key)
    assert key and key.verify(again.sign("text"), "text")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', '{"privateKeyPem": "x"}'])
def test_damaged_identity_file_raises_and_is_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "device.json"
    path.write_text(text)
    with pytest.raises(HomarusError, match="no device identity"):
        DeviceIdentity.load_or_create(path, 1)
    assert path.read_text() == text


def test_key_of_another_type_is_no_identity(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    pem = generate_private_key(SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "device.json"
    path.write_text(json.dumps({"privateKeyPem": pem.decode()}))
    with pytest.raises(HomarusError, match="no device identity"):
        DeviceIdentity.load_or_create(path, 1)


@pytest.mark.parametrize(
    "text",
    ["", "AAAA", "a" * 43 + "!", "é" * 43, "=" * 43, "a" * 2000, "-----BEGIN PUBLIC KEY-----\nx"],
)
def test_invalid_public_key_parses_as_none(text: str) -> None:
    assert PublicKey.read(text) is None


@given(st.binary(max_size=80))
def test_base64url_round_trips_in_one_form_only(raw: bytes) -> None:
    text = to_base64url(raw)
    assert from_base64url(text) == raw
    assert from_base64url(text + "=" * (-len(text) % 4)) == raw
    assert from_base64url(f" {text}") is None


@given(st.text(max_size=100))
def test_any_text_parses_as_key_or_none_and_verifies_or_not(text: str) -> None:
    key = PublicKey.read(text)
    assert key is None or len(key.raw) == 32
    public = PublicKey(
        Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw()
    )
    assert not public.verify(text, text)


FIELD = st.text(st.sampled_from("ab.,"), min_size=1, max_size=5)


@given(st.lists(FIELD, max_size=3), st.integers(0, 2**50), st.none() | FIELD, st.none() | FIELD)
def test_signed_payload_covers_every_field(
    scopes: list[str], at_ms: int, token: str | None, nonce: str | None
) -> None:
    payload = auth_payload(
        device_id="d",
        client_id="cli",
        client_mode="cli",
        role="operator",
        scopes=scopes,
        signed_at_ms=at_ms,
        token=token,
        nonce=nonce,
    )
    parts = payload.split("|")
    assert parts[0] == ("v2" if nonce else "v1")
    assert parts[5:8] == [",".join(scopes), str(at_ms), token or ""]
    assert parts[8:] == ([nonce] if nonce else [])


def test_device_params_of_a_connect_verify(tmp_path: Path) -> None:
    identity = DeviceIdentity.load_or_create(tmp_path / "device.json", 1)
    asked = {"client_id": "cli", "client_mode": "cli", "role": "operator", "scopes": ["a", "b"]}
    params = identity.device_params(**asked, signed_at_ms=5, token="t", nonce="n")  # type: ignore[arg-type] # a dict of both
    key = PublicKey.read(params["publicKey"])
    payload = "v2|" + identity.device_id + "|cli|cli|operator|a,b|5|t|n"
    assert key and key.verify(params["signature"], payload)
