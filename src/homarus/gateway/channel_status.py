"""The chat channels as clients see them: each channel and its accounts.

What knows channels is imported only when some are configured.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from homarus.config.log_setup import redact
from homarus.config.schema import Config
from homarus.core.errors import HomarusError
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_ACCOUNT
from homarus.core.tasks import run_contained, task_group
from homarus.core.text import one_line
from homarus.gateway.services import GatewayServices

if TYPE_CHECKING:
    from homarus.channels.controller import AccountStatus

Key: TypeAlias = tuple[str, str]  # channel and account


def by_channel(lines: "Sequence[AccountStatus]") -> "dict[str, list[AccountStatus]]":
    """Return the accounts of each channel, in the config's order."""
    found: dict[str, list[AccountStatus]] = {}
    for line in lines:
        found.setdefault(line.channel, []).append(line)
    return found


def default_account(lines: "Sequence[AccountStatus]") -> str:
    """Return the account that is used when none is named."""
    names = [line.account for line in lines]
    return DEFAULT_ACCOUNT if DEFAULT_ACCOUNT in names else names[0]


def encode_channels_status(
    host: GatewayServices, probes: Mapping[Key, Json], at_ms: int
) -> dict[str, Json]:
    """Return every configured channel and its accounts, as `channels.status` sends them."""
    channels = by_channel(host.channels.status())
    labels = {name: _label(name) for name in channels}
    accounts = {
        name: [_account(host.loaded.config, line, probes, at_ms) for line in lines]
        for name, lines in channels.items()
    }
    defaults = {name: default_account(lines) for name, lines in channels.items()}
    return {
        "channelOrder": list(channels),
        "channelLabels": labels,
        "channelDetailLabels": dict(labels),
        "channelSystemImages": {},
        "channelMeta": [
            {"id": name, "label": told, "detailLabel": told} for name, told in labels.items()
        ],
        "channels": {
            name: next(summary(row) for row in rows if row["accountId"] == defaults[name])
            for name, rows in accounts.items()
        },
        "channelAccounts": accounts,
        "channelDefaultAccountId": defaults,
    }


def summary(account: Mapping[str, Json]) -> dict[str, Json]:
    """Return a channel's summary: the state of its default account."""
    fields = ("configured", "running", "connected", "lastStartAt", "lastError", "probe")
    return {key: account[key] for key in fields if key in account}


def summary_lines(lines: "Sequence[AccountStatus]") -> list[str]:
    """Return a line of text for each account."""
    return [
        f"{_label(line.channel)} {line.account}: {describe_account_state(line)}" for line in lines
    ]


def describe_account_state(line: "AccountStatus") -> str:
    """Return an account's state in a few words."""
    if not line.enabled:
        return "off"
    if line.problem:
        return f"{'failing' if line.running else 'stopped'}: {one_line(redact(line.problem), 160)}"
    return "connected" if line.connected else "running" if line.running else "stopped"


def _label(channel: str) -> str:
    from homarus.channels.registry import channel_label

    return channel_label(channel)


def _account(
    config: Config, line: "AccountStatus", probes: Mapping[Key, Json], at_ms: int
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
    fields = {
        "name": line.name,
        "lastStartAt": line.since_ms,
        "lastInboundAt": line.last_in_ms,
        "lastOutboundAt": line.last_out_ms,
        "lastError": redact(line.problem),
    }
    row |= {
        key: value for key, value in fields.items() if value
    }  # null is neither a text nor a time
    if line.configured and line.channel in config.channels:
        from homarus.config.channels import common_settings

        settings = common_settings(config, line.channel, line.account)
        row |= {"dmPolicy": settings.dm_policy, "allowFrom": list(settings.allow_from)}
    if found := probes.get((line.channel, line.account)):
        row |= {"probe": found, "lastProbeAt": at_ms}
    return row


async def probe_all(host: GatewayServices, timeout_s: float) -> dict[Key, Json]:
    """Check the login of every account that supports it, concurrently."""
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

        await run_contained(f"probe of {':'.join(key)}", probe, lambda _exc: None)
        elapsed_ms = round((host.clock.monotonic() - began_s) * 1000)
        found[key] = {**told, "elapsedMs": elapsed_ms}

    async with task_group() as group:
        for line in host.channels.status():
            if line.enabled and line.configured:
                group.create_task(ask((line.channel, line.account)))
    return found
