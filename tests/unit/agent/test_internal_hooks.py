"""Internal hooks as one plugin: events reach handlers, and nothing is loaded while they are off."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.agent import Agent
from homarus.agent.internal_hooks.loader import InternalHookLoader, InternalHookServices
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.message import Address, Inbound, Outbound
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.values import HookContext
from tests.unit.agent.hook_builders import MANAGED, ON, no_session, write_hook
from tests.waiting import until

WHERE = HookContext("main", "agent:main:main", "run-1", "/w", "telegram")


class Harness:
    """A loader on a config that a test can change."""

    def __init__(self, home: Path, group: asyncio.TaskGroup, tree: dict[str, Any]) -> None:
        self.home, self.hooks, self.boots = home, Hooks(), 0
        (home / ".openclaw" / "workspace").mkdir(parents=True, exist_ok=True)
        self.configure(tree)

        def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
            return group.create_task(work, name=name)

        async def run_boot() -> None:
            self.boots += 1

        self.loader = InternalHookLoader(
            InternalHookServices(
                hooks=self.hooks,
                paths=Paths.find({"HOME": str(home)}),
                clock=SystemClock(),
                get_loaded=lambda: self.loaded,
                spawn=spawn,
                load_session=no_session,
                get_agent=lambda name: Agent(name, name, home / ".openclaw" / "workspace"),
                run_boot=run_boot,
                local_date=lambda _at_ms: "2027-01-15",
            )
        )
        self.loader.start()

    def configure(self, tree: dict[str, Any]) -> None:
        config = Config.model_validate(tree)
        env = {"PATH": "/usr/bin:/bin"}
        self.loaded = LoadedConfig(config, tree, "", "", exists=True, env=env)


@asynccontextmanager
async def open_harness(home: Path, tree: dict[str, Any]) -> AsyncIterator[Harness]:
    async with asyncio.TaskGroup() as group:
        harness = Harness(home, group, tree)
        try:
            yield harness
        finally:
            harness.loader.stop()


def write_recorder(home: Path, events: str) -> Path:
    """Write a hook that appends each event to a file; return the file."""
    file = home / "events.jsonl"
    source = (
        "import json\ndef handle(event):\n"
        f"    with open({str(file)!r}, 'a') as out:\n"
        "        row = [event.type, event.action, event.session_key, event.context]\n"
        "        out.write(json.dumps(row) + '\\n')\n"
        "    event.messages.append('recorded')\n"
    )
    write_hook(home / MANAGED, "recorder", source, events=events)
    return file


def rows(file: Path) -> list[Any]:
    return list(map(json.loads, file.read_text().splitlines())) if file.exists() else []


async def test_events_of_the_program_reach_a_handler(tmp_path: Path) -> None:
    file = write_recorder(tmp_path, '["command", "session", "gateway", "message"]')
    async with open_harness(tmp_path, _only("recorder")) as harness:
        hooks = harness.hooks
        assert await hooks.command(WHERE, "new", "hello") == ("recorded",)
        await hooks.session_end(WHERE, "s1", 4)
        await until(lambda: len(rows(file)) == 2)
        await hooks.session_start(WHERE, "s2", "s1")
        await until(lambda: len(rows(file)) == 3)
        await hooks.gateway_startup()
        await until(lambda: len(rows(file)) == 4)
        await hooks.message_received(WHERE, Inbound("7", Address("telegram", "1"), "ann", "hi"))
        await until(lambda: len(rows(file)) == 5)
        await hooks.message_sent(Outbound(Address("telegram", "1"), "hello"), "no network")
        await until(lambda: len(rows(file)) == 6)
        assert not hooks.failures
    kinds = [f"{row[0]}:{row[1]}" for row in rows(file)]
    assert kinds == [
        "command:new",
        "session:end",
        "session:start",
        "gateway:startup",
        "message:received",
        "message:sent",
    ]
    new, end, _, _, received, sent = (row[3] for row in rows(file))
    assert (new["text"], new["run_id"], new["channel"]) == ("hello", "run-1", "telegram")
    assert (end["session_id"], end["message_count"]) == ("s1", 4)
    assert (received["from"], received["content"], received["chat"]) == ("ann", "hi", "1")
    assert (sent["content"], sent["success"], sent["error"]) == ("hello", False, "no network")


async def test_bootstrap_files_are_changed_by_a_handler(tmp_path: Path) -> None:
    source = "def handle(event):\n    event.context['files'] = {'SOUL.md': 'A pirate.'}\n"
    write_hook(tmp_path / MANAGED, "pirate", source, events='["agent:bootstrap"]')
    async with open_harness(tmp_path, _only("pirate")) as harness:
        files = {"SOUL.md": "Kind.", "USER.md": "Ann"}
        assert await harness.hooks.agent_bootstrap(WHERE, files) == {"SOUL.md": "A pirate."}


async def test_event_without_a_handler_changes_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path, _only()) as harness:
        assert await harness.hooks.agent_bootstrap(WHERE, {"A": "b"}) == {"A": "b"}
        assert await harness.hooks.command(WHERE, "stop") == ()


async def test_config_switches_hooks_on_and_off(tmp_path: Path) -> None:
    file = write_recorder(tmp_path, '["command"]')
    async with open_harness(tmp_path, {}) as harness:
        assert harness.hooks.is_empty
        harness.configure(_only("recorder"))
        harness.loader.reload()
        assert await harness.hooks.command(WHERE, "new") == ("recorded",)
        harness.configure({"hooks": {"internal": {"enabled": False}}})
        harness.loader.reload()
        assert await harness.hooks.command(WHERE, "new") == ()
        harness.configure(_only("recorder"))
        harness.loader.reload()
        assert await harness.hooks.command(WHERE, "new") == ("recorded",)
    assert len(rows(file)) == 2


@pytest.mark.parametrize(
    ("tree", "boots"),
    [
        ({}, 1),
        ({"hooks": {"internal": {"enabled": False}}}, 0),
        ({"hooks": {"internal": {"entries": {"boot-md": {"enabled": False}}}}}, 0),
        (ON, 1),
        (
            {"hooks": {"internal": {"enabled": True, "entries": {"boot-md": {"enabled": False}}}}},
            0,
        ),
    ],
)
async def test_boot_file_runs_once_unless_switched_off(
    tmp_path: Path, tree: dict[str, Any], boots: int
) -> None:
    async with open_harness(tmp_path, tree) as harness:
        await harness.hooks.gateway_startup()
        await harness.loader.run_boot()
        if boots:
            await until(lambda: harness.boots)
    assert harness.boots == boots


def test_hooks_that_are_off_import_nothing(tmp_path: Path) -> None:
    """A start without hooks must not pay for them."""
    write_hook(tmp_path / MANAGED, "unused")
    code = (
        "import sys, homarus.app\n"
        "names = ('pluggy', 'homarus.agent.internal_hooks.catalog',\n"
        "         'homarus.agent.internal_hooks.dispatcher', 'homarus.skills.folder_search')\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(tmp_path)},
    )
    assert shown.stdout.strip() == "[]"


def _only(*names: str) -> dict[str, Any]:
    """Return a config in which the bundled hooks are off."""
    bundled = ("boot-md", "bootstrap-extra-files", "command-logger", "session-memory")
    entries = {name: {"enabled": False} for name in bundled}
    entries |= {name: {"enabled": True} for name in names}
    return {"hooks": {"internal": {"enabled": True, "entries": entries}}}
