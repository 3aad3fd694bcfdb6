"""`homarus matrix`: devices, verification and room keys of encrypted Matrix accounts."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import GatewayOptions, is_gateway_running, open_gateway
from homarus.cli.message_options import action_options
from homarus.cli.options import Seconds
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.private_files import open_private
from homarus.core.session_keys import DEFAULT_ACCOUNT, normalize_account_id
from homarus.core.text import escape_invisible, one_line

if TYPE_CHECKING:
    from homarus.channels.matrix.encryption.machine import OlmMachine

POLL_S: Final = 0.5
MAX_FILE_BYTES: Final = 18_000_000
_ENDED: Final = frozenset({"done", "cancelled"})
_account = click.option("--account", metavar="ID", help="The account.", show_default="default")
_user, _device = click.argument("user"), click.argument("device")


@click.group("matrix", cls=CommandGroup)
@examples("homarus matrix devices", "homarus matrix verify @ann:example.org")
def command() -> None:
    """Manage the devices and keys of encrypted Matrix accounts."""


@command.command()
@examples("homarus matrix devices", "homarus matrix devices --user @ann:example.org")
@click.option("--user", metavar="USER", help="Fetch and show the devices of this user.")
@_account
@action_options
def devices(
    user: str | None, account: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Show our device, the known devices of others, and unreadable messages."""
    if is_gateway_running(gateway):
        found = _call(gateway, "matrix.devices", account, {"userId": user or ""})
    else:
        found = _read_devices(account, user or "")
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    own = found["own"]
    click.echo(f"{one_line(own['userId'])} {one_line(own['deviceId'])}  this account")
    click.echo(f"    {own['fingerprint']}")
    for row in found["devices"]:
        name = f"  {one_line(row['name'], 60)}" if row["name"] else ""
        device = f"{one_line(row['userId'])} {one_line(row['deviceId'])}"
        click.echo(escape_invisible(f"{device}  {row['trust']}{name}"))
        click.echo(f"    {one_line(row['fingerprint'])}")
    for row in found["unreadable"]:
        click.echo(f"{row['count']} messages in {one_line(row['room'])} wait for their keys.")
    click.echo(f"{found['roomKeys']} room keys.")


