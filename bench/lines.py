"""What channels cost that are in the config, and that nobody uses.

Five accounts, two of Telegram, one of Matrix, two of IRC, are put into the config of a gateway
that runs and has none; what that costs it is told by the kernel, and what any change of the config
costs is taken off. (Two starts cannot be compared: one start differs from the next by more.)
*Unused* and *twenty* are accounts that are switched off: their sections are read and checked, and
nothing of a channel is loaded.

Beside them, without a limit, the same accounts *enabled*, while their services are not there: what
each needs before anybody can use it is loaded, and it tries to connect, in vain. Half of that time
is pydantic's, which makes a model of what each section may say; most of the rest is to load some
thirty modules.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.app import configure, model_server
from bench.figure import Figure
from bench.process import Gateway, running_gateway

SETTLE_S, PATIENCE_S = 1.5, 30.0
TAKEN = "the config changed and is in use"  # as the gateway's log says it
NOWHERE = 9  # a port where nobody listens
URL = f"http://127.0.0.1:{NOWHERE}"


def measure(*, quick: bool) -> list[Figure]:
    changes = {
        "other": {"messages": {"ackReactionScope": "all"}},
        "unused": {"channels": _accounts(enabled=False)},
        "enabled": {"channels": _accounts(enabled=True)},
        "twenty": {"channels": _twenty_accounts()},
    }
    with model_server() as url:
        looks = [
            {name: _change(url, change) for name, change in changes.items()}
            for _ in range(3 if quick else 7)
        ]
    # Noise only ever adds.
    cpu_ms = {name: min(look[name][0] for look in looks) for name in changes}
    rss_mb = {name: min(look[name][1] for look in looks) for name in changes}
    many = "twenty accounts of five services, switched off"
    off, on = "five accounts, switched off", "five accounts whose services are not there"
    return [
        Figure("channels.unused_mb", rss_mb["unused"] - rss_mb["other"], "MB", off),
        Figure("channels.unused_cpu_ms", cpu_ms["unused"] - cpu_ms["other"], "CPU-ms", off),
        Figure("channels.twenty_mb", rss_mb["twenty"] - rss_mb["other"], "MB", many),
        Figure("channels.twenty_cpu_ms", cpu_ms["twenty"] - cpu_ms["other"], "CPU-ms", many),
        Figure("channels.enabled_mb", rss_mb["enabled"] - rss_mb["other"], "MB", on),
        Figure("channels.enabled_cpu_ms", cpu_ms["enabled"] - cpu_ms["other"], "CPU-ms", on),
    ]


def _change(url: str, change: dict[str, Any]) -> tuple[float, float]:
    """CPU milliseconds and megabytes that a change of its config costs a gateway of its own."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        configure(home, url)
        with running_gateway(home) as gateway:
            time.sleep(SETTLE_S)
            before_s, before_mb = gateway.cpu_s(), gateway.rss_mb()
            file = home / "state" / "openclaw.json"
            config = json.loads(file.read_text(encoding="utf-8"))
            file.write_text(json.dumps({**config, **change}), encoding="utf-8")
            await_taken(gateway, home / "log")
            return (gateway.cpu_s() - before_s) * 1000, gateway.rss_mb() - before_mb


def await_taken(gateway: Gateway, log: Path) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while TAKEN not in log.read_text(encoding="utf-8"):
        if time.monotonic() > until_s:
            sys.exit(f"bench: gateway {gateway.pid} did not take its config up")
        time.sleep(0.1)
    time.sleep(SETTLE_S)


def _accounts(*, enabled: bool) -> dict[str, Any]:
    bots = {name: {"botToken": f"{at}:{'A' * 35}"} for at, name in enumerate("ab", 1)}
    nicks = {name: {"nick": f"homarus-{name}"} for name in "ab"}
    irc = {"host": "127.0.0.1", "port": NOWHERE, "tls": False}
    return {
        "telegram": {"enabled": enabled, "apiRoot": URL, "accounts": bots},
        "matrix": {"enabled": enabled, "homeserver": URL, "accessToken": "none"},
        "irc": {"enabled": enabled, **irc, "accounts": nicks},
    }


def _twenty_accounts() -> dict[str, Any]:
    """Return four accounts of each of five services, all of them switched off."""
    fields: dict[str, dict[str, Any]] = {
        "telegram": {"botToken": f"1:{'A' * 35}"},
        "matrix": {"homeserver": URL, "accessToken": "none"},
        "irc": {"host": "127.0.0.1", "port": NOWHERE, "nick": "homarus"},
        "discord": {"token": "none"},
        "slack": {"botToken": "xoxb-none", "appToken": "xapp-none"},
    }
    return {
        channel: {"enabled": False, "accounts": dict.fromkeys("abcd", account)}
        for channel, account in fields.items()
    }
