"""Handlers of internal hooks: what they get and return, and that bad ones disturb no one."""

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from homarus.agent.internal_hooks import handler_process
from homarus.agent.internal_hooks.dispatcher import MAX_PENDING, OVERRUNS, HookDispatcher
from homarus.agent.internal_hooks.event import MAX_MESSAGE_CHARS, MAX_MESSAGES
from homarus.agent.internal_hooks.handler_process import MAX_QUEUED
from tests.unit.agent.hook_builders import (
    HANDLER,
    MANAGED,
    WORKSPACE,
    event,
    make_catalog,
    open_dispatcher,
    switched_on,
    write_hook,
)
from tests.waiting import until

HANG = "import time\ndef handle(event):\n    time.sleep(600)\n"
BUSY = "async def handle(event):\n    while True: pass\n"


def say(text: str) -> str:
    return f"def handle(event):\n    event.messages.append({text!r})\n"


async def messages(dispatcher: HookDispatcher, name: str = "command:new") -> tuple[str, ...]:
    return (await dispatcher.dispatch(event(name))).messages


async def test_type_handlers_run_before_action_handlers(tmp_path: Path) -> None:
    write_hook(tmp_path / MANAGED, "a-action", say("action"), events='["command:new"]')
    write_hook(tmp_path / MANAGED, "b-type", say("type"), events='["command"]')
    write_hook(tmp_path / MANAGED, "c-other", say("other"), events='["command:stop"]')
    async with open_dispatcher(tmp_path) as dispatcher:
        assert await messages(dispatcher) == ("type", "action")
        assert await messages(dispatcher, "command:stop") == ("type", "other")
        assert await messages(dispatcher, "session:start") == ()


async def test_handler_gets_the_event(tmp_path: Path) -> None:
    source = (
        "import json\nasync def handle(event):\n"
        "    seen = [event.api_version, event.type, event.action, event.session_key,\n"
        "            event.timestamp.isoformat(), event.context['text'],\n"
        "            event.context['settings'], event.messages]\n"
        "    event.messages.append(json.dumps(seen))\n"
    )
    write_hook(tmp_path / MANAGED, "seer", source)
    catalog = make_catalog(tmp_path, switched_on(entries={"seer": {"colour": "red"}}))
    async with open_dispatcher(tmp_path, catalog) as dispatcher:
        [line] = (await dispatcher.dispatch(event(text="hi"))).messages
    at = "2027-01-15T08:00:00+00:00"
    key = "agent:main:main"
    assert json.loads(line) == [1, "command", "new", key, at, "hi", {"colour": "red"}, []]


async def test_export_names_another_function(tmp_path: Path) -> None:
    source = "def react(event):\n    event.messages.append('reacted')\n"
    write_hook(tmp_path / MANAGED, "named", source, metadata='"export": "react"')
    async with open_dispatcher(tmp_path) as dispatcher:
        assert await messages(dispatcher) == ("reacted",)


