"""The response to `connect`: server, features, and a snapshot of the current state."""

import socket
from typing import TYPE_CHECKING

from homarus import __version__
from homarus.config.agent_settings import default_agent_id
from homarus.core.message import Json
from homarus.gateway.attachments import max_file_bytes, max_image_bytes
from homarus.gateway.frames import MAX_BUFFERED_BYTES, NEWEST_PROTOCOL, TICK_S

if TYPE_CHECKING:
    from homarus.gateway.handshake import AuthenticatedClient
    from homarus.gateway.server import Gateway

EVENTS = (
    "connect.challenge", "agent", "chat", "presence", "tick", "shutdown", "health", "cron",
    "device.pair.requested", "device.pair.resolved", "config.reloaded", "config.rejected", "gap",
    "sessions.changed", "session.message",
)  # fmt: skip

CAPABILITIES = ("published-model-catalog",)  # of protocol 4: `models.list` has views and details


def hello(gateway: "Gateway", accepted: "AuthenticatedClient") -> dict[str, Json]:
    """Return the payload of the response to `connect`."""
    methods = sorted(gateway.methods.advertised)
    payload: dict[str, Json] = {
        "type": "hello-ok",
        "protocol": accepted.caller.protocol,
        "server": {
            "version": __version__,
            "host": socket.gethostname(),
            "connId": accepted.caller.conn_id,
        },
        "features": {"methods": methods, "events": list(EVENTS)},
        "snapshot": _snapshot(gateway, accepted),
        "policy": {
            "maxPayload": accepted.caller.max_frame_bytes,
            "maxBufferedBytes": MAX_BUFFERED_BYTES,
            "tickIntervalMs": round(TICK_S * 1000),
        },
    }
    if accepted.auth:
        payload["auth"] = dict(accepted.auth)
    if accepted.caller.protocol >= NEWEST_PROTOCOL:
        _add_newest(payload, gateway, accepted)
    return payload


def _add_newest(
    payload: dict[str, Json], gateway: "Gateway", accepted: "AuthenticatedClient"
) -> None:
    """Add what a client of the newest protocol receives."""
    caller = accepted.caller
    payload.setdefault("auth", {"role": caller.role, "scopes": sorted(caller.scopes)})
    payload["features"]["capabilities"] = list(CAPABILITIES)
    config = gateway.services.loaded.config
    limits = {"maxBytes": max_file_bytes(config), "maxImageBytes": max_image_bytes(config)}
    payload["policy"]["attachments"] = limits
    if caller.may("read"):
        payload["snapshot"]["appliedConfigHash"] = gateway.services.loaded.hash


def _snapshot(gateway: "Gateway", accepted: "AuthenticatedClient") -> dict[str, Json]:
    """Return the snapshot; fields that need the read scope are left out for other clients."""
    caller, services = accepted.caller, gateway.services
    can_read = caller.may("read")
    agent = default_agent_id(services.loaded.config)
    snapshot: dict[str, Json] = {
        "presence": gateway.presence.entries() if can_read else [],
        "health": dict(gateway.health) if can_read else {},
        "stateVersion": dict(gateway.state_version),
        "uptimeMs": gateway.uptime_ms,
        "sessionDefaults": {
            "defaultAgentId": agent,
            "mainKey": "main",
            "mainSessionKey": services.control.resolve_key(agent=agent),
            "scope": services.loaded.config.session.scope,
        },
        "authMode": gateway.authenticator.auth.mode,
    }
    if caller.may("admin"):
        snapshot |= {
            "configPath": str(services.paths.config),
            "stateDir": str(services.paths.state),
        }
    return snapshot
