"""Encrypt and decrypt the files of encrypted rooms.

What decrypts a received file is kept in `Media.ref`, as the JSON of the event's `file` object.
"""

import json
from typing import Final

from nio.crypto.attachments import decrypt_attachment, encrypt_attachment

from homarus.channels.matrix.api import Object, get_object, get_str
from homarus.channels.matrix.encryption.machine import LIBRARY_ERRORS
from homarus.core.errors import ChannelError
from homarus.core.message import Json

PREFIX: Final = "{"  # how such a reference begins


def encrypt_file(content: bytes) -> tuple[bytes, dict[str, Json]]:
    """Return the encrypted bytes, and the `file` object without its address."""
    sealed, keys = encrypt_attachment(content)
    return sealed, keys


def file_address(ref: str) -> str:
    """Return the mxc:// address of an encrypted file."""
    return get_str(_parse(ref), "url")


def decrypt_file(ref: str, sealed: bytes) -> bytes:
    """Return a file's content. Raises ChannelError when it was changed."""
    file = _parse(ref)
    try:
        opened: bytes = decrypt_attachment(
            sealed,
            get_str(get_object(file, "key"), "k"),
            get_str(get_object(file, "hashes"), "sha256"),
            get_str(file, "iv"),
        )
    except LIBRARY_ERRORS as exc:
        raise ChannelError(f"the encrypted file cannot be read: {exc}") from exc
    return opened


def _parse(ref: str) -> Object:
    try:
        file = json.loads(ref)
    except ValueError:
        file = None
    return file if isinstance(file, dict) else {}
