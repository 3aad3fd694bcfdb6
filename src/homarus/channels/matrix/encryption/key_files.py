"""Export and import room keys, in the format that clients of Matrix share.

The file is encrypted under a passphrase. What is exported opens every message that this account can
read. The library's own code for this format takes seconds, and only passphrases in Latin-1.
"""

import hashlib
import hmac
import json
import os
from base64 import b64decode, b64encode
from typing import Any, Final

from Crypto.Cipher import AES
from nio.crypto import InboundGroupSession

from homarus.channels.matrix.encryption.machine import MEGOLM
from homarus.channels.matrix.encryption.store import RoomKeys
from homarus.core.errors import UserError

MIN_PASSPHRASE_CHARS: Final = 8
MAX_FILE_CHARS: Final = 64 * 1024 * 1024
ROUNDS: Final = 500_000
MAX_ROUNDS: Final = 10_000_000
_HEADER, _FOOTER = "-----BEGIN MEGOLM SESSION DATA-----", "-----END MEGOLM SESSION DATA-----"
_VERSION, _SALT_BYTES, _HEAD_BYTES, _TAG_BYTES = 1, 16, 37, 32


def export_keys(keys: RoomKeys, passphrase: str) -> tuple[str, int]:
    """Return the text of a key file, and how many keys it holds. Raises UserError."""
    if len(passphrase) < MIN_PASSPHRASE_CHARS:
        raise UserError(f"a passphrase has at least {MIN_PASSPHRASE_CHARS} characters")
    rows = [
        {
            "algorithm": MEGOLM,
            "sender_key": one.sender_key,
            "sender_claimed_keys": {"ed25519": one.ed25519},
            "forwarding_curve25519_key_chain": one.forwarding_chain,
            "room_id": one.room_id,
            "session_id": one.id,
            "session_key": one.export_session(one.first_known_index),
        }
        for one in keys
    ]
    sealed = b64encode(_seal(json.dumps(rows).encode(), passphrase)).decode()
    lines = [sealed[start : start + 96] for start in range(0, len(sealed), 96)]
    return "\n".join([_HEADER, *lines, _FOOTER, ""]), len(rows)


def read_keys(text: str, passphrase: str) -> tuple[list[InboundGroupSession], int]:
    """Return the keys of a file, and how many could not be read. Raises UserError."""
    body = "".join(text.split())
    header, footer = _HEADER.replace(" ", ""), _FOOTER.replace(" ", "")
    if not (body.startswith(header) and body.endswith(footer)) or len(text) > MAX_FILE_CHARS:
        raise UserError("this is no file of room keys", fix="export one from a client of Matrix")
    sealed = body.removeprefix(header).removesuffix(footer).rstrip("=")
    try:
        rows = json.loads(_open(b64decode(sealed + "=" * (-len(sealed) % 4)), passphrase))
    except (ValueError, RecursionError) as exc:
        raise UserError(
            f"the file of room keys cannot be opened: {exc}", fix="check the passphrase"
        ) from exc
    keys = [_read_key(row) for row in rows] if isinstance(rows, list) else []
    good = [key for key in keys if key]
    return good, len(keys) - len(good)


def _seal(data: bytes, passphrase: str) -> bytes:
    salt, nonce = os.urandom(_SALT_BYTES), bytearray(os.urandom(16))
    nonce[8] &= 0x7F  # the format asks for it: some counters have only 63 bits
    key, tag_key = _derive(passphrase, salt, ROUNDS)
    head = bytes([_VERSION]) + salt + bytes(nonce) + ROUNDS.to_bytes(4, "big")
    body = head + _cipher(key, bytes(nonce)).encrypt(data)
    return bytes(body) + hmac.digest(tag_key, body, "sha256")


def _open(sealed: bytes, passphrase: str) -> bytes:
    if len(sealed) < _HEAD_BYTES + _TAG_BYTES or sealed[0] != _VERSION:
        raise ValueError("it has an unknown version")
    salt, nonce, rounds = sealed[1:17], sealed[17:33], int.from_bytes(sealed[33:37], "big")
    if not 0 < rounds <= MAX_ROUNDS:
        raise ValueError("its number of rounds is out of range")
    key, tag_key = _derive(passphrase, salt, rounds)
    body, tag = sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:]
    if not hmac.compare_digest(tag, hmac.digest(tag_key, body, "sha256")):
        raise ValueError("the passphrase is another, or the file is damaged")
    opened: bytes = _cipher(key, nonce).decrypt(body[_HEAD_BYTES:])
    return opened


def _derive(passphrase: str, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    derived = hashlib.pbkdf2_hmac("sha512", passphrase.encode(), salt, rounds, 64)
    return derived[:32], derived[32:]


def _cipher(key: bytes, nonce: bytes) -> Any:
    return AES.new(key, AES.MODE_CTR, initial_value=nonce, nonce=b"")


def _read_key(row: Any) -> InboundGroupSession | None:
    """Return one key; None if it is malformed or of another algorithm."""
    try:
        chain = [str(one) for one in row["forwarding_curve25519_key_chain"]]
        words = (row["sender_claimed_keys"]["ed25519"], row["sender_key"], row["room_id"])
        if row["algorithm"] != MEGOLM or not all(isinstance(word, str) for word in words):
            return None
        session = InboundGroupSession.import_session(row["session_key"], *words, chain)
        is_same = row["session_id"] == session.id
    except (KeyError, TypeError, ValueError):
        return None
    return session if is_same else None
