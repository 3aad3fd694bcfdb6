"""The chat channels as clients are shown them: by channel, and each account of it.

What knows channels is loaded when there are some: who has none pays nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from homarus.config.log import redact
from homarus.config.schema import Config
from homarus.core.errors import HomarusError
from homarus.core.keys import DEFAULT_ACCOUNT
from homarus.core.message import Json
from homarus.core.tasks import contain, task_group
from homarus.core.text import one_line
from homarus.gateway.services import GatewayServices

if TYPE_CHECKING:
    from homarus.channels.switchboard import LineStatus

Key: TypeAlias = tuple[str, str]  # a channel and an account


def by_channel(lines: "Sequence[LineStatus]") -> "dict[str, list[LineStatus]]":
    """The accounts of each channel, in the config's order."""
    found: dict[str, list[LineStatus]] = {}
    for line in lines:
        found.setdefault(line.channel, []).append(line)
    return found


def usual_account(lines: "Sequence[LineStatus]") -> str:
    """The account of a channel that is meant when none is named."""
    names = [line.account for line in lines]
    return DEFAULT_ACCOUNT if DEFAULT_ACCOUNT in names else names[0]


def describe(host: GatewayServices, probes: Mapping[Key, Json], at_ms: int) -> dict[str, Json]:
    """Every channel of the config and its accounts, as `channels.status` answers."""
    channels = by_channel(host.channels.status())
    labels = {name: _label(name) for name in channels}
    accounts = {
        name: [_account(host.loaded.config, line, probes, at_ms) for line in lines]
        for name, lines in channels.items()
    }
    usual = {name: usual_account(lines) for name, lines in channels.items()}
    return {
        "channelOrder": list(channels),
        "channelLabels": labels,
        "channelDetailLabels": dict(labels),
        "channelSystemImages": {},
        "channelMeta": [
            {"id": name, "label": told, "detailLabel": told} for name, told in labels.items()
        ],
        "channels": {
            name: next(summary(row) for row in rows if row["accountId"] == usual[name])
            for name, rows in accounts.items()
        },
        "channelAccounts": accounts,
        "channelDefaultAccountId": usual,
    }


def summary(account: Mapping[str, Json]) -> dict[str, Json]:
    """A channel in short: how its usual account is."""
    said = ("configured", "running", "connected", "lastStartAt", "lastError", "probe")
    return {key: account[key] for key in said if key in account}


def summarize(lines: "Sequence[LineStatus]") -> list[str]:
    """A line for each account."""
    return [f"{_label(line.channel)} {line.account}: {state_of(line)}" for line in lines]


def state_of(line: "LineStatus") -> str:
    """How an account is, in a few words."""
    if not line.enabled:
        return "off"
    if line.problem:
        return f"{'failing' if line.running else 'stopped'}: {one_line(redact(line.problem), 160)}"
    return "connected" if line.connected else "running" if line.running else "stopped"


def _label(channel: str) -> str:
    from homarus.channels.roster import label

    return label(channel)


def _account(
    config: Config, line: "LineStatus", probes: Mapping[Key, Json], at_ms: int
) -> dict[str, Json]:
    row: dict[str, Json] = {
        "accountId": line.account,
        "enabled": line.enabled,
        "configured": line.configured,
        "running": line.running,
        "connected": line.connected,
        "reconnectAttempts": line.restarts,
        "waiting": line.waiting,
    }
    said = {
        "name": line.name,
        "lastStartAt": line.since_ms,
        "lastInboundAt": line.last_in_ms,
        "lastOutboundAt": line.last_out_ms,
        "lastError": redact(line.problem),
    }
    row |= {key: value for key, value in said.items() if value}  # null is no text and no time
    if line.configured and line.channel in config.channels:
        from homarus.config.channels import common

        settings = common(config, line.channel, line.account)
        row |= {"dmPolicy": settings.dm_policy, "allowFrom": list(settings.allow_from)}
    if found := probes.get((line.channel, line.account)):
        row |= {"probe": found, "lastProbeAt": at_ms}
    return row


async def probe_all(host: GatewayServices, timeout_s: float) -> dict[Key, Json]:
    """Ask every service that can be asked, all at once, whether it lets us in."""
    found: dict[Key, Json] = {}

    async def ask(key: Key) -> None:
        began_s = host.clock.monotonic()
        told: dict[str, Json] = {"ok": False, "error": "the channel has a bug: it is in the log"}

        async def probe() -> None:
            try:
                async with asyncio.timeout(timeout_s):
                    who = await host.channels.probe(*key)
            except HomarusError as exc:
                told["error"] = redact(str(exc))
            except TimeoutError:
                told["error"] = f"no answer within {timeout_s:g} s"
            else:
                told.clear()
                told.update({"ok": True, "identity": who})

        await contain(f"probe of {':'.join(key)}", probe, lambda _exc: None)
        elapsed_ms = round((host.clock.monotonic() - began_s) * 1000)
        found[key] = {**told, "elapsedMs": elapsed_ms}

    async with task_group() as group:
        for line in host.channels.status():
            if line.enabled and line.configured:
                group.create_task(ask((line.channel, line.account)))
    return found
