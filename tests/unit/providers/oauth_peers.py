"""Third-party OAuth servers, started as processes."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_AUTHLIB = Path(__file__).with_name("oauth_server.py")


def authlib_server() -> Iterator[str]:
    """The address of a server made of Authlib's grants."""
    yield from _started([str(_AUTHLIB)], r"^(\d+)$", "stdout")


def oidc_server() -> Iterator[str]:
    """The address of oidc-provider-mock."""
    yield from _started(
        ["-m", "oidc_provider_mock", "--port", "0"], r"127\.0\.0\.1:(\d+)", "stderr"
    )


def _started(command: list[str], pattern: str, stream: str) -> Iterator[str]:
    """A server's address, until the test is over."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE if stream == "stdout" else subprocess.DEVNULL,
        stderr=subprocess.PIPE if stream == "stderr" else subprocess.DEVNULL,
        text=True,
    )
    lines = process.stdout if stream == "stdout" else process.stderr
    assert lines
    try:
        port = next(found[1] for line in lines if (found := re.search(pattern, line)))
        # Whatever it says later must not fill the pipe.
        drain = threading.Thread(target=lines.read, daemon=True)
        drain.start()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        drain.join(10)
        lines.close()
