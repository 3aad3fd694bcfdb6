"""Verify that a webhook comes from its chat service, and was not received before.

Each check takes the headers (lower-case names), what was signed, and the account's secret or key,
and returns the *mark* of an authentic request, or None. The mark is derived from what was signed
and not from how it was sent: the same request has the same mark, whatever the order of its query or
the ids that a proxy added. Without a secret no request is authentic. Secrets are compared in
constant time.

Telegram signs nothing: it sends its secret, and its updates have numbers.
"""

import base64
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

Headers: TypeAlias = Mapping[str, str]
Form: TypeAlias = Sequence[tuple[str, str]]

WINDOW_S: Final = 300  # maximum clock skew of a request
MAX_MARKS: Final = 10_000
_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_HEX_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}", re.ASCII)
_KEY_BYTES: Final = 32


def secrets_equal(given: str, secret: str) -> bool:
    """Compare a secret in constant time; False without one."""
    return bool(secret) and hmac.compare_digest(_digest(given), _digest(secret))


def verify_telegram(headers: Headers, secret: str) -> bool:
    """Verify the secret that was given to Telegram when the webhook was set."""
    return secrets_equal(headers.get("x-telegram-bot-api-secret-token", ""), secret)


def verify_github(headers: Headers, body: bytes, secret: str) -> str | None:
    """Verify a request of GitHub, or of Meta's services, which sign the same way."""
    right = f"sha256={_hmac(secret, body).hex()}"
    given = headers.get("x-hub-signature-256", "")
    return _mark("github", body) if secret and _equal(given, right) else None


def verify_slack(headers: Headers, body: bytes, secret: str, now_s: float) -> str | None:
    """Verify Slack's v0 signature: the time is signed with the body, and must be recent."""
    at = headers.get("x-slack-request-timestamp", "")
    signed = f"v0:{at}:".encode() + body
    right = f"v0={_hmac(secret, signed).hex()}"
    genuine = secret and _is_recent(at, now_s) and _equal(headers.get("x-slack-signature"), right)
    return _mark("slack", signed) if genuine else None


def is_recent_slack(headers: Headers, now_s: float) -> bool:
    """Return whether a request has the headers of a recent one of Slack; they are not verified."""
    is_signed = headers.get("x-slack-signature", "").startswith("v0=")
    return is_signed and _is_recent(headers.get("x-slack-request-timestamp", ""), now_s)


def verify_line(headers: Headers, body: bytes, secret: str) -> str | None:
    """Verify a request of LINE. A probe without events is signed like any other."""
    right = _base64(_hmac(secret, body))
    genuine = secret and _equal(headers.get("x-line-signature"), right)
    return _mark("line", body) if genuine else None


def verify_twilio(headers: Headers, url: str, form: Form, secret: str) -> str | None:
    """Verify a request of Twilio; `url` is the public one of the config.

    It must never be built from what a client sends.
    """
    signed = (url + "".join(name + value for name, value in sorted(set(form)))).encode()
    right = _base64(hmac.digest(secret.encode(), signed, "sha1"))  # Twilio has no newer algorithm
    genuine = secret and _equal(headers.get("x-twilio-signature"), right)
    return _mark("twilio", signed) if genuine else None


def verify_plivo(headers: Headers, url: str, form: Form, secret: str) -> str | None:
    """Verify Plivo's v3 signature of a POST; the order of query and form is irrelevant."""
    nonce = headers.get("x-plivo-signature-v3-nonce", "")
    try:
        signed = f"{_plivo_address(url, form)}.{nonce}".encode()
    except ValueError:  # an invalid URL, or one with an excessive query
        return None
    right = _base64(_hmac(secret, signed))
    given = headers.get("x-plivo-signature-v3", "").split(",")[:8]
    genuine = secret and nonce and any(_equal(one, right) for one in given)
    return _mark("plivo", signed) if genuine else None


def verify_telnyx(headers: Headers, body: bytes, key: bytes, now_s: float) -> str | None:
    """Verify Telnyx's Ed25519 signature of time and body."""
    at = headers.get("telnyx-timestamp", "")
    given = headers.get("telnyx-signature-ed25519", "")
    try:
        signature = base64.b64decode(given, validate=True)
    except ValueError:
        return None
    signed = f"{at}|".encode() + body
    genuine = _is_recent(at, now_s) and _is_signed(key, signature, signed)
    return _mark("telnyx", signed) if genuine else None


def verify_discord(headers: Headers, body: bytes, key: bytes, now_s: float) -> str | None:
    """Verify the Ed25519 signature of a Discord interaction, over time and body."""
    at = headers.get("x-signature-timestamp", "")
    given = headers.get("x-signature-ed25519", "")
    if not _HEX_SIGNATURE.fullmatch(given):
        return None
    signed = at.encode() + body
    genuine = _is_recent(at, now_s) and _is_signed(key, bytes.fromhex(given), signed)
    return _mark("discord", signed) if genuine else None


class ReplayGuard:
    """Keep the newest marks of authentic requests, to detect replays."""

    def __init__(self, max_marks: int = MAX_MARKS) -> None:
        self._max_marks = max_marks
        self._marks: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._marks)

    def is_new(self, mark: str) -> bool:
        """Return whether this is the first request with a mark, and record it."""
        known = mark in self._marks
        self._marks[mark] = None
        self._marks.move_to_end(mark)
        while len(self._marks) > self._max_marks:
            self._marks.popitem(last=False)
        return not known


def _is_recent(at: str, now_s: float) -> bool:
    return bool(_SECONDS.fullmatch(at)) and abs(now_s - int(at)) <= WINDOW_S


def _is_signed(key: bytes, signature: bytes, signed: bytes) -> bool:
    if len(key) != _KEY_BYTES:
        return False
    # Slow to import, and few services need it.
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(key).verify(signed, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def _plivo_address(url: str, form: Form) -> str:
    parts = urlsplit(url)
    query = "&".join(
        f"{name}={value}"
        for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=99))
    )
    sent = "".join(name + value for name, value in sorted(form))
    address = f"{parts.scheme}://{parts.netloc}{parts.path}"
    if query or form:
        address += f"?{query}"
    return f"{address}.{sent}" if query and form else address + sent


def _hmac(secret: str, signed: bytes) -> bytes:
    return hmac.digest(secret.encode(), signed, "sha256")


def _equal(given: str | None, right: str) -> bool:
    return hmac.compare_digest((given or "").encode("utf-8", "backslashreplace"), right.encode())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()


def _mark(scheme: str, signed: bytes) -> str:
    return hashlib.sha256(f"{scheme}\n".encode() + signed).hexdigest()
