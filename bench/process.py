"""A gateway in a process of its own, and its resource use by the kernel's counters."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import private_env

TOKEN = "bench-0123456789abcdef"
STOP_S = 15


class Gateway:
    """A process and its address."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.url = pid, f"ws://127.0.0.1:{port}/"

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its living threads, to the nanosecond.

        `/proc/PID/stat` counts those that ended too, but in hundredths of a second.
        """
        spent_ns = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                spent_ns += int((task / "schedstat").read_text(encoding="ascii").split()[0])
            except FileNotFoundError:
                continue  # it ended while we looked
        return spent_ns / 1e9

    def whole_cpu_s(self) -> float:
        """Return the CPU seconds since it started, threads that ended included."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def running_gateway(home: Path, **more: str) -> Iterator[Gateway]:
    """`homarus gateway run` in that home, until the block ends; `more` is for its environment."""
    command = [sys.executable, "-m", "homarus", "gateway", "run", "--port", "0"]
    env = {**private_env(home), "OPENCLAW_GATEWAY_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1", **more}
    log = home / "gateway.log"
    with (
        log.open("w") as err,
        subprocess.Popen(
            command, env=env, cwd=home, stdout=subprocess.PIPE, stderr=err, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"(?:ws|http)://127\.0\.0\.1:(\d+)", line):
                    yield Gateway(process.pid, int(found[1]))
                    break
            else:
                sys.exit(f"bench: the gateway did not start: {log.read_text(encoding='utf-8')}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
