"""Compute short authentication strings, as the specification says (m.sas.v1).

matrix-nio's own class has a form of its own for the commitment and the emoji, and knows only the
old method of authentication. A device that offers the current method gets the specification's
forms; one that offers the old method alone is taken for matrix-nio and gets those.
"""

import hashlib
import hmac
from typing import Final

import vodozemac
from nio.api import Api
from nio.crypto.sas import Sas
from unpaddedbase64 import encode_base64

from homarus.channels.matrix.api import Object, get_object, get_str
from homarus.core.errors import ChannelError
from homarus.core.fast_dataclass import dataclass

METHOD: Final = "m.sas.v1"
_AGREEMENT: Final = "curve25519-hkdf-sha256"
_HASH: Final = "sha256"
_MAC, _OLD_MAC = "hkdf-hmac-sha256.v2", "hkdf-hmac-sha256"
_STRINGS: Final = ("emoji", "decimal")


class SasError(ChannelError):
    """The other device did not do what the protocol says; `reason` is the protocol's code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Party:
    """One side: its device and the key that is verified."""

    user: str
    device: str
    ed25519: str


class SasExchange:
    """The exchange of one verification, from the start message on."""

    def __init__(self, mine: Party, theirs: Party, transaction: str) -> None:
        self._mine, self._theirs, self._transaction = mine, theirs, transaction
        self._keys = vodozemac.Sas()
        self._shared: vodozemac.EstablishedSas | None = None
        self._their_key = self._commitment = self._mac = ""
        self._start: Object = {}
        self.started_by_us = False

    @property
    def public_key(self) -> str:
        return self._keys.public_key.to_base64()

    @property
    def is_agreed(self) -> bool:
        """Whether both sides agreed on a method."""
        return bool(self._mac)

    def start(self) -> Object:
        """Return the content of a start message."""
        self.started_by_us = True
        self._start = {
            "from_device": self._mine.device,
            "method": METHOD,
            "transaction_id": self._transaction,
            "key_agreement_protocols": [_AGREEMENT],
            "hashes": [_HASH],
            "message_authentication_codes": [_MAC, _OLD_MAC],
            "short_authentication_string": [*_STRINGS],
        }
        return self._start

    def accept(self, start: Object) -> Object:
        """Return the answer to a start message. Raises SasError."""
        if self._mac:  # by now they may have our key, and could choose theirs to match
            raise SasError("m.unexpected_message", "a start came at the wrong time")
        macs = _strings(start, "message_authentication_codes")
        mac = next((one for one in (_MAC, _OLD_MAC) if one in macs), "")
        strings = [one for one in _STRINGS if one in _strings(start, "short_authentication_string")]
        is_known = (
            start.get("method") == METHOD
            and _AGREEMENT in _strings(start, "key_agreement_protocols")
            and _HASH in _strings(start, "hashes")
        )
        if not (is_known and mac and strings):
            raise SasError("m.unknown_method", "the other device verifies in an unknown way")
        try:
            standard, old = _commitments(self.public_key, start)
        except (ValueError, RecursionError) as exc:
            raise SasError("m.invalid_message", "the start is malformed") from exc
        self.started_by_us, self._start, self._mac = False, start, mac
        return {
            "transaction_id": self._transaction,
            "method": METHOD,
            "key_agreement_protocol": _AGREEMENT,
            "hash": _HASH,
            "message_authentication_code": self._mac,
            "short_authentication_string": strings,
            "commitment": standard if self._mac == _MAC else old,
        }

    def on_accepted(self, accept: Object) -> None:
        """Apply the answer to our start message. Raises SasError."""
        if self._mac or not self.started_by_us:  # a commitment counts before our key is sent
            raise SasError("m.unexpected_message", "an answer came at the wrong time")
        mac, commitment = (
            get_str(accept, key) for key in ("message_authentication_code", "commitment")
        )
        if (
            not commitment
            or mac not in {_MAC, _OLD_MAC}
            or accept.get("key_agreement_protocol") != _AGREEMENT
            or accept.get("hash") != _HASH
        ):
            raise SasError("m.unknown_method", "the other device verifies in an unknown way")
        self._mac, self._commitment = mac, commitment

    def on_key(self, content: Object) -> None:
        """Apply the other device's key. Raises SasError."""
        key = get_str(content, "key")
        if self._shared or not self._mac:
            raise SasError("m.unexpected_message", "a key came at the wrong time")
        if self.started_by_us and not any(
            hmac.compare_digest(self._commitment.encode(), one.encode())
            for one in _commitments(key, self._start)
        ):
            raise SasError("m.mismatched_commitment", "the other device changed its key")
        try:
            public = vodozemac.Curve25519PublicKey.from_base64(key)
            self._shared = self._keys.diffie_hellman(public)
        except ValueError as exc:
            raise SasError("m.invalid_message", "the other device sent no key") from exc
        self._their_key = key

    def emoji(self) -> list[tuple[str, str]]:
        """Return the seven symbols to compare, with their names."""
        indices = list(self._bytes().emoji_indices)
        if self._mac == _OLD_MAC:
            bits = "".join(f"{index:08b}" for index in indices)
            indices = [int(bits[start : start + 6], 2) for start in range(0, 42, 6)]
        return [Sas.emoji[index] for index in indices]

    def decimals(self) -> list[int]:
        """Return the three numbers to compare."""
        return list(self._bytes().decimals)

    def mac(self) -> Object:
        """Return the proof that we saw the same strings."""
        key_id = f"ed25519:{self._mine.device}"
        info = self._mac_info(self._mine, self._theirs)
        return {
            "transaction_id": self._transaction,
            "mac": {key_id: self._tag(self._mine.ed25519, info + key_id)},
            "keys": self._tag(key_id, info + "KEY_IDS"),
        }

    def check_mac(self, content: Object) -> None:
        """Check the other device's proof. Raises SasError."""
        tags = get_object(content, "mac")
        info = self._mac_info(self._theirs, self._mine)
        key_id = f"ed25519:{self._theirs.device}"
        expected = (
            (get_str(content, "keys"), self._tag(",".join(sorted(tags)), info + "KEY_IDS")),
            (get_str(tags, key_id), self._tag(self._theirs.ed25519, info + key_id)),
        )
        if not all(hmac.compare_digest(got.encode(), tag.encode()) for got, tag in expected):
            raise SasError("m.key_mismatch", "the other device has another key than it published")

    def _bytes(self) -> "vodozemac.SasBytes":
        if self._shared is None:
            raise ChannelError("the other device has not sent its key yet")
        mine = f"{self._mine.user}|{self._mine.device}|{self.public_key}"
        theirs = f"{self._theirs.user}|{self._theirs.device}|{self._their_key}"
        first, second = (mine, theirs) if self.started_by_us else (theirs, mine)
        info = f"MATRIX_KEY_VERIFICATION_SAS|{first}|{second}|{self._transaction}"
        return self._shared.bytes(info)

    def _mac_info(self, sender: Party, receiver: Party) -> str:
        people = f"{sender.user}{sender.device}{receiver.user}{receiver.device}"
        return f"MATRIX_KEY_VERIFICATION_MAC{people}{self._transaction}"

    def _tag(self, text: str, info: str) -> str:
        if self._shared is None:
            raise SasError("m.unexpected_message", "a proof came at the wrong time")
        return self._shared.calculate_mac(text, info)


def _commitments(key: str, start: Object) -> tuple[str, str]:
    """Return the commitment to a key: the specification's form and matrix-nio's."""
    digest = hashlib.sha256(key.encode() + Api.to_canonical_json(start).encode())
    return encode_base64(digest.digest()), digest.hexdigest()


def _strings(content: Object, key: str) -> list[str]:
    found = content.get(key)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
