"""What MCP servers cost that are configured and not used.

Fifty servers, half of them programs and half addresses, are put into the config of a gateway that
runs and has none; what that costs is measured as for unused channels (bench/lines.py), and no
process may be started by it. Added to that is what a start does with them, measured alone: their
tools, which are known from an earlier use, three and two for resources each, are read and made.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.app import configure, model_server
from bench.figure import CpuClock, Figure, rss_mb
from bench.lines import SETTLE_S, await_taken
from bench.process import running_gateway
from homarus.agent.agent_registry import AgentRegistry
from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.tools.mcp.loader import McpLoader
from homarus.tools.sources import ToolSources

SERVERS = 50


def measure(*, quick: bool) -> list[Figure]:
    changes: dict[str, dict[str, Any]] = {
        "other": {"messages": {"ackReactionScope": "all"}},
        "unused": {"mcp": {"servers": _servers()}},
    }
    with model_server() as url:
        looks = [
            {name: _change(url, change) for name, change in changes.items()}
            for _ in range(3 if quick else 7)
        ]
    # Noise only ever adds.
    cpu_ms = {name: min(look[name][0] for look in looks) for name in changes}
    grown_mb = {name: min(look[name][1] for look in looks) for name in changes}
    start_ms, start_mb = _start()
    note = f"{SERVERS} servers whose tools are known, none of them used"
    return [
        Figure("mcp.unused_mb", grown_mb["unused"] - grown_mb["other"] + start_mb, "MB", note),
        Figure("mcp.unused_cpu_ms", cpu_ms["unused"] - cpu_ms["other"] + start_ms, "CPU-ms", note),
    ]


def _start() -> tuple[float, float]:
    """CPU milliseconds and megabytes of making the tools of all servers, after our own."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.find({"HOME": folder})
        _write_records(paths.state / "mcp")
        configs = [Config(), check_config({"mcp": {"servers": _servers()}}).config or Config()]
        loader = McpLoader(asyncio.TaskGroup(), lambda: configs[0], dict, paths.state)
        agents = AgentRegistry(lambda: configs[0], paths, sources=ToolSources((loader,)))
        agents.tools("main").specs()
        before_mb, clock = rss_mb(), CpuClock()
        configs.reverse()
        agents.clear()
        if len(agents.tools("main").specs()) < SERVERS * 5:
            sys.exit("bench: the tools of MCP servers are missing")
        return clock.spent_s() * 1000, rss_mb() - before_mb


def _change(url: str, change: dict[str, Any]) -> tuple[float, float]:
    """CPU milliseconds and megabytes that a change of its config costs a gateway of its own."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        configure(home, url)
        _write_records(home / "state" / "mcp")
        with running_gateway(home) as gateway:
            time.sleep(SETTLE_S)
            before_s, before_mb = gateway.cpu_s(), gateway.rss_mb()
            file = home / "state" / "openclaw.json"
            config = json.loads(file.read_text(encoding="utf-8"))
            file.write_text(json.dumps({**config, **change}), encoding="utf-8")
            await_taken(gateway, home / "log")
            if children := _children(gateway.pid):
                sys.exit(f"bench: unused MCP servers have processes: {children}")
            return (gateway.cpu_s() - before_s) * 1000, gateway.rss_mb() - before_mb


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(each) for each in (task / "children").read_text().split()]
    return found


def _servers() -> dict[str, Any]:
    program = {"command": "no-such-server", "args": ["--quiet"], "env": {"LEVEL": "1"}}
    address = {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer ${HOME}"}}
    return {f"server{at}": (program, address)[at % 2] for at in range(SERVERS)}


def _write_records(folder: Path) -> None:
    folder.mkdir(parents=True)
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": "Text"}}}
    trusted = {"digest": "0" * 64, "description": "Do something. " * 10, "schema": schema}
    for name in _servers():
        tools = [
            {
                "name": f"tool{at}",
                "callName": f"{name}__tool{at}",
                "listed": True,
                "trusted": trusted,
                "pending": None,
            }
            for at in range(3)
        ]
        record = {"server": name, "title": "", "hasResources": True, "hasPrompts": False}
        text = json.dumps({**record, "tools": tools})
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
