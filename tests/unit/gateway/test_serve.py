"""The process around the gateway: signals, and where it says it is."""

import os
import signal
from pathlib import Path

from homarus.config.paths import Paths
from homarus.gateway.client import find_running_gateway
from homarus.gateway.json_file import JsonFile
from homarus.gateway.serve import ShutdownSignal
from homarus.store.lock import StateLock, lock_holder_pid


async def test_first_signal_sets_exit_mode_and_second_is_urgent() -> None:
    bell = ShutdownSignal()
    bell.request("restart", "config changed")
    await bell.wait()
    assert (bell.ending, bell.reason, bell.is_urgent.is_set()) == (
        "restart",
        "config changed",
        False,
    )
    bell.request("stop", "gateway stopping")
    assert bell.is_urgent.is_set()
    assert bell.ending == "restart"


async def test_signals_are_handled_only_while_installed() -> None:
    bell = ShutdownSignal()
    with bell.on_signals():
        os.kill(os.getpid(), signal.SIGUSR1)
        await bell.wait()
        assert bell.ending == "restart"
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)
    assert not bell.is_urgent.is_set()


def paths_of(folder: Path) -> Paths:
    return Paths.find({"HOME": str(folder), "OPENCLAW_STATE_DIR": str(folder / "state")})


def test_running_gateway_is_found_only_while_it_holds_the_lock(tmp_path: Path) -> None:
    paths = paths_of(tmp_path)
    assert find_running_gateway(paths) is None and lock_holder_pid(paths.state) == 0
    post = JsonFile(paths.gateway_file)
    post.write({"pid": os.getpid(), "url": "ws://127.0.0.1:1", "port": 1})
    assert find_running_gateway(paths) is None  # left behind by one that died
    lock = StateLock(paths.state)
    try:
        found = find_running_gateway(paths)
        assert found and (found.pid, found.url) == (os.getpid(), "ws://127.0.0.1:1")
        assert lock_holder_pid(paths.state) == os.getpid()
        post.write({"pid": os.getpid() + 1, "url": "ws://127.0.0.1:1"})
        assert find_running_gateway(paths) is None  # another program holds the state now
        post.write({"pid": os.getpid()})
        assert find_running_gateway(paths) is None
    finally:
        lock.release()
    assert lock_holder_pid(paths.state) == 0


def test_lock_file_with_invalid_content_names_no_process(tmp_path: Path) -> None:
    for text in ("", "abc", "99999999999999999999", "-1", "0"):
        (tmp_path / "state.lock").write_text(text)
        assert lock_holder_pid(tmp_path) == 0
