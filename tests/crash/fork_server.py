"""A process that has imported everything and forks: a start takes milliseconds, not half a second.

`python -m tests.crash.fork_server` reads requests, one JSON object a line: {"module", "args",
"env", "cwd", "log"}. For each it forks a process that runs `module.main()` as `python -m module`
would, with its output in `log`, and prints {"pid": P}; when that ends it prints {"pid": P,
"status": S}.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

from homarus.config.schema import Config
from homarus.core import faults

MODULES = (
    "tests.crash.scripted_gateway",
    "tests.crash.ledger",
    "homarus.testing.model_server.__main__",
    # What the program imports lazily.
    "homarus.gateway.methods",
    "homarus.gateway.serve",
    "homarus.providers.openai",
    "anyio._backends._asyncio",
    "httpcore2._async.http11",
    "httpcore2._backends.anyio",
)


def main() -> None:
    """Fork on request until stdin ends."""
    for module in MODULES:
        importlib.import_module(module)
    Config.model_validate({})  # pydantic builds the validators once, here, and not in every child
    wake, wakeup = socket.socketpair()
    for one in (wake, wakeup):
        one.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _respond({"ready": True})
    left = b""
    while True:
        ready = select.select([0, wake.fileno()], [], [])[0]
        if wake.fileno() in ready:
            wake.recv(4096)
            _reap()
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                break
            *lines, left = (left + data).split(b"\n")
            for line in lines:
                _fork(json.loads(line))
    wake.close()
    wakeup.close()


def _respond(value: dict[str, Any]) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


def _reap() -> None:
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            _respond({"pid": child[0], "status": os.waitstatus_to_exitcode(child[1])})
    except ChildProcessError:
        pass


def _fork(request: dict[str, Any]) -> None:
    pid = os.fork()
    if pid:
        _respond({"pid": pid})
    else:
        _become(request)


def _become(request: dict[str, Any]) -> NoReturn:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null, log = os.open(os.devnull, os.O_RDONLY), _open(request["log"])
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, 256)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        faults._faults.clear()
        faults._faults.update(faults.parse_faults(os.environ.get(faults.VARIABLE, "")))
        sys.argv = [request["module"], *request["args"]]
        importlib.import_module(request["module"]).main()
        status = 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001 - report it as the interpreter would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


if __name__ == "__main__":
    main()
