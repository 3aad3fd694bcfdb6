"""`homarus devices`: which machines, phones and programs may connect to the gateway."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.sessions import age
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import NotPairedError, UnavailableError, UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line
from homarus.gateway.device_records import SHORT_ID, VOIDED_REASON, describe_pending
from homarus.gateway.devices import DeviceRegistry
from homarus.gateway.scopes import ADMIN

T = TypeVar("T")
_NO_DEVICE = "no device is paired"
_VOIDING = frozenset({"device.token.revoke", "device.pair.remove"})
_ROLE_HELP = "operator or node; needed only for a device that has both."
_device_option = click.option("--device", "device_option", metavar="ID", help="The same as DEVICE.")
_role_option = click.option("--role", metavar="ROLE", help=_ROLE_HELP)


class DeviceMethods(Protocol):
    """The methods of a running gateway, or the same ones on the files of a stopped one."""

    async def call(self, method: str, params: Mapping[str, Json] | None = None) -> Json: ...


@click.group("devices", cls=CommandGroup)
@examples("homarus devices list", "homarus devices approve --latest")
def command() -> None:
    """Manage paired devices: approve, reject, rotate, revoke, remove."""


@command.command("list")
@examples("homarus devices list", "homarus devices list --json")
@gateway_options
@as_json_option
def list_(gateway: GatewayOptions, *, as_json: bool) -> None:
    """List pending pairing requests and paired devices."""
    listed = _run(gateway, _list)
    if as_json:
        click.echo(json.dumps(listed, ensure_ascii=False))
        return
    now_ms = SystemClock().now_ms()
    for line in _pending_lines(listed["pending"], now_ms):
        click.echo(line)
    paired = listed["paired"]
    click.echo(f"{len(paired)} paired:" if paired else "No device is paired.")
    for entry in paired:
        click.echo(f"  {_describe_paired(entry, now_ms)}")


@command.command()
@examples("homarus devices approve 4f2a", "homarus devices approve --latest")
@click.argument("request", required=False)
@click.option("--latest", is_flag=True, help="Approve the latest request.")
@gateway_options
@as_json_option
def approve(request: str | None, gateway: GatewayOptions, *, latest: bool, as_json: bool) -> None:
    """Approve a pairing request; the start of its id is enough.

    Without one, those that wait are shown.
    """
    if request and latest:
        raise UserError("--latest and an id exclude each other", fix="give one of them")

    async def run(methods: DeviceMethods) -> dict[str, Json]:
        pending = (await _list(methods))["pending"]
        if not request and not (latest and pending):
            return {"pending": pending}
        entry = _find_request(pending, request) if request else pending[0]
        return await _call(methods, "device.pair.approve", {"requestId": entry["requestId"]})

    done = _run(gateway, run)
    if as_json:
        click.echo(json.dumps(done, ensure_ascii=False))
    elif "pending" not in done:
        device = done["device"]
        click.echo(f"{_name(device)} is paired: {_short(device['deviceId'])}, {_rights(device)}.")
    else:
        for line in _pending_lines(done["pending"], SystemClock().now_ms()):
            click.echo(line)
    if "pending" in done:
        raise click.exceptions.Exit(1)


@command.command()
@examples("homarus devices reject 4f2a")
@click.argument("request")
@gateway_options
@as_json_option
def reject(request: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Reject a pairing request; the device can request again."""

    async def run(methods: DeviceMethods) -> dict[str, Json]:
        entry = _find_request((await _list(methods))["pending"], request)
        done = await _call(methods, "device.pair.reject", {"requestId": entry["requestId"]})
        return {**done, "name": _name(entry)}

    done = _run(gateway, run)
    _print(done, f"{done.pop('name')} was not let in.", as_json=as_json)