async def test_bootstrap_handlers_change_files_one_after_another(tmp_path: Path) -> None:
    add = "def handle(event):\n    event.context['files']['SOUL.md'] += {!r}\n"
    write_hook(tmp_path / MANAGED, "a", add.format(" one"), events='["agent:bootstrap"]')
    write_hook(tmp_path / MANAGED, "b", add.format(" two"), events='["agent"]')
    async with open_dispatcher(tmp_path) as dispatcher:
        result = await dispatcher.dispatch(event("agent:bootstrap", files={"SOUL.md": "x"}))
    assert result.files == {"SOUL.md": "x two one"}


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def handle(event):\n    raise ValueError('bad day')\n", "ValueError: bad day (line 2"),
        ("import sys\ndef handle(event):\n    sys.exit(3)\n", "SystemExit: 3"),
        ("import os\ndef handle(event):\n    os._exit(3)\n", "its process ended"),
        ("1 / 0\ndef handle(event): ...\n", "ZeroDivisionError"),
        ("import no_such_module_at_all\ndef handle(event): ...\n", "ModuleNotFoundError"),
    ],
)
async def test_failing_handler_is_logged_and_the_next_one_runs(
    tmp_path: Path, source: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_hook(tmp_path / MANAGED, "a-bad", source)
    write_hook(tmp_path / MANAGED, "b-good", say("fine"))
    async with open_dispatcher(tmp_path) as dispatcher:
        assert await messages(dispatcher) == ("fine",)
        assert await messages(dispatcher) == ("fine",)
    assert error in caplog.text and "hook a-bad failed for command:new" in caplog.text


async def test_failures_are_logged_a_few_times_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_hook(tmp_path / MANAGED, "bad", "def handle(event):\n    raise ValueError\n")
    async with open_dispatcher(tmp_path) as dispatcher:
        for _ in range(20):
            await dispatcher.dispatch(event())
    assert caplog.text.count("hook bad failed") == 5
    assert caplog.text.count("fails often") == 1


@pytest.mark.parametrize("source", [HANG, BUSY])
async def test_hanging_handler_is_killed_and_suspended(
    tmp_path: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_hook(tmp_path / MANAGED, "a-stuck", source)
    write_hook(tmp_path / MANAGED, "b-good", say("fine"))
    catalog = make_catalog(tmp_path)
    async with open_dispatcher(tmp_path, catalog, deadline_s=1.0) as dispatcher:
        for _ in range(OVERRUNS):
            assert await messages(dispatcher) == ("fine",)
        suspended = catalog.enabled.find_suspended(folder)
        assert suspended and "took longer than 1 s" in suspended.reason
        started = asyncio.get_running_loop().time()
        assert await messages(dispatcher) == ("fine",)
        assert asyncio.get_running_loop().time() - started < 1.0, "it is not called any more"
    assert "hook a-stuck is suspended" in caplog.text
    states = {each.hook.name: each.state for each in catalog.load().hooks}
    assert states == {"a-stuck": "suspended", "b-good": "ready"}


async def test_hanging_handler_blocks_neither_loop_nor_poster(tmp_path: Path) -> None:
    write_hook(tmp_path / MANAGED, "stuck", BUSY, events='["message"]')
    async with open_dispatcher(tmp_path, deadline_s=0.7) as dispatcher:
        loop, longest, last = asyncio.get_running_loop(), 0.0, 0.0
        end = last = loop.time()
        dispatcher.post(event("message:received"))
        assert loop.time() - end < 0.1, "no one waits for it"
        while loop.time() < end + 0.5:
            await asyncio.sleep(0.005)
            longest, last = max(longest, loop.time() - last), loop.time()
        assert longest < 0.4


async def test_process_of_a_handler_ends_with_the_dispatcher(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    source = (
        f"import os, pathlib, time\ndef handle(event):\n"
        f"    pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n    time.sleep(600)\n"
    )
    write_hook(tmp_path / MANAGED, "stuck", source, events='["message"]')
    async with open_dispatcher(tmp_path, deadline_s=60.0) as dispatcher:
        dispatcher.post(event("message:received"))
        await until(lambda: pid_file.exists() and pid_file.read_text())
    pid = int(pid_file.read_text())
    await until(lambda: not _is_running(pid))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_output_flood_is_logged_within_limits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source = "def handle(event):\n    for at in range(20000): print('noise', at)\n"
    write_hook(tmp_path / MANAGED, "loud", source)
    async with open_dispatcher(tmp_path) as dispatcher:
        await dispatcher.dispatch(event())
        await until(lambda: "prints too much" in caplog.text)
    assert caplog.text.count("noise") <= 20


async def test_messages_of_a_handler_are_bounded(tmp_path: Path) -> None:
    source = (
        "def handle(event):\n    event.messages += ['x' * 9000, 7, 'two\\nlines'] + ['y'] * 1000\n"
    )
    write_hook(tmp_path / MANAGED, "chatty", source)
    async with open_dispatcher(tmp_path) as dispatcher:
        found = await messages(dispatcher)
    assert len(found) == MAX_MESSAGES and max(map(len, found)) <= MAX_MESSAGE_CHARS
    assert not any("\n" in line for line in found)


async def test_reply_that_is_too_long_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handler_process, "MAX_REPLY_BYTES", 10_000)
    source = "def handle(event):\n    event.context['files'] = {'A.md': 'x' * 100000}\n"
    write_hook(tmp_path / MANAGED, "huge", source, events='["agent:bootstrap"]')
    async with open_dispatcher(tmp_path) as dispatcher:
        result = await dispatcher.dispatch(event("agent:bootstrap", files={}))
    assert result.files is None and "more than a reply may have" in caplog.text


async def test_changed_workspace_hook_stops_at_once(tmp_path: Path) -> None:
    folder = write_hook(tmp_path / WORKSPACE, "local", say("checked"))
    catalog = make_catalog(tmp_path, switched_on(entries={"local": {"enabled": True}}))

    def enable() -> None:
        [status] = catalog.load().hooks
        assert status.files
        catalog.enabled.enable(folder, status.files.digest, 1)

    enable()
    async with open_dispatcher(tmp_path, catalog) as dispatcher:
        assert await messages(dispatcher) == ("checked",)
        (folder / "handler.py").write_text(say("changed"))
        assert await messages(dispatcher) == ()
        enable()
        assert await messages(dispatcher) == ("changed",)


async def test_handler_gets_only_its_own_variables(tmp_path: Path) -> None:
    source = (
        "import os\ndef handle(event):\n"
        "    names = ('OWN', 'NEEDED', 'OPENAI_API_KEY')\n"
        "    event.messages.append(str([os.environ.get(name) for name in names]))\n"
    )
    write_hook(tmp_path / MANAGED, "modest", source, metadata='"requires": {"env": ["NEEDED"]}')
    env = {"PATH": "/usr/bin:/bin", "NEEDED": "n", "OPENAI_API_KEY": "secret"}
    entries = {"modest": {"env": {"OWN": "o"}}}
    catalog = make_catalog(tmp_path, switched_on(entries=entries), env)
    async with open_dispatcher(tmp_path, catalog) as dispatcher:
        assert await messages(dispatcher) == ("['o', 'n', None]",)


async def test_calls_under_way_end_before_a_reload(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    source = (
        "import pathlib, time\ndef handle(event):\n"
        f"    while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
        "    event.messages.append('done')\n"
    )
    write_hook(tmp_path / MANAGED, "slow", source)
    async with open_dispatcher(tmp_path) as dispatcher, asyncio.TaskGroup() as group:
        task = group.create_task(messages(dispatcher))
        await until(lambda: dispatcher.pids)
        dispatcher.reload()
        gate.touch()
        assert await task == ("done",)


async def test_hook_folder_is_left_as_it_was(tmp_path: Path) -> None:
    folder = write_hook(tmp_path / MANAGED, "tidy", HANDLER)
    async with open_dispatcher(tmp_path) as dispatcher:
        await dispatcher.dispatch(event())
    assert sorted(each.name for each in folder.iterdir()) == ["HOOK.md", "handler.py"]


async def test_flood_of_events_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    count = tmp_path / "count"
    source = f"def handle(event):\n    open({str(count)!r}, 'a').write('x')\n"
    write_hook(tmp_path / MANAGED, "busy", source, events='["message"]')
    async with open_dispatcher(tmp_path) as dispatcher:
        for _ in range(1_000):
            dispatcher.post(event("message:received"))
        await until(lambda: count.exists() and len(count.read_text()) >= MAX_QUEUED)
        await until(lambda: dispatcher.is_idle)
        dispatcher.post(event("message:received"))
        before = len(count.read_text())
        await until(lambda: len(count.read_text()) == before + 1)
    assert before <= MAX_PENDING
    assert caplog.text.count("events are skipped") == 1 and "suspended" not in caplog.text
