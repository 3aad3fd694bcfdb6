"""The process that calls one function for one request, and ends.

Started by `worker_process.py` as `python -I -S worker_main.py` in a session of its own; it imports
no module of ours. Standard input has the request: the length of a JSON header, the header, and the
content up to the end of file. The same socket gets the result as JSON.

The function works on what strangers wrote, or is code of another author. So it runs here: with
little memory and time, no files to write and no environment. One that raises, hangs, prints without
end or takes all memory ends this process and nothing else.
"""

import importlib.util
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1
LENGTH_BYTES = 4
MAX_OPEN_FILES = 64
MAX_REASON_CHARS = 500


def main() -> None:
    """Read the request, call the function and write what it returns or raises."""
    source = sys.stdin.buffer
    header = json.loads(source.read(int.from_bytes(source.read(LENGTH_BYTES), "big")))
    die_with(header["parent"])
    restrict(header["limits"])
    content = source.read()
    out = open_result()
    sys.path[:] = header["path"]
    try:
        result = call(header["file"], header["function"], content, header["options"])
        data = encode({"result": result})
    except BaseException as exc:  # noqa: BLE001 - the gateway gets all that the function raises
        data = encode({"error": type(exc).__name__, "reason": str(exc)[:MAX_REASON_CHARS]})
    with os.fdopen(out, "wb") as file:
        file.write(data)
    os._exit(0)  # at once, whatever threads run: to free the trees of a large document takes long


def call(file: str, function: str, content: bytes, options: dict[str, Any]) -> Any:
    """Return what a function of a Python file returns for a content."""
    name = os.path.basename(file).removesuffix(".py")  # noqa: PTH119 - pathlib is slow to import
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return getattr(module, function)(content, **options)


def encode(reply: dict[str, Any]) -> bytes:
    """Return a reply as JSON."""
    return json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace")


def open_result() -> int:
    """Return a descriptor for the result; what the function prints is dropped."""
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    return out


def die_with(parent: int) -> None:
    """Let this process be killed when the gateway dies, also if that already happened."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def restrict(limits: dict[str, int]) -> None:
    """Set the limits of memory, time and files. The function cannot undo them."""
    # Ends the process where the system has no death signal, and also inside a function in C.
    signal.alarm(limits["wall_s"])
    _set_limit(resource.RLIMIT_CPU, limits["cpu_s"])
    _set_limit(resource.RLIMIT_AS, limits["memory_bytes"])
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, 0)
    _set_limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)


def _set_limit(number: int, value: int) -> None:
    hard = resource.getrlimit(number)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with suppress(ValueError, OSError):  # macOS refuses some of them
        resource.setrlimit(number, (value, value))


if __name__ == "__main__":
    main()
