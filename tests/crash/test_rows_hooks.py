"""Rows 101 and 102: `kill -9` while an internal hook handles `/new`.

The command is answered exactly once and the session reset once. The note of `session-memory` is
there once. The handler of a hook dies with the gateway, and is called again with the same run id.
"""

import os
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for
from tests.unit.agent.hook_builders import write_hook

pytestmark = pytest.mark.slow

KILLED = -9
SEED = 20261121
TRIALS = 4
CONFIG = {"hooks": {"internal": {"enabled": True}}}


def talk(rig: Rig) -> Any:
    """Have a message answered; return it."""
    message = rig.offer("MOCK:echo about lobsters {nonce}")
    rig.start()
    rig.settle()
    rig.kill()
    return message


def give_new(rig: Rig) -> Any:
    return rig.offer("/new", marks=["A new conversation."])


def notes(rig: Rig) -> list[Path]:
    return sorted((rig.state / "workspace" / "memory").rglob("*.md"))


def check_noted(rig: Rig, first: Any, command: Any) -> None:
    """Check that the command is answered once, the note written once, and the session new."""
    verdict = rig.settle()
    assert verdict.answered == [first["id"], command["id"]]
    assert not verdict.doubled and not verdict.lost
    [note] = notes(rig)
    text = note.read_text(encoding="utf-8")
    asked = [line for line in text.splitlines() if line.startswith("- user:")]
    assert text.count("## Session:") == 1 and len(asked) == 1 and first["nonce"] in asked[0]
    assert not rig.messages(rig.inbox_record(first["id"]).session), "the session is new"


@pytest.mark.parametrize("fault", ["memory.named", "memory.noted", "hook.called"])
def test_row_101_killed_while_the_note_is_written(make_rig: MakeRig, fault: str) -> None:
    rig = make_rig(config=CONFIG)
    first = talk(rig)
    command = give_new(rig)
    rig.start(f"{fault}:kill9")
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output
    assert len(notes(rig)) == (0 if fault == "memory.named" else 1)
    rig.start()
    check_noted(rig, first, command)


def test_row_101_killed_after_the_reset_writes_no_second_note(make_rig: MakeRig) -> None:
    rig = make_rig(config=CONFIG)
    first = talk(rig)
    command = give_new(rig)
    rig.start("store.sync:kill9:5")
    with suppress(AssertionError):
        rig.settle(3.0)
    rig.kill()
    rig.start()
    check_noted(rig, first, command)


def test_row_101_random_kills(make_rig: MakeRig) -> None:
    random = Random(SEED)
    rig = make_rig(config=CONFIG)
    for trial in range(TRIALS):
        chat = f"chat-{trial}"
        rig.offer("MOCK:echo about lobsters {nonce}", chat)
        rig.start()
        rig.settle()
        rig.kill()
        rig.offer("/new", chat, marks=["A new conversation."])
        rig.start(f"store.commit:kill9:{random.randint(1, 6)}")
        with suppress(AssertionError):
            rig.settle(random.uniform(0.1, 1.5))
        rig.kill()
        rig.start()
        verdict = rig.settle()
        assert len(verdict.answered) == 2 * trial + 2 and not verdict.doubled
        assert len(notes(rig)) == trial + 1, "each chat has one note"
        rig.kill()


def write_slow_hook(rig: Rig) -> Path:
    """Write a hook that records its calls, and blocks while a file is there."""
    gate = rig.folder / "gate"
    source = (
        "import os, pathlib, time\ndef handle(event):\n"
        f"    with open({str(rig.side)!r}, 'a') as side:\n"
        "        side.write(f\"{os.getpid()} {event.context['run_id']}\\n\")\n"
        f"    while pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)\n"
        "    event.messages.append('The hook was here.')\n"
    )
    write_hook(rig.state / "hooks", "slow", source, events='["command:new"]')
    gate.touch()
    return gate


def calls(rig: Rig) -> list[list[str]]:
    return [line.split() for line in rig.side.read_text(encoding="utf-8").splitlines()]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_row_102_killed_while_a_handler_runs(make_rig: MakeRig) -> None:
    rig = make_rig(config=CONFIG)
    first = talk(rig)
    gate = write_slow_hook(rig)
    command = rig.offer("/new", marks=["A new conversation.", "The hook was here."])
    rig.start()
    [[pid, run]] = wait_for(lambda: calls(rig), "the handler runs")
    rig.kill()
    wait_for(lambda: not is_running(int(pid)), "the handler dies with the gateway")
    gate.unlink()
    rig.start()
    check_noted(rig, first, command)
    assert [each[1] for each in calls(rig)] == [run, run], "the run id is the same"
