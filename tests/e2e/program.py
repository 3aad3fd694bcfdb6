"""The real program, run as a person or a script runs it, in a home of its own."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

DEADLINE_S = 60.0
# Make the pseudo-terminal the controlling one, so that Ctrl-C reaches the program.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
PAINT = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass
class Done:
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Home:
    """A user's home and the `homarus` in it."""

    path: Path
    env: dict[str, str]

    @property
    def state(self) -> Path:
        return self.path / ".openclaw"

    @property
    def workspace(self) -> Path:
        return self.state / "workspace"

    def run(self, *args: str, text: str = "", **env: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "homarus", *args],
            input=text,
            capture_output=True,
            text=True,
            env={**self.env, **env},
            timeout=DEADLINE_S,
            cwd=self.path,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def configure(self, config: object) -> None:
        self.state.mkdir(exist_ok=True)
        (self.state / "openclaw.json").write_text(json.dumps(config))

    def use_model(self, url: str, **defaults: object) -> None:
        """Write a config whose model is the scripted server."""
        provider = {
            "baseUrl": url,
            "apiKey": "sk-test",
            "models": [
                {"id": "mock-1", "name": "Mock", "contextWindow": 100_000, "maxTokens": 4_000}
            ],
        }
        self.configure(
            {
                "models": {"providers": {"mock": provider}},
                "agents": {"defaults": {"model": {"primary": "mock/mock-1"}, **defaults}},
            }
        )

    def transcripts(self, agent: str = "main") -> list[list[Any]]:
        folder = self.state / "agents" / agent / "sessions"
        return [
            [json.loads(line) for line in file.read_text().splitlines()]
            for file in sorted(folder.glob("*.jsonl"))
        ]


class Terminal:
    """A program at a pseudo-terminal: its screen, and keys to press."""

    def __init__(self, home: Home, *args: str, program: Sequence[str] = ()) -> None:
        self._fd, child = pty.openpty()
        env = {"TERM": "xterm", **home.env}
        program = program or (sys.executable, "-m", "homarus")
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *program, *args],
            stdin=child,
            stdout=child,
            stderr=child,
            env=env,
            cwd=home.path,
            start_new_session=True,
        )
        os.close(child)
        self.screen = ""
        self._read = 0

    def wait_for(self, text: str) -> str:
        """Wait until `text` is shown; return the output since the last wait."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.screen[self._read :]:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._fd], [], [], max(0.0, left))
            assert ready, f"no {text!r} in {self.screen[self._read :]!r}"
            try:
                data = os.read(self._fd, 65_536)
            except OSError:  # the other end is closed
                data = b""
            assert data, f"ended without {text!r}: {self.screen[self._read :]!r}"
            self.screen += PAINT.sub("", data.decode(errors="replace"))
        since = self.screen[self._read :]
        self._read = self.screen.index(text, self._read) + len(text)
        return since

    @property
    def descriptor(self) -> int:
        """The end of the terminal at which the person sits."""
        return self._fd

    def type(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())

    def press_ctrl_c(self) -> None:
        os.write(self._fd, b"\x03")

    def end(self) -> int:
        """Wait for the program to exit, and read all that it wrote."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            has_exited = self._process.poll() is not None
            ready, _, _ = select.select([self._fd], [], [], 0 if has_exited else 0.1)
            if ready:
                try:
                    self.screen += os.read(self._fd, 65_536).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
            elif has_exited:
                break
        return self._process.wait(timeout=DEADLINE_S)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._fd)


Open: TypeAlias = Callable[..., Terminal]
