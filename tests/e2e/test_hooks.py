"""Internal hooks in the real gateway: enabled by the command line, called by events, contained."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.gateway import Gateway, change, connect_client, message_text, send, wait_for
from tests.e2e.program import Home
from tests.unit.agent.hook_builders import write_hook

GREETING = (
    "def handle(event):\n"
    "    event.messages.append(f'Goodbye, {event.session_key} of {event.context[\"agent\"]}.')\n"
)
PIRATE = "async def handle(event):\n    event.context['files']['SOUL.md'] = 'Talk like a pirate.'\n"
HANG = "import time\ndef handle(event):\n    time.sleep(600)\n"
CRASH = "import os\ndef handle(event):\n    os.abort()\n"


async def test_workspace_hook_runs_once_it_is_enabled(
    start: Callable[..., Gateway], home: Home
) -> None:
    home.run("setup")
    write_hook(home.workspace / "hooks", "greet", GREETING, events='["command:new"]')
    gateway = start().wait_ready()
    async with connect_client(gateway) as (client, events):

        async def say(text: str) -> str:
            return message_text(await events.end_of(await send(client, text)))

        await say("MOCK:echo about lobsters")
        assert "Goodbye" not in await say("/new")
        done = home.run("hooks", "enable", "greet")
        assert done.status == 0 and "the gateway uses it now" in done.out, done.out + done.err
        await say("MOCK:echo about crabs")
        assert "Goodbye, agent:main:main of main." in await say("/new")
        [note] = (home.workspace / "memory").glob("*.md")
        assert "about crabs" in note.read_text() and "lobsters" not in note.read_text()
        assert '"action": "new"' in (home.state / "logs" / "commands.log").read_text()
        file = home.workspace / "hooks" / "greet" / "handler.py"
        file.write_text(GREETING.replace("Goodbye", "Changed"))
        shown = await say("/new")
        assert "Goodbye" not in shown and "Changed" not in shown
        assert "its files have changed" in home.run("hooks", "check").out
        assert "its files have changed" in home.run("doctor").out


@pytest.mark.slow
async def test_bad_hooks_keep_no_message_from_its_answer(
    start: Callable[..., Gateway], home: Home
) -> None:
    home.run("setup")
    change(home, hooks={"internal": {"enabled": True}})
    hooks = home.state / "hooks"
    write_hook(hooks, "hang", HANG, events='["message", "session", "gateway"]')
    write_hook(hooks, "crash", CRASH, events='["command", "message", "agent"]')
    write_hook(hooks, "theirs", "export default 1", file="handler.js")
    write_hook(hooks, "pirate", PIRATE, events='["agent:bootstrap"]')
    (home.workspace / "BOOT.md").write_text("MOCK:echo the boot file was run")
    gateway = start().wait_ready()
    async with connect_client(gateway) as (client, events):
        for at in range(6):
            shown = await events.end_of(await send(client, f"MOCK:echo answer {at}"))
            assert f"answer {at}" in message_text(shown)
        assert "Talk like a pirate." in home.run("prompt").out
        reset: Any = await client.call("sessions.reset", {"key": "main", "reason": "new"})
        assert reset["ok"] and list((home.workspace / "memory").glob("*.md"))
        await events.wait(lambda _name, payload: "the boot file was run" in str(payload))
    wait_for(lambda: "hang is suspended" in (home.path / "log.jsonl").read_text())
    shown = home.run("hooks", "list", "-v").out
    assert "✗ suspended    hang" in shown and "✓ ready        pirate" in shown
    assert "handler.js is for Node.js" in shown
    gateway.signal(15)
    assert gateway.end() == 0, gateway.output
