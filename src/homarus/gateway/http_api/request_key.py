"""The header `Idempotency-Key`: the same request of a caller again, which is answered once.

A key belongs to its caller and its endpoint: no one else can learn or repeat what it stands for.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.gateway.http_api.api_error import ApiError

HEADER: Final = "idempotency-key"
MAX_CHARS: Final = 255
_KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_CHARS}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A key of one caller for one endpoint, and the digest of the request that came with it.

    `id` is the same for the same caller, endpoint and key, and tells nothing about them. Two
    requests with one id and different digests are a conflict.
    """

    id: str
    digest: str

    def check_same(self, digest: str) -> None:
        """Raise ApiError (409) if an earlier request with this key was another one."""
        if digest != self.digest:
            raise ApiError(
                409,
                "this Idempotency-Key was used with another request",
                reason="idempotency_conflict",
                fix="send a new key",
            )


def make_request_key(
    text: str, *, caller: str, endpoint: str, parts: Iterable[bytes]
) -> RequestKey | None:
    """Return the key of a header's text; None without one. Raises ApiError (400).

    `parts` are what makes two requests the same: the body, and the headers that change its meaning.
    """
    if not text:
        return None
    if not _KEY.fullmatch(text):
        message = f"Idempotency-Key must have 1 to {MAX_CHARS} printable ASCII characters"
        raise ApiError(400, message, param="Idempotency-Key")
    key_id = _digest(part.encode("utf-8", "surrogatepass") for part in (caller, endpoint, text))
    return RequestKey(key_id[:32], _digest(parts))


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
