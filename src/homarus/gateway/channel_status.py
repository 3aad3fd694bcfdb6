"""The chat channels as clients see them: each channel and its accounts.

What knows channels is imported only when some are configured.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from homarus.config.redaction import redact
from homarus.config.schema import Config
from homarus.core.errors import HomarusError
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_ACCOUNT
from homarus.core.tasks import run_contained, task_group
from homarus.core.text import one_line
from homarus.gateway.services import GatewayServices

if TYPE_CHECKING:
    from homarus.channels.controller import AccountStatus

AccountKey: TypeAlias = tuple[str, str]  # channel and account


def by_channel(statuses: "Sequence[AccountStatus]") -> "dict[str, list[AccountStatus]]":
    """Return the accounts of each channel, in the config's order."""
    results: dict[str, list[AccountStatus]] = {}
    for status in statuses:
        results.setdefault(status.channel, []).append(status)
    return results


def default_account(statuses: "Sequence[AccountStatus]") -> str:
    """Return the account that is used when none is named."""
    names = [status.account for status in statuses]
    return DEFAULT_ACCOUNT if DEFAULT_ACCOUNT in names else names[0]


def encode_channels_status(
    services: GatewayServices, probes: Mapping[AccountKey, Json], at_ms: int
) -> dict[str, Json]:
    """Return every configured channel and its accounts, as `channels.status` sends them."""
    channels = by_channel(services.channels.status())
    labels = {name: _label(name) for name in channels}
    accounts = {
        name: [_account(services.loaded.config, status, probes, at_ms) for status in statuses]
        for name, statuses in channels.items()
    }
    defaults = {name: default_account(statuses) for name, statuses in channels.items()}
    return {
        "channelOrder": list(channels),
        "channelLabels": labels,
        "channelDetailLabels": dict(labels),
        "channelSystemImages": {},
        "channelMeta": [
            {"id": name, "label": outcome, "detailLabel": outcome}
            for name, outcome in labels.items()
        ],
        "channels": {
            name: next(summary(entry) for entry in rows if entry["accountId"] == defaults[name])
            for name, rows in accounts.items()
        },
        "channelAccounts": accounts,
        "channelDefaultAccountId": defaults,
    }


def summary(account: Mapping[str, Json]) -> dict[str, Json]:
    """Return a channel's summary: the state of its default account."""
    fields = ("configured", "running", "connected", "lastStartAt", "lastError", "probe")
    return {key: account[key] for key in fields if key in account}


def summary_lines(statuses: "Sequence[AccountStatus]") -> list[str]:
    """Return a line of text for each account."""
    return [
        f"{_label(status.channel)} {status.account}: {describe_account_state(status)}"
        for status in statuses
    ]


def describe_account_state(status: "AccountStatus") -> str:
    """Return an account's state in a few words."""
    if not status.enabled:
        return "off"
    if status.problem:
        return (
            f"{'failing' if status.running else 'stopped'}: {one_line(redact(status.problem), 160)}"
        )
    return "connected" if status.connected else "running" if status.running else "stopped"


def _label(channel: str) -> str:
    from homarus.channels.registry import channel_label

    return channel_label(channel)


def _account(
    config: Config, status: "AccountStatus", probes: Mapping[AccountKey, Json], at_ms: int
) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "accountId": status.account,
        "enabled": status.enabled,
        "configured": status.configured,
        "running": status.running,
        "connected": status.connected,
        "reconnectAttempts": status.restarts,
        "waiting": status.waiting,
    }
    fields = {
        "name": status.name,
        "lastStartAt": status.since_ms,
        "lastInboundAt": status.last_in_ms,
        "lastOutboundAt": status.last_out_ms,
        "lastError": redact(status.problem),
        "unreadable": status.unreadable,
    }
    entry |= {
        key: value for key, value in fields.items() if value
    }  # null is neither a text nor a time
    if status.configured and status.channel in config.channels:
        from homarus.config.channels import common_settings

        settings = common_settings(config, status.channel, status.account)
        entry |= {"dmPolicy": settings.dm_policy, "allowFrom": list(settings.allow_from)}
    if results := probes.get((status.channel, status.account)):
        entry |= {"probe": results, "lastProbeAt": at_ms}
    return entry


async def probe_all(services: GatewayServices, timeout_s: float) -> dict[AccountKey, Json]:
    """Check the login of every account that supports it, concurrently."""
    results: dict[AccountKey, Json] = {}

    async def probe_one(key: AccountKey) -> None:
        started_s = services.clock.monotonic()
        outcome: dict[str, Json] = {"ok": False, "error": "the channel has a bug: it is in the log"}

        async def probe() -> None:
            try:
                async with asyncio.timeout(timeout_s):
                    identity = await services.channels.probe(*key)
            except HomarusError as exc:
                outcome["error"] = redact(str(exc))
            except TimeoutError:
                outcome["error"] = f"no answer within {timeout_s:g} s"
            else:
                outcome.clear()
                outcome.update({"ok": True, "identity": identity})

        await run_contained(f"probe of {':'.join(key)}", probe, lambda _exc: None)
        elapsed_ms = round((services.clock.monotonic() - started_s) * 1000)
        results[key] = {**outcome, "elapsedMs": elapsed_ms}

    async with task_group() as group:
        for status in services.channels.status():
            if status.enabled and status.configured:
                group.create_task(probe_one((status.channel, status.account)))
    return results
