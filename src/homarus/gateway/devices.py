"""The devices that may connect: `devices/paired.json` and `devices/pending.json`.

An unknown device on this machine that has the owner's secret is approved silently; any other waits
for an approval, and so does a device that requests more than was approved. Of the silently approved
devices, those used last are kept. A rotated or revoked token is void at once, also for open
connections.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from uuid import uuid4

from homarus.core.clock import Clock
from homarus.core.errors import InvalidRequestError, UserError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.gateway.auth import same_secret
from homarus.gateway.device_records import (
    Device,
    DevicePairingRequest,
    DeviceToken,
    is_pending,
    is_silently_approved,
    last_used_ms,
    merge_request,
    read_device,
    show_device,
    texts,
    with_token,
)
from homarus.gateway.json_file import JsonFile
from homarus.gateway.scopes import missing

MAX_PENDING = 100
MAX_SILENT = 256
_USED_STEP_MS = 60_000
_SHARED_USED_STEP_MS = 24 * 3_600_000  # of a device that connects by the shared secret


class DeviceRegistry:
    """The paired devices and the pending pairing requests.

    `on_event` is called with the name and payload of an event, `on_token_voided` with a device, a
    role and the id of a connection to leave open; the gateway sets both.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._paired = JsonFile(folder / "paired.json")
        self._pending = JsonFile(folder / "pending.json")
        self._clock = clock
        self.on_event: Callable[[str, Json], None] = lambda _event, _payload: None
        self.on_token_voided: Callable[[str, str, str], None] = (
            lambda _device, _role, _except_conn_id: None
        )

    def get(self, device_id: str) -> Device | None:
        """Return a paired device, or None."""
        return read_device(device_id, self._paired.read().get(device_id))

    def listing(self) -> dict[str, Json]:
        """Return both lists as clients receive them, newest first."""
        paired = [read_device(name, entry) for name, entry in self._paired.read().items()]
        shown = [show_device(device) for device in paired if device]
        return {
            "pending": sorted(
                self._pending_entries().values(), key=lambda e: e["ts"], reverse=True
            ),
            "paired": sorted(shown, key=_approved_at, reverse=True),
        }

    def pair(self, request: DevicePairingRequest) -> Device:
        """Approve a new device of this machine without a person."""
        now_ms = self._clock.now_ms()
        entry = merge_request({}, request.fields(), now_ms)
        self._prune()
        return self._store(entry, request.role, request.scopes, now_ms)

    def request(self, request: DevicePairingRequest) -> str:
        """Store a pairing request and return its id; an equal pending request keeps its id."""
        now_ms, pending = self._clock.now_ms(), self._pending_entries()
        fields = request.fields()
        for request_id, entry in list(pending.items()):
            if entry.get("deviceId") != request.device_id or entry.get("role") != request.role:
                continue
            # A different request gets a new id: what is approved is what was shown.
            if all(entry.get(name) == value for name, value in fields.items()):
                return request_id
            del pending[request_id]
        request_id = str(uuid4())
        is_repair = self.get(request.device_id) is not None
        entry = {"requestId": request_id, **fields, "isRepair": is_repair, "ts": now_ms}
        newest = sorted(pending.items(), key=lambda item: item[1]["ts"])[-(MAX_PENDING - 1) :]
        self._pending.write({**dict(newest), request_id: entry})
        self.on_event("device.pair.requested", entry)
        return request_id

    def approve(self, request_id: str, by: Collection[str]) -> Device:
        """Approve a pending device; `by` are the approver's scopes, which it cannot exceed."""
        entry = self._pending_entry(request_id)
        scopes = texts(entry.get("scopes"))
        now_ms, device_id = self._clock.now_ms(), entry["deviceId"]
        before = self._paired.read().get(device_id)
        now = merge_request(before if isinstance(before, dict) else {}, entry, now_ms)
        known = read_device(device_id, now)
        # All that the device may do afterwards: the approval also restores a revoked token.
        _check_covered((*scopes, *(known.scopes if known else ())), by)
        token = known.token(entry["role"]) if known else None
        token_scopes = tuple({*(token.scopes if token else ()), *scopes})
        device = self._store(now, entry["role"], token_scopes, now_ms)
        self._resolve(entry, "approved")
        return device

    def reject(self, request_id: str) -> str:
        """Reject a pending device and return its id."""
        entry = self._pending_entry(request_id)
        self._resolve(entry, "rejected")
        return str(entry["deviceId"])

    def ensure_token(self, device: Device, role: str, scopes: tuple[str, ...]) -> DeviceToken:
        """Return the device's token for a role, issuing one that covers these approved scopes."""
        token = device.token(role)
        if token is None or missing(scopes, token.scopes):
            token_scopes = tuple({*(token.scopes if token else ()), *scopes})
            device = self._store(device.raw, role, token_scopes, self._clock.now_ms())
            token = device.tokens[role]
        elif is_silently_approved(device.raw):
            unused_ms = self._clock.now_ms() - last_used_ms(device.raw)
            if unused_ms >= _SHARED_USED_STEP_MS:
                self._record_use(device, role)
        return token

    def find_token(self, device_id: str, role: str, secret: str) -> DeviceToken | None:
        """Return the record of a token, if it may be used."""
        device = self.get(device_id)
        token = device.token(role) if device else None
        if device is None or token is None or not same_secret(secret, token.secret):
            return None
        self._record_use(device, role)
        return token

    def find_by_token(self, role: str, secret: str) -> tuple[Device, DeviceToken] | None:
        """Return the device whose token this is, if it may be used, and the token's record."""
        if not secret:
            return None
        for name, entry in self._paired.read().items():
            device = read_device(name, entry)
            token = device.token(role) if device else None
            if device and token and same_secret(secret, token.secret):
                self._record_use(device, role)
                return device, token
        return None

    def is_token_current(self, device_id: str, role: str, issued_ms: int) -> bool:
        """Return whether the token issued to a connection at that time is still the current one."""
        device = self.get(device_id)
        if device is None or role not in device.roles:
            return False
        token = device.token(role)
        return token is not None and token.issued_ms == issued_ms

    def rotate(
        self,
        device_id: str,
        role: str,
        scopes: Collection[str] | None,
        by: Collection[str],
        *,
        by_device: str = "",
        except_conn_id: str = "",
    ) -> DeviceToken:
        """Issue a new token for these or the previous scopes; the old one is void.

        `by` are the caller's scopes, which must cover the device's, unless it is its own.
        """
        device = self._get_device(device_id, role)
        if by_device != device_id:
            _check_covered(device.scopes, by)
        before = device.tokens.get(role)
        requested = tuple(scopes) if scopes is not None else before.scopes if before else ()
        _check_covered(requested, device.scopes)
        _check_covered(requested, by)
        now_ms = self._clock.now_ms()
        entry = with_token(device.raw, role, requested, now_ms, new_secret=True)
        rotated = self._save(device_id, entry)
        self.on_token_voided(device_id, role, except_conn_id)
        return rotated.tokens[role]

    def revoke(self, device_id: str, role: str, by: Collection[str], *, by_device: str = "") -> int:
        """Void a device's token for a role and return when; the device must be approved again.

        `by` are the caller's scopes, which must cover the device's, unless it is its own.
        """
        device = self._get_device(device_id, role)
        if by_device != device_id:
            _check_covered(device.scopes, by)
        now_ms = self._clock.now_ms()
        entry = device.raw if role in device.tokens else with_token(device.raw, role, (), now_ms)
        tokens = dict(entry["tokens"])
        tokens[role] = {**tokens[role], "revokedAtMs": now_ms}
        self._save(device_id, {**entry, "tokens": tokens})
        self.on_token_voided(device_id, role, "")
        return now_ms

    def rename(self, device_id: str, name: str) -> None:
        """Give a device another name."""
        device = self.get(device_id)
        if device is None:
            raise InvalidRequestError("unknown deviceId")
        self._save(device_id, {**device.raw, "displayName": name})

    def remove(self, device_id: str, by: Collection[str], *, by_device: str = "") -> None:
        """Forget a device: its connections are closed, and it must be paired as a new one.

        `by` are the caller's scopes, which must cover the device's, unless it is its own.
        """
        device = self.get(device_id)
        if device is None:
            raise InvalidRequestError("unknown deviceId")
        if by_device != device_id:
            _check_covered(device.scopes, by)
        self._paired.write({n: e for n, e in self._paired.read().items() if n != device_id})
        for role in device.roles:
            self.on_token_voided(device_id, role, "")

    def _get_device(self, device_id: str, role: str) -> Device:
        device = self.get(device_id)
        if device is None or role not in device.roles:
            raise InvalidRequestError("unknown deviceId/role")
        return device

    def _pending_entry(self, request_id: str) -> dict[str, Json]:
        entry = self._pending_entries().get(request_id)
        if entry is None:
            raise InvalidRequestError("unknown requestId")
        return entry

    def _pending_entries(self) -> dict[str, dict[str, Json]]:
        now_ms = self._clock.now_ms()
        return {
            name: {**entry, "requestId": name}
            for name, entry in self._pending.read().items()
            if is_pending(entry, now_ms)
        }

    def _resolve(self, entry: dict[str, Json], decision: str) -> None:
        remaining = {n: e for n, e in self._pending_entries().items() if n != entry["requestId"]}
        self._pending.write(remaining)
        payload = {"requestId": entry["requestId"], "deviceId": entry["deviceId"]}
        self.on_event(
            "device.pair.resolved", {**payload, "decision": decision, "ts": self._clock.now_ms()}
        )

    def _prune(self) -> None:
        """Remove the silently approved devices that were not used the longest, to make room."""
        entries = self._paired.read()
        used = {
            name: last_used_ms(entry)
            for name, entry in entries.items()
            if isinstance(entry, dict) and is_silently_approved(entry)
        }
        stale = sorted(used, key=lambda name: used[name])[: max(0, len(used) - MAX_SILENT + 1)]
        if stale:
            self._paired.write({n: e for n, e in entries.items() if n not in set(stale)})

    def _record_use(self, device: Device, role: str) -> None:
        """Save the last use at intervals, not at every connection."""
        tokens = dict(device.raw["tokens"])
        now_ms, last_ms = self._clock.now_ms(), tokens[role].get("lastUsedAtMs")
        if isinstance(last_ms, int) and 0 <= now_ms - last_ms < _USED_STEP_MS:
            return
        tokens[role] = {**tokens[role], "lastUsedAtMs": now_ms}
        self._save(device.id, {**device.raw, "tokens": tokens})

    def _store(self, entry: Json, role: str, scopes: tuple[str, ...], now_ms: int) -> Device:
        return self._save(entry["deviceId"], with_token(entry, role, scopes, now_ms))

    def _save(self, device_id: str, entry: dict[str, Json]) -> Device:
        self._paired.write({**self._paired.read(), device_id: entry})
        saved = read_device(device_id, entry)
        if saved is None:
            raise UserError(f"device {one_line(device_id)} cannot be kept")
        return saved


def _check_covered(scopes: Collection[str], by: Collection[str]) -> None:
    """Raise InvalidRequestError for a scope that these do not cover."""
    if beyond := missing(scopes, by):
        raise InvalidRequestError(f"missing scope: {beyond[0]}")


def _approved_at(shown: dict[str, Json]) -> int:
    at_ms = shown.get("approvedAtMs")
    return at_ms if isinstance(at_ms, int) else 0
