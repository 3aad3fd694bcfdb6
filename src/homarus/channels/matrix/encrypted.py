"""Load the encryption of an account: the library is imported only here, when it is configured."""

import asyncio
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.channels.matrix.api import HomeserverClient
from homarus.config.paths import openclaw_files_dir
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthError, MissingExtraError

if TYPE_CHECKING:
    from homarus.channels.matrix.encryption.crypto import MatrixCrypto

EXTRA: Final = "matrix-e2ee"
_PACKAGE: Final = "homarus.channels.matrix.encryption"


def key_file(state: Path, account: str) -> Path:
    """Return the file with the keys of an account."""
    name = re.sub(r"[^a-z0-9_-]", "_", account)
    return openclaw_files_dir(state) / "credentials" / "matrix" / f"{name}.keys.sqlite"


def load_library() -> None:
    """Import the library. Raises MissingExtraError with the command that installs it."""
    try:
        import_module(f"{_PACKAGE}.crypto")
    except ImportError as exc:
        if (getattr(exc, "name", "") or "").startswith("homarus"):
            raise
        raise MissingExtraError("the encryption of Matrix", EXTRA) from exc


async def open_crypto(
    server: HomeserverClient, me: tuple[str, str], file: Path, clock: Clock, *, trust: str
) -> "MatrixCrypto":
    """Open the keys of our user and device. Raises StoreError, or MissingExtraError."""
    user, device = me
    if not device:
        raise ChannelAuthError(
            "the homeserver did not say which device the token is of, and encryption needs one",
            fix="sign in with userId and password",
        )
    await asyncio.to_thread(load_library)
    from homarus.channels.matrix.encryption.crypto import MatrixCrypto
    from homarus.channels.matrix.encryption.machine import OlmMachine
    from homarus.channels.matrix.encryption.store import open_store

    store = open_store(file, user, device)
    machine = OlmMachine(user, device, store, only_verified=trust == "verified")
    return MatrixCrypto(server, machine, store, clock)
