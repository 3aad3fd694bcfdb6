"""A command in the background ends with the gateway, however the gateway ends."""

import os
import secrets
import sys
from pathlib import Path

import pytest

from tests.crash.conftest import MakeRig
from tests.crash.harness import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc"),
]


def find_processes(mark: str) -> list[int]:
    """Return the processes that have a text among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("options", ['"background":true', '"pty":true,"yieldMs":50'])
def test_background_command_ends_with_a_killed_gateway(make_rig: MakeRig, options: str) -> None:
    mark = str(10**6 + secrets.randbelow(10**6))
    rig = make_rig()
    rig.start()
    rig.wait_ready()
    args = f'{{"command":"sleep {mark}",{options}}}'
    rig.offer("T#{nonce} MOCK:tool:exec:" + args + "§ MOCK:next MOCK:echo")
    rig.settle()
    wait_for(lambda: find_processes(mark), "the command runs")
    rig.kill()
    wait_for(lambda: not find_processes(mark), "the command ends")
