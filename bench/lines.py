"""What channels cost that are in the config, and that nobody uses.

Five accounts, two of Telegram, one of Matrix, two of IRC: a gateway that has them in its config
against one that has none, in turn, by what the kernel says of the process a while after it was
ready. *Unused* are accounts that are switched off: their section is read and checked, and nothing
of a channel is loaded.

Beside them, without a limit, the same accounts *enabled*, while their services are not there: what
each needs before anybody can use it is loaded, and it tries to connect, in vain. Half of that time
is pydantic's, which makes a model of what each section may say and of the tool to write to chats
with, which every agent then has; most of the rest is to load some thirty modules.
"""

import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.app import configure, model_server
from bench.figure import Figure
from bench.process import running_gateway

SETTLE_S = 1.5
AGREE, ALIKE = 3, 0.015
NOWHERE = 9  # a port where nobody listens
URL = f"http://127.0.0.1:{NOWHERE}"


def measure(*, quick: bool) -> list[Figure]:
    configs = {"none": {}, "unused": _accounts(enabled=False), "enabled": _accounts(enabled=True)}
    spent_ms: dict[str, list[float]] = {name: [] for name in configs}
    rss_mb: dict[str, list[float]] = {name: [] for name in configs}
    with model_server() as url:
        for _ in range(10 if quick else 20):
            for name, channels in configs.items():
                cpu_s, held_mb = _idle(url, channels)
                spent_ms[name].append(cpu_s * 1000)
                rss_mb[name].append(held_mb)
            if all(map(_agree, spent_ms.values())):
                break
    off, on = "five accounts, switched off", "five accounts whose services are not there"
    return [
        Figure("channels.unused_mb", _more(rss_mb, "unused"), "MB", off),
        Figure("channels.unused_cpu_ms", _more(spent_ms, "unused"), "CPU-ms", off),
        Figure("channels.enabled_mb", _more(rss_mb, "enabled"), "MB", on),
        Figure("channels.enabled_cpu_ms", _more(spent_ms, "enabled"), "CPU-ms", on),
    ]


def _agree(looks: list[float]) -> bool:
    """Whether the best looks are alike: noise is not."""
    best = sorted(looks)[:AGREE]
    return len(best) == AGREE and best[-1] - best[0] < best[0] * ALIKE


def _more(found: Mapping[str, list[float]], name: str) -> float:
    """By how much one is more than none, at best: noise only ever adds."""
    return min(found[name]) - min(found["none"])


def _idle(url: str, channels: Mapping[str, Any]) -> tuple[float, float]:
    """CPU seconds and megabytes of a gateway that nobody has asked for anything."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        configure(home, url)
        file = home / "state" / "openclaw.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**config, "channels": channels}), encoding="utf-8")
        with running_gateway(home) as gateway:
            time.sleep(SETTLE_S)
            return gateway.cpu_s(), gateway.rss_mb()


def _accounts(*, enabled: bool) -> dict[str, Any]:
    bots = {name: {"botToken": f"{at}:{'A' * 35}"} for at, name in enumerate("ab", 1)}
    nicks = {name: {"nick": f"homarus-{name}"} for name in "ab"}
    irc = {"host": "127.0.0.1", "port": NOWHERE, "tls": False}
    return {
        "telegram": {"enabled": enabled, "apiRoot": URL, "accounts": bots},
        "matrix": {"enabled": enabled, "homeserver": URL, "accessToken": "none"},
        "irc": {"enabled": enabled, **irc, "accounts": nicks},
    }