@command.command()
@examples("homarus matrix verify", "homarus matrix verify @ann:example.org ABCDEFGH")
@click.argument("user", required=False)
@click.argument("device", required=False)
@_account
@click.option(
    "--timeout", "timeout_s", metavar="SECONDS", type=Seconds(1, 600), default=180,
    help="Seconds to wait for the other device.",
)  # fmt: skip
@action_options
def verify(
    user: str | None,
    device: str | None,
    account: str | None,
    timeout_s: float,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Verify a DEVICE of USER by comparing emoji; without USER, one that asks for it."""
    if not is_gateway_running(gateway):
        raise UserError("devices are verified by a running gateway", fix="homarus gateway run")
    if user:
        begun = _step(gateway, account, "begin", userId=user, deviceId=device or "")
        click.echo(f"Accept the request on device {one_line(begun['deviceId'])}.", err=True)
    else:
        click.echo("Begin the verification in the other client now.", err=True)
        begun = asyncio.run(_wait_for_offer(gateway, account, timeout_s))
        who = f"{one_line(begun['userId'])} {one_line(begun['deviceId'])}"
        if not click.confirm(f"Verify {escape_invisible(who)}?", err=True):
            _step(gateway, account, "cancel", id=begun["id"])
            raise UserError("the verification was cancelled")
        begun = _step(gateway, account, "accept", id=begun["id"])
    shown = asyncio.run(_wait(gateway, account, begun["id"], {"comparing"}, timeout_s))
    _show_strings(shown)
    is_match = click.confirm("Does the other device show the same?", err=True)
    _step(gateway, account, "confirm", id=begun["id"], match=is_match)
    if not is_match:
        raise UserError(
            "the devices are not verified: somebody may be between them",
            fix="homarus matrix block stops that device from reading",
        )
    click.echo("Confirm it on the other device too.", err=True)
    done = asyncio.run(_wait(gateway, account, begun["id"], {"done"}, timeout_s))
    if as_json:
        click.echo(json.dumps(done, ensure_ascii=False))
    else:
        click.echo(f"Device {one_line(done['deviceId'])} is verified.")


def _show_strings(shown: Mapping[str, Any]) -> None:
    click.echo("  ".join(f"{one['symbol']} {one['name']}" for one in shown["emoji"]), err=True)
    click.echo("or " + " ".join(str(number) for number in shown["decimals"]), err=True)


@command.command()
@examples("homarus matrix trust @ann:example.org ABCDEFGH --fingerprint 'mB0y … 8Q'")
@_user
@_device
@click.option("--fingerprint", metavar="KEY", required=True, help="What that device shows.")
@_account
@action_options
def trust(
    user: str,
    device: str,
    fingerprint: str,
    account: str | None,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Verify a DEVICE of USER by its fingerprint."""
    params = {"userId": user, "deviceId": device, "trust": "verified", "fingerprint": fingerprint}
    _set_trust(gateway, account, params, as_json=as_json)


@command.command()
@examples("homarus matrix block @ann:example.org ABCDEFGH")
@_user
@_device
@_account
@action_options
def block(
    user: str, device: str, account: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Block a DEVICE of USER: it gets nothing, and what it sends is not read."""
    params = {"userId": user, "deviceId": device, "trust": "blocked"}
    _set_trust(gateway, account, params, as_json=as_json)


@command.command()
@examples("homarus matrix unverify @ann:example.org ABCDEFGH")
@_user
@_device
@_account
@action_options
def unverify(
    user: str, device: str, account: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Make a DEVICE of USER neither verified nor blocked."""
    params = {"userId": user, "deviceId": device, "trust": "unverified"}
    _set_trust(gateway, account, params, as_json=as_json)


def _set_trust(
    gateway: GatewayOptions, account: str | None, params: Mapping[str, Json], *, as_json: bool
) -> None:
    found = _call(gateway, "matrix.trust", account, params)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        row = found["device"]
        click.echo(f"Device {one_line(row['deviceId'])} is {row['trust']}.")


@command.group("keys", cls=CommandGroup)
@examples("homarus matrix keys export room-keys.txt")
def keys() -> None:
    """Export and import room keys, which open what was said."""


@keys.command("export")
@examples("homarus matrix keys export room-keys.txt")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_account
@action_options
def export(file: Path, account: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Write all room keys to a new FILE, encrypted under a passphrase."""
    if file.exists():
        raise UserError(f"{file} exists", fix="name a new file")
    passphrase = _passphrase(confirm=True)
    if is_gateway_running(gateway):
        found = _call(gateway, "matrix.keys.export", account, {"passphrase": passphrase})
    else:
        found = _export(account, passphrase)
    try:
        with open_private(file, "x") as opened:
            opened.write(found["text"])
    except OSError as exc:
        raise UserError(f"cannot write {file}: {exc.strerror}") from exc
    if as_json:
        click.echo(json.dumps({"count": found["count"], "file": str(file)}))
    else:
        click.echo(f"{found['count']} room keys are in {file}.")


@keys.command("import")
@examples("homarus matrix keys import element-keys.txt")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_account
@action_options
def import_(file: Path, account: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Add the room keys of a FILE that a client of Matrix exported."""
    text = _read(file)
    params = {"passphrase": _passphrase(confirm=False), "text": text}
    if is_gateway_running(gateway):
        found = _call(gateway, "matrix.keys.import", account, params)
    else:
        found = _import(account, text, params["passphrase"])
    if as_json:
        click.echo(json.dumps(found))
    else:
        failed = f", {found['failed']} could not be read" if found["failed"] else ""
        click.echo(f"{found['added']} room keys are new, {found['known']} were known{failed}.")


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{file} is larger than {MAX_FILE_BYTES:,} bytes")
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        raise UserError(f"cannot read {file}: {exc.strerror}") from exc


def _passphrase(*, confirm: bool) -> str:
    """Prompt for the passphrase; a program gives it by standard input, never by an argument."""
    if sys.stdin.isatty():
        entered: str = click.prompt(
            "Passphrase", hide_input=True, confirmation_prompt=confirm, err=True
        )
        return entered
    if line := sys.stdin.readline().rstrip("\r\n"):
        return line
    raise UserError("no passphrase came by standard input", fix="send one line")


# The gateway


def _call(
    gateway: GatewayOptions, method: str, account: str | None, params: Mapping[str, Json]
) -> dict[str, Any]:
    return asyncio.run(_ask(gateway, method, account, params))


def _step(
    gateway: GatewayOptions, account: str | None, step: str, **params: Json
) -> dict[str, Any]:
    return _call(gateway, "matrix.verify", account, {"step": step, **params})


async def _ask(
    gateway: GatewayOptions, method: str, account: str | None, params: Mapping[str, Json]
) -> dict[str, Any]:
    named = {"accountId": account} if account else {}
    async with open_gateway(gateway) as client:
        found = await client.call(method, {**params, **named}, timeout_s=60.0)
    if not isinstance(found, dict):
        raise UserError("the gateway did not answer as expected")
    return found


async def _wait_for_offer(
    gateway: GatewayOptions, account: str | None, timeout_s: float
) -> dict[str, Any]:
    """Wait until another device begins a verification."""
    clock = SystemClock()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await _ask(gateway, "matrix.verify", account, {"step": "pending"})
                for one in found["verifications"]:
                    if one["state"] == "offered":
                        return dict(one)
                await clock.sleep(POLL_S)
    except TimeoutError as exc:
        raise UserError("no device asked to be verified") from exc


async def _wait(
    gateway: GatewayOptions, account: str | None, id_: str, states: set[str], timeout_s: float
) -> dict[str, Any]:
    """Wait until a verification has one of these states."""
    clock = SystemClock()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                params: dict[str, Json] = {"step": "show", "id": id_}
                found = await _ask(gateway, "matrix.verify", account, params)
                if found["state"] in states:
                    return found
                if found["state"] in _ENDED:
                    problem = one_line(found["problem"], 200)
                    raise UserError(f"the verification ended: {problem or found['state']}")
                await clock.sleep(POLL_S)
    except TimeoutError as exc:
        raise UserError("the other device did not answer in time") from exc


# Without a gateway, on the file


def _open_machine(account: str | None) -> "OlmMachine":
    from homarus.channels.matrix.encrypted import key_file, load_library

    load_library()
    from homarus.channels.matrix.encryption.machine import OlmMachine
    from homarus.channels.matrix.encryption.store import last_device, open_store

    name = normalize_account_id(account) if account else DEFAULT_ACCOUNT
    file = key_file(Paths.find(os.environ).state, name)
    device = last_device(file)
    if device is None:
        raise UserError(
            f"the account {name} has no keys yet",
            fix="set channels.matrix.encryption to true and start the gateway",
        )
    return OlmMachine(*device, open_store(file, *device), only_verified=False)


def _read_devices(account: str | None, user: str) -> dict[str, Any]:
    machine = _open_machine(account)
    from homarus.channels.matrix.encryption.operator import describe_devices

    try:
        return describe_devices(machine, user, machine.store.unreadable())
    finally:
        machine.store.close()


def _export(account: str | None, passphrase: str) -> dict[str, Any]:
    machine = _open_machine(account)
    from homarus.channels.matrix.encryption.key_files import export_keys

    try:
        text, count = export_keys(machine.inbound_group_store, passphrase)
    finally:
        machine.store.close()
    return {"text": text, "count": count}


def _import(account: str | None, text: str, passphrase: str) -> dict[str, Any]:
    machine = _open_machine(account)
    from homarus.channels.matrix.encryption.key_files import read_keys

    try:
        found, failed = read_keys(text, passphrase)
        added = machine.add_room_keys(found)
    finally:
        machine.store.close()
    return {"added": added, "known": len(found) - added, "failed": failed}
