"""Methods for devices: pairing requests, approvals and tokens."""

from homarus.config.change_log import change_author
from homarus.core.message import Json
from homarus.gateway.device_records import show_device
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import Name, Names
from homarus.store.audit import AuditEntry


@method("device.pair.list", scope="pairing", params=NoParams)
async def list_(call: MethodCall, _params: NoParams) -> Json:
    """Devices that wait for an approval, and those that have one. No tokens are shown."""
    return call.gateway.authenticator.devices.listing()


class DeviceRequestParams(Params):
    """A pairing request."""

    request_id: Name


@method("device.pair.approve", scope="pairing", params=DeviceRequestParams)
async def approve(call: MethodCall, params: DeviceRequestParams) -> Json:
    """Let a device in. Nobody can give it more than they may themselves."""
    device = call.gateway.authenticator.devices.approve(params.request_id, call.caller.scopes)
    await audit_device(call, "approve", device.id)
    return {"requestId": params.request_id, "device": show_device(device)}


@method("device.pair.reject", scope="pairing", params=DeviceRequestParams)
async def reject(call: MethodCall, params: DeviceRequestParams) -> Json:
    """Send a device away."""
    device_id = call.gateway.authenticator.devices.reject(params.request_id)
    return {"requestId": params.request_id, "deviceId": device_id}


class DeviceRotateParams(Params):
    """A device, a role, and the scopes of the new token."""

    device_id: Name
    role: Name
    scopes: Names | None = None


@method("device.token.rotate", scope="pairing", params=DeviceRotateParams)
async def rotate(call: MethodCall, params: DeviceRotateParams) -> Json:
    """Give a device a new token. The old one is void at once; who came in by it is out.

    The device may do no more than the caller, or is the caller's own.
    """
    token = call.gateway.authenticator.devices.rotate(
        params.device_id,
        params.role,
        params.scopes,
        call.caller.scopes,
        by_device=call.caller.device_id,
        except_conn_id=call.caller.conn_id,
    )
    return {
        "deviceId": params.device_id,
        "role": params.role,
        "token": token.secret,
        "scopes": list(token.scopes),
        "rotatedAtMs": token.issued_ms,
    }


class DeviceRevokeParams(Params):
    """A device and a role."""

    device_id: Name
    role: Name


@method("device.token.revoke", scope="pairing", params=DeviceRevokeParams)
async def revoke(call: MethodCall, params: DeviceRevokeParams) -> Json:
    """Void the token of a device that may do no more than the caller, or of the caller's own.

    Its connections are closed at once.
    """
    at_ms = call.gateway.authenticator.devices.revoke(
        params.device_id, params.role, call.caller.scopes, by_device=call.caller.device_id
    )
    await audit_device(call, "revoke", params.device_id)
    return {"deviceId": params.device_id, "role": params.role, "revokedAtMs": at_ms}


class DeviceRemoveParams(Params):
    """A device."""

    device_id: Name


@method("device.pair.remove", scope="pairing", params=DeviceRemoveParams)
async def remove(call: MethodCall, params: DeviceRemoveParams) -> Json:
    """Forget a device that may do no more than the caller, or the caller's own.

    Its connections are closed at once, and it must be paired as a new one.
    """
    call.gateway.authenticator.devices.remove(
        params.device_id, call.caller.scopes, by_device=call.caller.device_id
    )
    await audit_device(call, "remove", params.device_id)
    return {"deviceId": params.device_id}


async def audit_device(call: MethodCall, action: str, device_id: str) -> None:
    """Write to the audit log what was done with a device."""
    data = {"target": "device", "by": change_author(), "action": action, "device": device_id}
    services = call.services
    await services.audit.write(AuditEntry(services.clock.now_ms(), "config", data=data))
