"""TLS to a server that is known by the fingerprint of its certificate, not by an authority."""

import hashlib
import re
import ssl
from typing import Any, Final

_PREFIX: Final = re.compile(r"sha-?256\s*[:=]?\s*", re.IGNORECASE)
_HEX: Final = re.compile(r"[0-9a-f]{64}")


def certificate_fingerprint(der: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate, 64 hexadecimal digits."""
    return hashlib.sha256(der).hexdigest()


def parse_fingerprint(text: str) -> str:
    """Return a fingerprint as 64 digits; empty when the text is none.

    Colons, spaces, upper case and the prefix `sha256:` are accepted.
    """
    bare = re.sub(r"[:\s-]", "", _PREFIX.sub("", text.strip(), count=1)).lower()
    return bare if _HEX.fullmatch(bare) else ""


def format_fingerprint(digits: str) -> str:
    """Return a fingerprint as browsers show it: pairs of upper case digits with colons."""
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2)).upper()


class PinnedTlsContext(ssl.SSLContext):
    """Accepts the one certificate with this fingerprint, whatever its names and its dates are.

    The check is part of the handshake: nothing is sent to a server with another certificate.
    """

    fingerprint: str

    def __new__(cls, fingerprint: str) -> "PinnedTlsContext":
        if not _HEX.fullmatch(fingerprint):  # an empty one would accept nothing, or everything
            raise ValueError("a fingerprint has 64 digits")
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context.fingerprint = fingerprint
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # `_PinnedObject` verifies
        context.sslobject_class = _PinnedObject
        return context

    def __init__(self, fingerprint: str) -> None:
        super().__init__()

    def wrap_socket(self, *_args: Any, **_options: Any) -> ssl.SSLSocket:
        """Refuse a blocking socket, whose certificate would not be checked."""
        raise TypeError("use this context with asyncio: a blocking socket would not be verified")


class _PinnedObject(ssl.SSLObject):
    """The TLS state of one connection, whose certificate is compared after the handshake."""

    def do_handshake(self) -> None:
        super().do_handshake()
        context = self.context
        der = self.getpeercert(binary_form=True)
        found = certificate_fingerprint(der) if der else ""
        if not isinstance(context, PinnedTlsContext) or found != context.fingerprint:
            raise ssl.SSLCertVerificationError(
                f"its certificate has another fingerprint: {format_fingerprint(found)}"
            )
