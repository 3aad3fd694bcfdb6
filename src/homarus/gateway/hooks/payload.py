"""Decode the body of a hook request into a JSON object, and say which delivery it is. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn
from urllib.parse import parse_qsl

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.gateway.hooks.refusal import HookRefusedError
from homarus.gateway.request_body import content_kind

JSON_KIND: Final = "application/json"
FORM_KIND: Final = "application/x-www-form-urlencoded"
MAX_DELIVERY_ID_CHARS: Final = 200
_ID: Final = re.compile(r"[\x21-\x7e]{1,200}", re.ASCII)
_ID_HEADERS: Final = ("x-github-delivery", "idempotency-key", "x-request-id")
# What templates and transforms, and so models, never see.
_SECRET_HEADERS: Final = frozenset(
    {
        "authorization", "cookie", "proxy-authorization", "x-api-key", "x-hub-signature",
        "x-hub-signature-256", "x-openclaw-token",
    }
)  # fmt: skip
_MAX_FIELDS: Final = 50


@dataclass(frozen=True, slots=True)
class DeliveryId:
    """What shows that a request was made before: `keys`, of which one is enough.

    `digest` is that of its body; empty if the same delivery may have another body.
    """

    keys: tuple[str, ...] = ()
    digest: str = ""


def decode_payload(headers: Mapping[str, str], body: bytes) -> dict[str, Json]:
    """Return the JSON object of a body; raises HookRefusedError (400)."""
    text: bytes | str = body
    if content_kind(headers) == FORM_KIND:
        text = _form_payload(body)
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise HookRefusedError(400, "body", "the body is not valid JSON") from None
    if not isinstance(found, dict):
        raise HookRefusedError(400, "body", "the body must be a JSON object")
    return found


def _form_payload(body: bytes) -> str:
    """Return the field `payload` of a form, in which GitHub sends its JSON if it is set so."""
    try:
        fields = parse_qsl(
            body.decode("ascii"), max_num_fields=_MAX_FIELDS, strict_parsing=True, errors="strict"
        )
    except ValueError:
        raise HookRefusedError(400, "body", "the body is not a valid form") from None
    found = [value for name, value in fields if name == "payload"]
    if len(found) != 1:
        raise HookRefusedError(400, "body", "the form must have one field payload")
    return found[0]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def parse_query(query: bytes) -> dict[str, str]:
    """Return the parameters of a URL; raises HookRefusedError (400) for too many."""
    try:
        return dict(
            parse_qsl(query.decode("latin-1"), max_num_fields=_MAX_FIELDS, keep_blank_values=True)
        )
    except ValueError:
        raise HookRefusedError(400, "shape", "the URL has too many parameters") from None


def public_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that templates and transforms may see."""
    return {name: value for name, value in headers.items() if name not in _SECRET_HEADERS}


def body_digest(body: bytes) -> str:
    """Return the digest of a body."""
    return hashlib.sha256(body).hexdigest()


def delivery_from_headers(
    path: str, headers: Mapping[str, str], body: bytes, *, is_signed: bool
) -> DeliveryId:
    """Return which delivery a request is; raises HookRefusedError (400) for an invalid id.

    The id of a signed request is not signed: who has seen the request could send it again with
    another one. So its body identifies it too.
    """
    digest, keys = body_digest(body), list[str]()
    for name in _ID_HEADERS:
        if name in headers:
            if not _ID.fullmatch(headers[name]):
                message = f"{name} must have 1 to {MAX_DELIVERY_ID_CHARS} printable characters"
                raise HookRefusedError(400, "body", message)
            keys.append(delivery_key(path, name, headers[name]))
            break
    if is_signed:
        keys.append(delivery_key(path, "body", digest))
    return DeliveryId(tuple(keys), digest)


def delivery_key(path: str, kind: str, text: str) -> str:
    """Return the key of a delivery's record."""
    return hashlib.sha256(f"{path}\n{kind}\n{text}".encode("utf-8", "backslashreplace")).hexdigest()
