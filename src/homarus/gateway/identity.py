"""A device's identity: an Ed25519 key, its id, and what it signs when it connects.

`DeviceIdentity` is a client's own key pair, in OpenClaw's `identity/device.json`; `PublicKey` is
the gateway's view of a client's key.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.core.errors import HomarusError, StoreError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.gateway.json_file import JsonFile

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

KEY_BYTES, SIGNATURE_BYTES = 32, 64
_MAX_CHARS = 1_000  # of a key as text; PEM is the longest
# The field of Ed25519, and the y coordinates of the points whose order divides 8. With such a point
# as the key, a signature that verifies can be made without any private key.
_FIELD = 2**255 - 19
_ORDER_8_Y = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER_Y = frozenset({0, 1, _FIELD - 1, _ORDER_8_Y, _FIELD - _ORDER_8_Y})


def auth_payload(
    *,
    device_id: str,
    client_id: str,
    client_mode: str,
    role: str,
    scopes: Sequence[str],
    signed_at_ms: int,
    token: str | None = None,
    nonce: str | None = None,
    platform: str | None = None,
    device_family: str = "",
) -> str:
    """Return the text that a device signs, with the scopes in the client's order.

    It is version 1 without a nonce and version 2 with one. Version 3, which clients of protocol 4
    sign, also has the platform and the device family, trimmed and in lower case.
    """
    is_v3 = nonce is not None and platform is not None
    fields = [
        "v3" if is_v3 else "v2" if nonce else "v1",
        device_id,
        client_id,
        client_mode,
        role,
        ",".join(scopes),
        str(signed_at_ms),
        token or "",
    ]
    fields += [nonce] if nonce else []
    fields += [(platform or "").strip().lower(), device_family.strip().lower()] if is_v3 else []
    return "|".join(fields)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The raw 32 bytes of a device's public key."""

    raw: bytes

    @classmethod
    def read(cls, text: str) -> "PublicKey | None":
        """Parse base64url of the raw key, or PEM; None when it is neither, or no key of a pair."""
        if len(text) > _MAX_CHARS:
            return None
        raw = _from_pem(text) if "BEGIN" in text else from_base64url(text)
        return cls(raw) if raw is not None and _is_key(raw) else None

    @property
    def device_id(self) -> str:
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def text(self) -> str:
        """Return the key as sent on the wire and stored in the pairing files."""
        return to_base64url(self.raw)

    def verify(self, signature: str, payload: str) -> bool:
        """Return whether the holder of the private key signed exactly this text.

        Every gateway with a client verifies, so this uses libsodium: `cryptography`, which reads
        and writes the key files of clients, takes five megabytes more.
        """
        from nacl.exceptions import BadSignatureError
        from nacl.signing import VerifyKey

        signed = from_base64url(signature)
        if signed is None or len(signed) != SIGNATURE_BYTES:
            return False
        try:
            VerifyKey(self.raw).verify(payload.encode(), signed)
        except (BadSignatureError, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """A client's own key pair."""

    device_id: str
    public_key: str
    _private: "Ed25519PrivateKey" = field(repr=False)

    @classmethod
    def load_or_create(cls, path: Path, at_ms: int) -> "DeviceIdentity":
        """Load the identity from this file, or create the file.

        A file without a valid key is an error: a new key would need a new pairing, and the old one
        would be lost.
        """
        tree = JsonFile(path).read()
        if tree:
            return cls._load(path, tree)
        if os.path.lexists(path):
            raise _invalid_file_error(path)
        return cls._create(path, at_ms)

    def sign(self, payload: str) -> str:
        """Return the signature of a text, encoded for the wire."""
        return to_base64url(self._private.sign(payload.encode()))

    def device_params(
        self,
        *,
        client_id: str,
        client_mode: str,
        role: str,
        scopes: Sequence[str],
        signed_at_ms: int,
        token: str | None = None,
        nonce: str | None = None,
    ) -> dict[str, Json]:
        """Return the `device` object of a connect request."""
        payload = auth_payload(
            device_id=self.device_id,
            client_id=client_id,
            client_mode=client_mode,
            role=role,
            scopes=scopes,
            signed_at_ms=signed_at_ms,
            token=token,
            nonce=nonce,
        )
        params: dict[str, Json] = {
            "id": self.device_id,
            "publicKey": self.public_key,
            "signature": self.sign(payload),
            "signedAt": signed_at_ms,
        }
        return params | ({"nonce": nonce} if nonce else {})

    @classmethod
    def _load(cls, path: Path, tree: dict[str, Json]) -> "DeviceIdentity":
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        pem = tree.get("privateKeyPem")
        if not isinstance(pem, str):
            raise _invalid_file_error(path)
        try:
            private = load_pem_private_key(pem.encode(), None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise _invalid_file_error(path) from None
        if not isinstance(private, Ed25519PrivateKey):
            raise _invalid_file_error(path)
        return cls._of(private)

    @classmethod
    def _create(cls, path: Path, at_ms: int) -> "DeviceIdentity":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        private = Ed25519PrivateKey.generate()
        identity = cls._of(private)
        tree = {
            "version": 1,
            "deviceId": identity.device_id,
            "publicKeyPem": _pem(private.public_key()),
            "privateKeyPem": _pem(private),
            "createdAtMs": at_ms,
        }
        JsonFile(path).write(tree)
        return identity

    @classmethod
    def _of(cls, private: "Ed25519PrivateKey") -> "DeviceIdentity":
        public = PublicKey(private.public_key().public_bytes_raw())
        return cls(public.device_id, public.text, private)


def to_base64url(raw: bytes) -> str:
    """Encode without padding, as on the wire."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def from_base64url(text: str) -> bytes | None:
    """Decode strictly: no other alphabet, no spaces, no spare bits; padding is optional."""
    bare = text.rstrip("=")
    try:
        raw = base64.b64decode(
            bare.encode("ascii") + b"=" * (-len(bare) % 4), altchars=b"-_", validate=True
        )
    except (binascii.Error, ValueError):
        return None
    return raw if to_base64url(raw) == bare else None


def _is_key(raw: bytes) -> bool:
    """Return whether these bytes are a key: canonical, and not a point of small order."""
    y = int.from_bytes(raw, "little") & (2**255 - 1)  # the highest bit is the sign of x
    return len(raw) == KEY_BYTES and y < _FIELD and y not in _SMALL_ORDER_Y


def _from_pem(text: str) -> bytes | None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load_pem_public_key(text.encode("ascii", "replace"))
        if isinstance(key, Ed25519PublicKey):
            return key.public_bytes_raw()
    return None


def _pem(key: "Ed25519PrivateKey | Ed25519PublicKey") -> str:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if isinstance(key, Ed25519PrivateKey):
        plain = form.NoEncryption()
        return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, plain).decode()
    return key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo).decode()


def _invalid_file_error(path: Path) -> HomarusError:
    kind = UserError if path.is_file() else StoreError
    return kind(
        f"{path} holds no device identity",
        fix="put back a copy of it, or remove it: a new one is made, and must be paired again",
    )
