"""When no file descriptor is left, the program says so once, refuses at once, and recovers.

Neither the accept loop nor any poller repeats tracebacks, or uses the processor in vain.
"""

import os
import resource
import socket
import time
from contextlib import suppress
from pathlib import Path

from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for
from tests.crash.random_kills import ECHO

WINDOW_S = 3.0
MAX_LOGGED_BYTES = 30_000
MAX_CPU_SHARE = 0.5
CLIENTS = 60


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    with suppress(OSError):
        client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return client


def logged_bytes(rig: Rig) -> int:
    return len(rig.output) + len(rig.logged())


def test_exhausted_descriptors_are_logged_once_and_refused(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    gateway = rig.start()
    rig.wait_ready()
    rig.offer(ECHO)
    rig.settle()
    port = int(rig.output.rpartition("ws://127.0.0.1:")[2].split()[0])
    limits = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    taken = len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))
    before, before_cpu_s, started_s = logged_bytes(rig), cpu_s(gateway.pid), time.monotonic()
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (taken, limits[1]))
    clients = [connect(port) for _ in range(CLIENTS)]
    rig.offer(ECHO, "another")  # the channel's poller and the model need descriptors as well
    time.sleep(WINDOW_S)
    for client in clients:
        client.settimeout(10)
        with suppress(ConnectionResetError):
            assert client.recv(1_000) == b"", "it is refused at once, and not left waiting"
        client.close()
    used_cpu = (cpu_s(gateway.pid) - before_cpu_s) / (time.monotonic() - started_s)
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, limits)
    assert logged_bytes(rig) - before < MAX_LOGGED_BYTES, rig.output[-2_000:]
    assert "Traceback" not in rig.output + rig.logged()
    warnings = [line for line in rig.logged().splitlines() if "no file descriptor is left" in line]
    assert len(warnings) == 1
    assert used_cpu < MAX_CPU_SHARE
    rig.settle(reported=True)
    wait_for(lambda: '"ok":true' in rig.fetch_page("/health").replace(" ", ""), "it recovers")
