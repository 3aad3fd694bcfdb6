"""Device records of the pairing files, read tolerantly and written back completely.

Unknown fields are kept; an invalid entry is skipped.
"""

import secrets
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line
from homarus.gateway.scopes import missing

DeviceRole: TypeAlias = Literal["operator", "node"]
ROLES: tuple[DeviceRole, ...] = ("operator", "node")
PENDING_TTL_MS = 5 * 60_000
VOIDED_REASON = "device token revoked"  # why the gateway disconnects a device
SHORT_ID = 8  # of an id as it is shown; a longer one is accepted too


@dataclass(frozen=True, slots=True)
class DevicePairingRequest:
    """A device's pairing request, shown to the approver."""

    device_id: str
    public_key: str
    role: DeviceRole
    scopes: tuple[str, ...] = ()
    client_id: str = ""
    client_mode: str = ""
    platform: str = ""
    display_name: str = ""
    remote_ip: str = ""

    def fields(self) -> dict[str, Json]:
        """Return the fields as stored; empty ones are left out."""
        fields: dict[str, Json] = {
            "deviceId": self.device_id,
            "publicKey": self.public_key,
            "displayName": self.display_name,
            "platform": self.platform,
            "clientId": self.client_id,
            "clientMode": self.client_mode,
            "remoteIp": self.remote_ip,
        }
        return {name: value for name, value in fields.items() if value} | {
            "role": self.role,
            "roles": [self.role],
            "scopes": list(self.scopes),
        }


@dataclass(frozen=True, slots=True)
class DeviceToken:
    """A device's own secret for one role."""

    role: str
    secret: str = field(repr=False)
    scopes: tuple[str, ...]
    issued_ms: int
    is_revoked: bool


@dataclass(frozen=True, slots=True)
class Device:
    """A device that was approved."""

    id: str
    roles: frozenset[str]
    scopes: tuple[str, ...]
    tokens: Mapping[str, DeviceToken]
    raw: Mapping[str, Json] = field(repr=False)

    def token(self, role: str) -> DeviceToken | None:
        """Return its token for a role, unless that was revoked."""
        found = self.tokens.get(role)
        return None if found is None or found.is_revoked else found

    def lacks(self, role: str, scopes: tuple[str, ...]) -> bool:
        """Return whether the request exceeds what was approved; a revoked role does."""
        revoked = (found := self.tokens.get(role)) is not None and found.is_revoked
        return role not in self.roles or revoked or bool(missing(scopes, self.scopes))


def read_device(device_id: str, entry: Json) -> Device | None:
    """Parse an entry of `paired.json`; None when it is invalid."""
    if not isinstance(entry, dict) or entry.get("deviceId") != device_id:
        return None
    tokens = entry.get("tokens")
    found = {
        role: token
        for role, value in (tokens if isinstance(tokens, dict) else {}).items()
        if (token := _read_token(role, value))
    }
    roles = {*texts(entry.get("roles")), *texts([entry.get("role")])}
    return Device(device_id, frozenset(roles), texts(entry.get("scopes")), found, entry)


def _read_token(role: str, value: Json) -> DeviceToken | None:
    if not isinstance(value, dict) or not isinstance(value.get("token"), str):
        return None
    return DeviceToken(
        role=role,
        secret=value["token"],
        scopes=texts(value.get("scopes")),
        issued_ms=max(_stamp(value, "rotatedAtMs"), _stamp(value, "createdAtMs")),
        is_revoked=bool(value.get("revokedAtMs")),
    )


def is_pending(entry: Json, now_ms: int) -> bool:
    """Return whether an entry of `pending.json` can still be approved."""
    if not isinstance(entry, dict) or not isinstance(entry.get("deviceId"), str):
        return False
    age_ms = now_ms - _stamp(entry, "ts")
    return entry.get("role") in ROLES and 0 <= age_ms < PENDING_TTL_MS


def merge_request(
    entry: Mapping[str, Json], request: Mapping[str, Json], now_ms: int
) -> dict[str, Json]:
    """Return a paired device's entry after one more of its requests was approved."""
    before = read_device(str(request["deviceId"]), entry)
    roles = sorted({*(before.roles if before else ()), str(request["role"])})
    scopes = dict.fromkeys((*(before.scopes if before else ()), *texts(request.get("scopes"))))
    merged_entry = {
        name: value
        for name, value in request.items()
        if name not in {"requestId", "silent", "isRepair", "ts"}
    }
    now = {**entry, **merged_entry, "roles": roles, "scopes": list(scopes)}
    return now | {"createdAtMs": entry.get("createdAtMs", now_ms), "approvedAtMs": now_ms}


def with_token(
    entry: Mapping[str, Json],
    role: str,
    scopes: tuple[str, ...],
    now_ms: int,
    *,
    new_secret: bool = False,
) -> dict[str, Json]:
    """Return the entry with a token for a role, issued anew when revoked or to be replaced."""
    tokens = entry.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    before = _read_token(role, tokens.get(role))
    fields: dict[str, Json] = {"role": role, "scopes": sorted(scopes)}
    if before is None:
        fields |= {"token": secrets.token_urlsafe(32), "createdAtMs": now_ms}
    elif before.is_revoked or new_secret:
        fields |= {"token": secrets.token_urlsafe(32), "rotatedAtMs": now_ms}
    old = {name: value for name, value in (tokens.get(role) or {}).items() if before}
    old.pop("revokedAtMs", None)
    return {**entry, "tokens": {**tokens, role: old | fields}}


def show_device(device: Device) -> dict[str, Json]:
    """Return a device for clients: what its tokens are for, never the tokens."""
    shown = {name: value for name, value in device.raw.items() if name != "tokens"}
    raw = device.raw.get("tokens")
    tokens = [
        {name: value for name, value in (raw or {})[role].items() if name != "token"}
        for role in device.tokens
    ]
    return shown | ({"tokens": tokens} if tokens else {})


def describe_pending(entry: Mapping[str, Json]) -> str:
    """Return one line for people about a device that waits, and how to let it in."""
    name = str(entry.get("displayName") or entry.get("clientId") or "a device")
    platform = f" ({entry['platform']})" if entry.get("platform") else ""
    from_ip = f" from {entry['remoteIp']}" if entry.get("remoteIp") else ""
    shown = one_line(f"{name}{platform}{from_ip}", 120)
    command = (
        f"homarus devices approve {escape_invisible(str(entry.get('requestId', '')))[:SHORT_ID]}"
    )
    return f"{shown} waits for your approval: {command}"


def is_silently_approved(entry: Mapping[str, Json]) -> bool:
    """Return whether no person has decided on a device: it is local, as first approved, unrevoked.

    A device from elsewhere has a `remoteIp`, and each approval by a person has a time of its own.
    """
    device = read_device(str(entry.get("deviceId")), entry)
    is_first = _stamp(entry, "createdAtMs") == _stamp(entry, "approvedAtMs")
    if device is None or not is_first or entry.get("remoteIp"):
        return False
    return not any(token.is_revoked for token in device.tokens.values())


def last_used_ms(entry: Mapping[str, Json]) -> int:
    """Return when a device was last used, or approved, if that was later."""
    tokens = entry.get("tokens")
    found = [
        _stamp(token, "lastUsedAtMs")
        for token in (tokens.values() if isinstance(tokens, dict) else ())
        if isinstance(token, dict)
    ]
    return max(_stamp(entry, "approvedAtMs"), *found, 0)


def texts(value: Json) -> tuple[str, ...]:
    """Return the strings of a list, ignoring other values."""
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _stamp(entry: Mapping[str, Json], name: str) -> int:
    value = entry.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
