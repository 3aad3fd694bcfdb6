"""The tokens of a registry: who may publish. Only their hashes are stored, in `tokens.json`."""

import hashlib
import hmac
import secrets
import time
from pathlib import Path
from typing import Any, Final

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.file_lock import file_lock
from homarus.core.private_files import make_private_dir
from homarus.skills.hub.entry_names import check_owner
from homarus.skills.hub.lock_file import format_json, read_json_object

FILE: Final = "tokens.json"
PREFIX: Final = "clh_"
LOCK_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class HubToken:
    """A token: its id, whose it is, and the SHA-256 of its text."""

    id: str
    handle: str
    sha256: str
    created_at_ms: int
    revoked_at_ms: int = 0


class HubTokens:
    """The tokens in a registry's folder; a file that another process changes is read again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._stamp: tuple[int, int] | None = None
        self._tokens: tuple[HubToken, ...] = ()

    def all(self) -> tuple[HubToken, ...]:
        """Return all tokens, also those that are revoked."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return ()
        stamp = found.st_mtime_ns, found.st_ino
        if stamp != self._stamp:
            rows = (read_json_object(self._path) or {}).get("tokens", [])
            self._tokens = tuple(_parse(row) for row in rows if isinstance(row, dict))
            self._stamp = stamp
        return self._tokens

    def has_active(self) -> bool:
        """Return whether somebody may publish."""
        return any(not token.revoked_at_ms for token in self.all())

    def find_handle(self, text: str) -> str:
        """Return whose token a text is; "" if it is none that is valid."""
        given, handle = _hash(text), ""
        for token in self.all():
            if hmac.compare_digest(token.sha256, given) and not token.revoked_at_ms:
                handle = token.handle
        return handle

    def add(self, handle: str) -> tuple[HubToken, str]:
        """Create a token for a publisher; return it with its text, which is not stored."""
        text = PREFIX + secrets.token_urlsafe(32)
        token = HubToken(secrets.token_hex(4), check_owner(handle), _hash(text), _now_ms())
        self._change(lambda tokens: (*tokens, token))
        return token, text

    def revoke(self, token_id: str) -> HubToken:
        """Revoke a token by its id. Raises UserError."""
        found = next((token for token in self.all() if token.id == token_id), None)
        if found is None:
            raise UserError(f"there is no token {token_id!r}", fix="homarus hub token list FOLDER")
        revoked = HubToken(
            found.id,
            found.handle,
            found.sha256,
            found.created_at_ms,
            found.revoked_at_ms or _now_ms(),
        )
        self._change(lambda tokens: tuple(revoked if t.id == token_id else t for t in tokens))
        return revoked

    def _change(self, edit: Any) -> None:
        make_private_dir(self._path.parent)
        with file_lock(self._path.with_name(".tokens.lock"), LOCK_TIMEOUT_S):
            rows = [_format(token) for token in edit(self.all())]
            write_atomic(self._path, format_json({"version": 1, "tokens": rows}))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _format(token: HubToken) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": token.id,
        "handle": token.handle,
        "sha256": token.sha256,
        "createdAt": token.created_at_ms,
    }
    return row | ({"revokedAt": token.revoked_at_ms} if token.revoked_at_ms else {})


def _parse(row: dict[str, Any]) -> HubToken:
    return HubToken(
        str(row.get("id", "")),
        str(row.get("handle", "")),
        str(row.get("sha256", "")),
        int(row.get("createdAt", 0)),
        int(row.get("revokedAt", 0)),
    )