@command.command()
@examples("homarus devices rotate 9c1d")
@click.argument("device", required=False)
@_device_option
@_role_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="A scope of the new token; repeatable.",
)
@gateway_options
@as_json_option
def rotate(
    device: str | None,
    device_option: str | None,
    role: str | None,
    scopes: tuple[str, ...],
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Replace the token of DEVICE; the old one is invalid at once.

    The new token is printed with --json only. Without it the device connects by the gateway's
    token, and is given its own again.
    """
    more: dict[str, Json] = {"scopes": list(scopes)} if scopes else {}
    named = device or device_option
    done = _change_token(gateway, "device.token.rotate", named, role, more)
    text = f"The token of {done.pop('name')} ({done['role']}) is replaced; the old one is void."
    _print(done, text, as_json=as_json)


@command.command()
@examples("homarus devices revoke 9c1d")
@click.argument("device", required=False)
@_device_option
@_role_option
@gateway_options
@as_json_option
def revoke(
    device: str | None,
    device_option: str | None,
    role: str | None,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Revoke the token of DEVICE: it is disconnected and must be approved again."""
    done = _change_token(gateway, "device.token.revoke", device or device_option, role, {})
    text = f"{done.pop('name')} ({done['role']}) is disconnected and must be approved again."
    _print(done, text, as_json=as_json)


@command.command()
@examples("homarus devices remove 9c1d")
@click.argument("device")
@gateway_options
@as_json_option
def remove(device: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Remove DEVICE: it is disconnected and must be paired again."""

    async def run(methods: DeviceMethods) -> dict[str, Json]:
        entry = _find_device((await _list(methods))["paired"], device)
        done = await _call(methods, "device.pair.remove", {"deviceId": entry["deviceId"]})
        return {**done, "name": _name(entry)}

    done = _run(gateway, run)
    _print(done, f"{done.pop('name')} is forgotten.", as_json=as_json)


def _change_token(
    gateway: GatewayOptions,
    method: str,
    device: str | None,
    role: str | None,
    more: Mapping[str, Json],
) -> dict[str, Json]:
    if not device:
        raise UserError("no device is named", fix="homarus devices list shows their ids")

    async def run(methods: DeviceMethods) -> dict[str, Json]:
        entry = _find_device((await _list(methods))["paired"], device)
        roles = sorted({*_texts(entry.get("roles")), *_texts([entry.get("role")])})
        chosen = role or (roles[0] if len(roles) == 1 else "")
        if chosen not in roles:
            shown = " and ".join(roles) or "none"
            raise UserError(f"the roles of this device are {shown}", fix="choose one with --role")
        params = {"deviceId": entry["deviceId"], "role": chosen, **more}
        return {**(await _call(methods, method, params)), "name": _name(entry)}

    return _run(gateway, run)


def _run(gateway: GatewayOptions, do: Callable[[DeviceMethods], Awaitable[T]]) -> T:
    """Use a running gateway, else the files.

    A gateway that is not bound to loopback takes these commands for those of another machine. The
    files then serve to let this one in too: their owner may approve it, and the gateway reads them.
    """

    async def through_gateway() -> T:
        async with open_gateway(gateway) as client:
            return await do(client)

    async def on_files(*, is_served: bool) -> T:
        return await do(DeviceFiles(Paths.find(os.environ), is_served=is_served))

    if not is_gateway_running(gateway):
        return asyncio.run(on_files(is_served=False))
    try:
        return asyncio.run(through_gateway())
    except NotPairedError:
        if gateway.url:
            raise
    return asyncio.run(on_files(is_served=True))


@contextmanager
def _locked(paths: Paths) -> Iterator[None]:
    from homarus.store.lock import StateLock

    lock = StateLock(paths.state)
    try:
        yield
    finally:
        lock.release()


class DeviceFiles:
    """The methods for devices on the files of this user, who may do everything with them.

    A change holds the lock of the state directory, so that no gateway starts meanwhile. While a
    gateway serves the files, requests are only listed, approved and rejected: it could not end the
    connections of a device.
    """

    def __init__(self, paths: Paths, *, is_served: bool) -> None:
        self._paths, self._is_served = paths, is_served
        self._registry = DeviceRegistry(paths.state / "devices", SystemClock())

    async def call(self, method: str, params: Mapping[str, Json] | None = None) -> Json:
        if method == "device.pair.list":
            return self._registry.listing()
        if not self._is_served:
            with _locked(self._paths):
                return self._change(method, params)
        if method not in {"device.pair.approve", "device.pair.reject"}:
            raise NotPairedError(
                "the gateway does not know this command line as a device yet",
                fix="homarus devices approve lets it in",
            )
        return self._change(method, params)

    def _change(self, method: str, params: Mapping[str, Json] | None) -> Json:
        from homarus.gateway.device_records import show_device

        given, by = dict(params or {}), (ADMIN,)
        request_id, device_id = given.get("requestId", ""), given.get("deviceId", "")
        role, done = given.get("role", ""), {"deviceId": device_id}
        match method:
            case "device.pair.approve":
                device = self._registry.approve(request_id, by)
                return {"requestId": request_id, "device": show_device(device)}
            case "device.pair.reject":
                return {"requestId": request_id, "deviceId": self._registry.reject(request_id)}
            case "device.pair.remove":
                self._registry.remove(device_id, by)
                return done
            case "device.token.revoke":
                revoked_ms = self._registry.revoke(device_id, role, by)
                return {**done, "role": role, "revokedAtMs": revoked_ms}
            case "device.token.rotate":
                token = self._registry.rotate(device_id, role, given.get("scopes"), by)
                fields = {"token": token.secret, "scopes": list(token.scopes)}
                return {**done, "role": role, **fields, "rotatedAtMs": token.issued_ms}
        raise ValueError(f"{method} cannot be done without a gateway")


async def _list(methods: DeviceMethods) -> dict[str, list[dict[str, Json]]]:
    found = await methods.call("device.pair.list", {})
    listed = found if isinstance(found, dict) else {}
    return {name: list(listed.get(name) or ()) for name in ("pending", "paired")}


async def _call(methods: DeviceMethods, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
    try:
        found = await methods.call(method, params)
    except UnavailableError as exc:
        # The gateway disconnects a device that loses its token: here, this command line itself.
        if method not in _VOIDING or VOIDED_REASON not in exc.message:
            raise
        return {**params, "closed": True}
    return dict(found) if isinstance(found, dict) else {}


def _find_request(pending: list[dict[str, Json]], text: str) -> dict[str, Json]:
    if not pending:
        raise UserError("no device waits for an approval", fix="open the page on the device first")
    ids = {str(each["requestId"]): each for each in pending}
    by_device = {str(each["deviceId"]): each for each in pending}
    if not any(each.startswith(text.lower()) for each in ids) and (
        found := [each for each in by_device if each.startswith(text.lower())]
    ):
        return by_device[_choose(text, found, "pairing request")]
    return ids[_choose(text, ids, "pairing request")]


def _find_device(paired: list[dict[str, Json]], text: str) -> dict[str, Json]:
    if not paired:
        raise UserError(_NO_DEVICE)
    ids = {str(each["deviceId"]): each for each in paired}
    return ids[_choose(text, ids, "device")]


def _choose(text: str, ids: Iterable[str], kind: str) -> str:
    """Return the id that is this text, or alone begins with it; raises UserError."""
    known, start = list(ids), text.strip().lower()
    found = [each for each in known if each.lower() == start] or [
        each for each in known if start and each.lower().startswith(start)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(each[: len(start) + SHORT_ID] for each in found[:5])
        raise UserError(f"{len(found)} ids begin with {text!r}: {shown}", fix="type more of it")
    length = max(SHORT_ID, len(start))
    nearest = closest_names(start, [each[:length] for each in known])
    raise UnknownNameError(kind, one_line(text), nearest, fix="" if nearest else _LIST_FIX)


_LIST_FIX = "homarus devices list shows the ids"


def _print(done: dict[str, Json], text: str, *, as_json: bool) -> None:
    click.echo(json.dumps(done, ensure_ascii=False) if as_json else text)


def _pending_lines(pending: list[dict[str, Json]], now_ms: int) -> Iterator[str]:
    if not pending:
        yield "No device waits for an approval."
    for entry in pending:
        yield describe_pending(entry)
        waited = age(max(0, now_ms - int(entry.get("ts") or now_ms)))
        again = ", which was paired before" if entry.get("isRepair") else ""
        yield f"  {_short(entry['deviceId'])}{again}; {_rights(entry)}; asked {waited}"


def _describe_paired(entry: Mapping[str, Json], now_ms: int) -> str:
    tokens = [each for each in entry.get("tokens") or () if isinstance(each, dict)]
    stamps = [each.get("lastUsedAtMs") or each.get("createdAtMs") or 0 for each in tokens]
    used = age(max(0, now_ms - max([*stamps, int(entry.get("approvedAtMs") or 0)])))
    revoked = [str(each.get("role")) for each in tokens if each.get("revokedAtMs")]
    void = f"; revoked: {', '.join(revoked)}" if revoked else ""
    where = f" from {one_line(str(entry['remoteIp']))}" if entry.get("remoteIp") else ""
    return f"{_short(entry['deviceId'])}  {_name(entry)}{where}; {_rights(entry)}; {used}{void}"


def _name(entry: Mapping[str, Json]) -> str:
    name = str(entry.get("displayName") or entry.get("clientId") or "a device")
    platform = f" ({entry['platform']})" if entry.get("platform") else ""
    return one_line(f"{name}{platform}")


def _rights(entry: Mapping[str, Json]) -> str:
    roles = sorted({*_texts(entry.get("roles")), *_texts([entry.get("role")])})
    scopes = [each.removeprefix("operator.") for each in _texts(entry.get("scopes"))]
    of = f" ({', '.join(scopes)})" if scopes else ""
    return one_line(f"{', '.join(roles)}{of}", 120)


def _short(device_id: Json) -> str:
    return one_line(str(device_id), 200)[:SHORT_ID]


def _texts(value: Json) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
