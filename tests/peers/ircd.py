"""A real IRC server, ngircd, and users on it: pydle, each in its own process."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.peers.install import debian, venv

PYDLE = Path(__file__).parents[2] / "requirements" / "pydle.lock"
READY_S = 60.0
CONFIG = """
[Global]
Name = irc.test
Info = a server for tests
AdminInfo1 = nobody
Listen = 127.0.0.1
{ports}
{password}
[Limits]
MaxConnectionsIP = 0
MaxNickLength = 30
{penalty}
[Options]
DNS = no
Ident = no
PAM = no
SyslogFacility = local1
{tls}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Ircd:
    """The server: it can be stopped and started again on its port."""

    folder: Path
    port: int = field(default_factory=free_port)
    password: str = ""
    certificate: Path | None = None  # its key is next to it, as key.pem
    penalty: bool = False  # pydle sends too much at once for a server with flood protection
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self.process is None
        config = self.folder / f"ngircd-{self.port}.conf"
        config.write_text(self._config(), encoding="utf-8")
        program = shutil.which("ngircd") or "/usr/sbin/ngircd"
        with (self.folder / f"ngircd-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [program, "-n", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline_s = time.monotonic() + READY_S
        while True:
            assert self.process.poll() is None, self.log
            try:
                socket.create_connection(("127.0.0.1", self.port), READY_S).close()
            except OSError:
                assert time.monotonic() < deadline_s, self.log
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process:
            self.process.send_signal(how)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(READY_S)
            self.process = None

    def freeze(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    @property
    def log(self) -> str:
        return (self.folder / f"ngircd-{self.port}.log").read_text(errors="replace")

    def _config(self) -> str:
        tls = ""
        if self.certificate:
            key = self.certificate.with_name("key.pem")
            tls = f"[SSL]\nPorts = {self.port}\nCertFile = {self.certificate}\nKeyFile = {key}"
        return CONFIG.format(
            ports="" if tls else f"Ports = {self.port}",
            password=f"Password = {self.password}" if self.password else "",
            penalty="" if self.penalty else "MaxPenaltyTime = 0",
            tls=tls,
        )


@contextmanager
def ngircd(folder: Path, **options: Any) -> Iterator[Ircd]:
    """Run the server while the block lasts."""
    debian(ngircd="ngircd")
    server = Ircd(folder, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop(signal.SIGKILL)


class Person:
    """A user on the server. `events` is all they received."""

    def __init__(self, port: int, nick: str) -> None:
        self.nick = nick
        self.events: list[dict[str, str]] = []
        self._more = threading.Condition()
        self._process = subprocess.Popen(
            [str(venv(PYDLE)), str(Path(__file__).with_name("irc_person.py")), str(port), nick],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"},
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def do(self, name: str, *args: str) -> None:
        """Call a method of pydle's client."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": name, "args": args}) + "\n")
        self._process.stdin.flush()

    def say(self, target: str, text: str) -> None:
        self.do("message", target, text)

    def join(self, room: str) -> None:
        self.do("join", room)
        self.wait(lambda: self.saw("join", by=self.nick, target=room))

    def silence(self, room: str) -> None:
        """Make the channel moderated: only voiced users may speak."""
        self.do("set_mode", room, "+m")
        self.wait(lambda: [one for one in self.saw("mode", target=room) if "m" in one["text"]])

    def saw(self, kind: str, **fields: str) -> list[dict[str, str]]:
        """Return the events with these fields."""
        wanted = {"kind": kind, **fields}.items()
        return [event for event in list(self.events) if wanted <= event.items()]

    def messages(self, target: str = "") -> list[str]:
        """Return the messages to them, or in a channel, in order."""
        found = self.saw("message", target=target or self.nick)
        return [event["text"] for event in found]

    def wait(self, done: Callable[[], object], guard_s: float = READY_S) -> None:
        """Wait until the condition holds."""
        deadline_s = time.monotonic() + guard_s
        with self._more:
            while not done():
                left_s = deadline_s - time.monotonic()
                assert left_s > 0, f"{self.nick} did not see it: {self.events[-20:]}"
                assert self._process.poll() is None, f"{self.nick} left: {self.events[-20:]}"
                self._more.wait(min(left_s, 0.5))

    def leave(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            with self._more:
                self.events.append(json.loads(line))
                self._more.notify_all()


@contextmanager
def person(port: int, nick: str) -> Iterator[Person]:
    """Run a user while the block lasts."""
    made = Person(port, nick)
    try:
        made.wait(lambda: made.saw("ready"))
        yield made
    finally:
        made.leave()
