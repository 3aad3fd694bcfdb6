"""Presence: the clients that are connected or were recently, as other clients see them.

An entry outlives its connection by a few minutes, so that a device that reconnects stays in the
list. Command-line clients are not listed: every command would add one.
"""

import os
import platform
import socket
from collections.abc import Mapping

from homarus.core.clock import Clock
from homarus.core.message import Json
from homarus.gateway.method import Caller

TTL_MS = 5 * 60_000
MAX_ENTRIES = 200
_MAX_CHARS = 200  # of any text that a client sent


class PresenceList:
    """The presence list, and a version that grows with every change."""

    def __init__(self, clock: Clock, version: str) -> None:
        self._clock = clock
        self._own = _own_entry(version)
        self._entries: dict[str, dict[str, Json]] = {}  # by client, oldest change first
        self._connected: dict[str, set[str]] = {}  # by client, its connections
        self.version = 1

    def entries(self) -> list[Json]:
        """Return the gateway first, then the others, newest first."""
        self._expire()
        now_ms = self._clock.now_ms()
        shown = [dict(entry) for entry in reversed(self._entries.values())]
        return [{**self._own, "ts": now_ms}, *shown]

    def join(self, caller: Caller) -> bool:
        """Add a connected client; False when it is not listed."""
        if not is_listed(caller):
            return False
        who = _client_key(caller)
        self._connected.setdefault(who, set()).add(caller.conn_id)
        self._set(who, {**_entry(caller), "reason": "connect"})
        return True

    def leave(self, caller: Caller) -> bool:
        """Remove a client's connection; False when the list does not change."""
        who = _client_key(caller)
        connections = self._connected.get(who, set())
        connections.discard(caller.conn_id)
        if connections or self._connected.pop(who, None) is None:
            return False
        self._set(who, {**self._entries.get(who, _entry(caller)), "reason": "disconnect"})
        return True

    def update(self, who: str, fields: Mapping[str, Json]) -> None:
        """Update what a client reports about itself or a device; absent fields stay."""
        given = {name: value for name, value in fields.items() if value is not None}
        key = who.strip().lower()[:_MAX_CHARS]
        self._set(key, {**self._entries.get(key, {}), **_cut(given)})

    def _set(self, who: str, entry: Mapping[str, Json]) -> None:
        self._entries.pop(who, None)  # moved to the end: it is the newest
        self._entries[who] = {**entry, "ts": self._clock.now_ms()}
        self.version += 1
        self._expire()

    def _expire(self) -> None:
        """Drop the oldest disconnected entries; connected ones stay whatever their age."""
        limit_ms = self._clock.now_ms() - TTL_MS
        excess = len(self._entries) - (MAX_ENTRIES - 1)  # one entry is the gateway's own
        for who, entry in list(self._entries.items()):
            ts = entry["ts"]
            old = isinstance(ts, int) and ts < limit_ms and who not in self._connected
            if old or excess > 0:
                del self._entries[who]
                excess -= 1


def is_listed(caller: Caller) -> bool:
    """Return whether other clients see this client."""
    return caller.mode != "cli" and caller.client_id != "cli"


def _client_key(caller: Caller) -> str:
    known = caller.instance_id or caller.device_id
    return (known or f"{caller.client_id}@{caller.ip}").lower()[:_MAX_CHARS]


def _entry(caller: Caller) -> dict[str, Json]:
    host = caller.display_name or caller.client_id
    fields: dict[str, Json] = {
        "host": host,
        "ip": "" if caller.is_local else caller.ip,
        "version": caller.version,
        "platform": caller.platform,
        "mode": caller.mode,
        "deviceId": caller.device_id,
        "instanceId": caller.instance_id or caller.device_id,
    }
    shown = _cut({name: value for name, value in fields.items() if value})
    return {
        **shown,
        "roles": [caller.role],
        "scopes": sorted(caller.scopes),
        "text": _cut({"text": f"Node: {host} · mode {caller.mode}"})["text"],
    }


def _cut(fields: Mapping[str, Json]) -> dict[str, Json]:
    return {
        name: value[:_MAX_CHARS] if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _own_entry(version: str) -> dict[str, Json]:
    host = socket.gethostname()
    system = platform.system()
    return {
        "host": host,
        "version": version,
        "platform": f"{system.lower()} {os.uname().release}",
        "deviceFamily": "Mac" if system == "Darwin" else system,
        "modelIdentifier": platform.machine(),
        "mode": "gateway",
        "reason": "self",
        "text": f"Gateway: {host} · app {version} · mode gateway · reason self",
    }
