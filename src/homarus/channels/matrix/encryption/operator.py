"""What an operator does with devices and keys; results are as clients get them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from nio.crypto import OlmDevice

from homarus.channels.matrix.api import Object, get_str
from homarus.channels.matrix.encryption.crypto import MatrixCrypto
from homarus.channels.matrix.encryption.key_files import export_keys, read_keys
from homarus.channels.matrix.encryption.machine import OlmMachine
from homarus.channels.matrix.encryption.store import RoomKeys, UnreadableEvent
from homarus.core.errors import SendError
from homarus.core.message import Json

_Run: TypeAlias = Callable[[MatrixCrypto, Object], Awaitable[dict[str, Json]]]


async def run_key_action(
    crypto: MatrixCrypto, name: str, params: Mapping[str, Json]
) -> dict[str, Json]:
    """Do an action. Raises SendError, or UserError for a key file."""
    run = _ACTIONS.get(name)
    if run is None:
        raise SendError(f"there is no {name!r} of keys", retryable=False)
    return await run(crypto, params)


async def _devices(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    if user := get_str(params, "userId"):
        await crypto.query_devices([user])
    return describe_devices(crypto.machine, user, crypto.waiting())


def describe_devices(
    machine: OlmMachine, user: str, waiting: Iterable[UnreadableEvent]
) -> dict[str, Json]:
    """Return our device, those of a user or of everyone, and what cannot be read."""
    users = [user] if user else sorted(machine.device_store.users)
    unreadable: dict[str, int] = {}
    for one in waiting:
        unreadable[one.room] = unreadable.get(one.room, 0) + 1
    return {
        "own": {
            "userId": machine.user_id,
            "deviceId": machine.device_id,
            "fingerprint": machine.ed25519,
        },
        "devices": [
            _row(device)
            for each in users
            for device in machine.device_store[each].values()
            if not device.deleted
        ],
        "unreadable": [{"room": room, "count": count} for room, count in unreadable.items()],
        "roomKeys": sum(1 for _ in machine.inbound_group_store),
    }


def _row(device: OlmDevice) -> dict[str, Json]:
    trust = "verified" if device.verified else "blocked" if device.blacklisted else "unverified"
    return {
        "userId": device.user_id,
        "deviceId": device.id,
        "name": device.display_name or "",
        "fingerprint": device.ed25519,
        "trust": trust,
    }


async def _find_device(crypto: MatrixCrypto, params: Object) -> OlmDevice:
    """Return the named device; without a name, the only one of the user."""
    user, name = get_str(params, "userId"), get_str(params, "deviceId")
    await crypto.query_devices([user])
    machine = crypto.machine
    devices = [
        one
        for one in machine.device_store.active_user_devices(user)
        if name in {"", one.id} and (user, one.id) != (machine.user_id, machine.device_id)
    ]
    if len(devices) == 1:
        return devices[0]
    known = ", ".join(one.id for one in devices)
    problem = f"{user} has several devices: {known}" if devices else f"{user} has no such device"
    raise SendError(problem, retryable=False, fix="homarus matrix devices --user USER lists them")


async def _trust(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    """Verify a device by its fingerprint, block it, or take either back."""
    device, machine = await _find_device(crypto, params), crypto.machine
    match get_str(params, "trust"):
        case "verified":
            given = "".join(get_str(params, "fingerprint").split())
            if given != device.ed25519:
                raise SendError(
                    f"the fingerprint of {device.id} is another one", retryable=False,
                    fix="read it from that device itself; if it is right, block this device",
                )  # fmt: skip
            machine.unblacklist_device(device)
            machine.verify_device(device)
        case "blocked":
            machine.unverify_device(device)
            machine.blacklist_device(device)
        case _:
            machine.unverify_device(device)
            machine.unblacklist_device(device)
    crypto.read_again()
    return {"device": _row(device)}


async def _begin(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    device = await _find_device(crypto, params)
    return (await crypto.verifications.begin(device)).describe()


async def _pending(crypto: MatrixCrypto, _params: Object) -> dict[str, Json]:
    return {"verifications": [one.describe() for one in crypto.verifications.pending()]}


async def _show(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    id_ = get_str(params, "id")
    await crypto.verifications.start_without_answer(id_)
    return crypto.verifications.find(id_).describe()


async def _accept(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    return (await crypto.verifications.accept(get_str(params, "id"))).describe()


async def _confirm(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    is_match = params.get("match") is True
    id_ = get_str(params, "id")
    return (await crypto.verifications.confirm(id_, is_match=is_match)).describe()


async def _cancel(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    return (await crypto.verifications.cancel(get_str(params, "id"))).describe()


async def _export(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    keys = RoomKeys()
    for one in crypto.machine.inbound_group_store:
        keys.add(one)
    text, count = await asyncio.to_thread(export_keys, keys, get_str(params, "passphrase"))
    return {"text": text, "count": count}


async def _import(crypto: MatrixCrypto, params: Object) -> dict[str, Json]:
    keys, failed = await asyncio.to_thread(
        read_keys, get_str(params, "text"), get_str(params, "passphrase")
    )
    added = crypto.machine.add_room_keys(keys)
    return {"added": added, "known": len(keys) - added, "failed": failed}


_ACTIONS: Final[Mapping[str, _Run]] = {
    "devices": _devices,
    "trust": _trust,
    "verify.begin": _begin,
    "verify.pending": _pending,
    "verify.show": _show,
    "verify.accept": _accept,
    "verify.confirm": _confirm,
    "verify.cancel": _cancel,
    "export": _export,
    "import": _import,
}
